"""The surface every vision model here shares: timm's names, tracing hooks, gradient checkpointing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from polarvit.compilation import RECOMPILATIONS, compiled
from polarvit.geometry import PolarPoint
from polarvit.models.class_names import checked_names
from polarvit.models.config import ImageConfig
from polarvit.models.weights import Pretrained
from polarvit.parameters import ORDINARY, walk

if TYPE_CHECKING:
    from polarvit.models.trace import Trace


class VisionModel(nn.Module, Pretrained):
    """A network from images [B, C, H, W] to logits [B, classes], made from a typed config."""

    config_class: ClassVar[type[ImageConfig]] = ImageConfig
    task: ClassVar[str] = "classification"
    """What it gives: one answer an image, or one a pixel ("segmentation")."""
    first_layer: ClassVar[str] = "embed"
    """Name of the module that sees the patches (timm's `first_conv`)."""
    hyperbolic: ClassVar[bool] = False
    """Whether tokens are points of hyperbolic space, with radii to report."""
    largest_radius: ClassVar[float] = math.inf
    """Where its points end, whatever its layers ask for."""
    calibrated: ClassVar[bool] = False
    """Whether training starts by calibrating it on a first batch (`polarvit.models.calibrate`)."""

    compiled_evaluation = False
    """Whether compiled blocks run in evaluation too."""

    def __init__(self, config: ImageConfig) -> None:
        super().__init__()
        if not isinstance(config, self.config_class):
            raise TypeError(
                f"{type(self).__name__} takes a {self.config_class.__name__}, got {type(config).__name__}; "
                "create_model() builds one from a name"
            )
        self.config = config
        self.grad_checkpointing = False
        self.compiled: Callable[..., Any] | None = None
        self.compiled_ends: Callable[..., Any] | None = None
        self.default_cfg: dict[str, Any] = default_cfg(config, type(self).__name__, self.first_layer)

    @property
    def num_classes(self) -> int:
        return self.config.num_classes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes in the order of the logits, if they were given; saved with the weights.

        Kept as timm does, in `default_cfg["label_names"]`.
        """
        return self.default_cfg.get("label_names")

    @class_names.setter
    def class_names(self, names: Sequence[str] | None) -> None:
        self.default_cfg.pop("label_names", None)
        if names is not None:
            self.default_cfg["label_names"] = checked_names(names, self.num_classes)

    @property
    def num_features(self) -> int:
        """Width of the pooled features."""
        return self.config.dim  # type: ignore[attr-defined]

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.config.depth  # type: ignore[attr-defined]

    @property
    def architecture(self) -> str:
        """The registered name it was created by, or the name of its class."""
        return self.default_cfg["architecture"]

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """timm's name for `default_cfg`."""
        return self.default_cfg

    def tokens(self, images: Tensor) -> Iterator[Any]:
        """The stream after the embedding and after every block."""
        raise TypeError(f"{type(self).__name__} does not define its stream")

    def forward_features(self, images: Tensor) -> Any:
        raise TypeError(f"{type(self).__name__} does not define features")

    def forward_head(self, x: Any, pre_logits: bool = False) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not define a head")

    def as_points(self, x: Any) -> PolarPoint:
        """Tokens as radius and direction; of a Euclidean model, norm and unit vector."""
        norm = x.norm(dim=-1)
        return PolarPoint(norm, x / norm.clamp_min(torch.finfo(x.dtype).tiny).unsqueeze(-1))

    def resize_positions(self, state: dict[str, Tensor], grid: tuple[int, int]) -> None:
        raise TypeError(f"{type(self).__name__} does not define a position table")

    def _make_head(self, num_classes: int) -> nn.Module:
        raise TypeError(f"{type(self).__name__} does not define a head")

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def forward_intermediates(
        self,
        images: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: Literal["NLC", "NCHW"] = "NLC",
        intermediates_only: bool = False,
    ) -> Any:
        """Final features and the tokens after chosen blocks (all, the last n, or these indices).

        `norm` applies the final norm to the tokens too; `stop_early` leaves out blocks after the last chosen one;
        `intermediates_only` leaves the final features out. `output_fmt` is `NLC`, tokens as the model has them, or
        `NCHW`, plain maps without class token (`flat`).
        """
        if output_fmt not in ("NLC", "NCHW"):
            raise ValueError(f"forward_intermediates: output_fmt must be NLC or NCHW, got {output_fmt!r}")
        depth = self.depth
        if indices is None:
            chosen = list(range(depth))
        elif isinstance(indices, int):
            if not 1 <= indices <= depth:
                raise ValueError(f"forward_intermediates: the last {indices} blocks asked for, the model has {depth}")
            chosen = list(range(depth - indices, depth))
        else:
            chosen = [index % depth if -depth <= index < depth else index for index in indices]
        for index in chosen:
            if not 0 <= index < depth:
                raise ValueError(f"forward_intermediates: block {index} does not exist, the model has {depth}")
        last = max(chosen, default=depth - 1) if stop_early else depth - 1
        stream = list(islice(self.tokens(images), 1, last + 2))
        tokens = [self._normed(stream[index]) if norm else stream[index] for index in chosen]
        if output_fmt == "NCHW":
            tokens = [self.flat(x) for x in tokens]
        return tokens if intermediates_only else (self._normed(stream[-1]), tokens)

    def flat(self, x: Any) -> Tensor:
        """The tokens of the patches as a plain map [B, C, h, w]; points in the tangent space at the origin."""
        points, (height, width) = self.as_points(x), self.config.grid
        tangent = points.radius.unsqueeze(-1) * points.direction
        return tangent[:, -height * width :].mT.unflatten(-1, (height, width))

    def _normed(self, x: Any) -> Any:
        """The final norm, if the model has one."""
        norm = getattr(self, "norm", None)
        if norm is None:
            return x
        return self.run(norm, x, k=self.k) if isinstance(x, PolarPoint) else self.run(norm, x)

    def after_step(self) -> None:
        """What the model does to its own weights after each update of training; most do nothing."""

    def trace(self, images: Tensor) -> Trace:
        """Radii, attention maps and token positions of every block as plain tensors (`polarvit.models.trace`)."""
        from polarvit.models.trace import trace

        return trace(self, images)

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A fresh head for another number of classes, which have no names yet; 0 removes it.

        `global_pool` is timm's and must be None: how tokens are read out is part of a model here.
        """
        if global_pool is not None:
            raise ValueError(
                f"reset_classifier: global_pool {global_pool!r} cannot be set, the readout is part of the model; "
                "tokens without it are `forward_features(images)`"
            )
        self.class_names = None
        self.config = dataclasses.replace(self.config, num_classes=num_classes)
        self.default_cfg["num_classes"] = num_classes
        reference = next(self.parameters())
        self.head = self._make_head(num_classes).to(device=reference.device, dtype=reference.dtype)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute blocks in backward (non-reentrant) instead of keeping their activations."""
        self.grad_checkpointing = enable

    def compile_blocks(self, *, evaluation: bool = False, **options: Any) -> None:
        """Compile the parts of the model for training; one compilation serves all blocks.

        Evaluation, with its other batch sizes, runs as it is and costs no further compilation, unless asked for.
        All models of a process share PyTorch's limit of eight compilations of one function; it is raised.
        Further options are those of `polarvit.compilation.compiled`.
        """
        torch._dynamo.config.recompile_limit = max(RECOMPILATIONS, torch._dynamo.config.recompile_limit)
        self.compiled_evaluation = evaluation
        self.compiled, self.compiled_ends = compiled(call, **options), compiled(call_end, rows_at_once=False, **options)

    def run(self, module: nn.Module, *inputs: Any, **options: Any) -> Any:
        """Call a part of the model, compiled if it was compiled and this is training (or evaluation was asked for)."""
        return self._now(self.compiled, call)(module, *inputs, **options)

    def run_end(self, module: nn.Module, *inputs: Any, **options: Any) -> Any:
        """`run` for what comes once, before or after all blocks: compiled for a short wait rather than the last speed.

        In Polar-ViT these parts are the plain formulas of the geometry, where blocks have kernels of their own.
        """
        return self._now(self.compiled_ends, call_end)(module, *inputs, **options)

    def _now(self, compiled: Callable[..., Any] | None, plain: Callable[..., Any]) -> Callable[..., Any]:
        return compiled if compiled is not None and (self.training or self.compiled_evaluation) else plain

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Inside: evaluation as plain PyTorch, where hooks see every layer. Mode and compiled code come back."""
        before = self.training, self.compiled, self.compiled_ends
        try:
            self.eval()
            self.forget_compiled()
            yield
        finally:
            self.train(before[0])
            self.compiled, self.compiled_ends = before[1:]

    def forget_compiled(self) -> None:
        """Run as plain PyTorch again."""
        self.compiled = self.compiled_ends = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "compiled": None, "compiled_ends": None}  # compiled code stays behind

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layer groups for timm's layer-wise learning-rate decay."""
        return {
            "stem": r"^(?:embed|token|table|log_k)",
            "blocks": r"^blocks\.(\d+)" if coarse else [(r"^blocks\.(\d+)", None), (r"^norm", (99999,))],
        }

    def _names_without_decay(self) -> set[str]:
        return {tagged.name for tagged in walk(self) if tagged.role is not ORDINARY}

    def count(self, classifier: bool = True) -> int:
        """Number of parameters, with or without the classifier."""
        total = sum(parameter.numel() for parameter in self.parameters())
        return total if classifier else total - sum(p.numel() for p in self.get_classifier().parameters())

    @classmethod
    def from_config(cls, values: dict[str, Any]) -> Self:
        """A model from plain config data (strict keys)."""
        return cls(cls.config_class.from_dict(values))


def call(module: nn.Module, *inputs: Any, **options: Any) -> Any:
    """What `compile_blocks` compiles: the module is an argument, so one compilation serves all of its kind."""
    return module(*inputs, **options)


def call_end(module: nn.Module, *inputs: Any, **options: Any) -> Any:
    """`call`, for `run_end`."""
    return module(*inputs, **options)


def default_cfg(config: ImageConfig, architecture: str, first_layer: str) -> dict[str, Any]:
    """What timm calls a model's default configuration: input size, normalisation, where the ends are."""
    return {
        "architecture": architecture,
        "input_size": (config.in_chans, *config.image),
        "num_classes": config.num_classes,
        "mean": (0.5,) * config.in_chans,
        "std": (0.5,) * config.in_chans,
        "interpolation": "bicubic",
        "crop_pct": 0.875,
        "first_conv": first_layer,
        "classifier": "head",
        "license": "apache-2.0",
    }
