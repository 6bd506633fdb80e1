"""The surface every vision model here shares: timm's names, tracing hooks, gradient checkpointing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from polarvit.geometry import PolarPoint
from polarvit.models.config import VisionConfig
from polarvit.parameters import ORDINARY, walk


class VisionModel(nn.Module):
    """A network from images [B, C, H, W] to logits [B, classes], made from a typed config."""

    config_class: ClassVar[type[VisionConfig]] = VisionConfig

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        if not isinstance(config, self.config_class):
            raise TypeError(
                f"{type(self).__name__} takes a {self.config_class.__name__}, got {type(config).__name__}; "
                "create_model() builds one from a name"
            )
        self.config = config
        self.grad_checkpointing = False
        self.default_cfg: dict[str, Any] = default_cfg(config)

    @property
    def num_classes(self) -> int:
        return self.config.num_classes

    @property
    def num_features(self) -> int:
        """Width of the pooled features."""
        return self.config.dim

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

    def _make_head(self, num_classes: int) -> nn.Module:
        raise TypeError(f"{type(self).__name__} does not define a head")

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def forward_intermediates(
        self, images: Tensor, indices: int | Sequence[int] | None = None
    ) -> tuple[Any, list[Any]]:
        """Final features and the tokens after chosen blocks (all, the last n, or these indices)."""
        stream = list(self.tokens(images))[1:]
        depth = len(stream)
        if indices is None:
            chosen = list(range(depth))
        elif isinstance(indices, int):
            chosen = list(range(depth - indices, depth))
        else:
            chosen = [index % depth if -depth <= index < depth else index for index in indices]
        for index in chosen:
            if not 0 <= index < depth:
                raise ValueError(f"forward_intermediates: block {index} does not exist, the model has {depth}")
        last = stream[-1]
        norm = getattr(self, "norm", None)
        if norm is not None:
            last = norm(last, k=self.k) if isinstance(last, PolarPoint) else norm(last)  # type: ignore[operator]
        return last, [stream[index] for index in chosen]

    def get_classifier(self) -> nn.Module:
        return self.head  # type: ignore[return-value]

    def reset_classifier(self, num_classes: int) -> None:
        """A fresh head for another number of classes; 0 removes it."""
        self.config = dataclasses.replace(self.config, num_classes=num_classes)
        self.default_cfg = default_cfg(self.config)
        reference = next(self.parameters())
        self.head = self._make_head(num_classes).to(device=reference.device, dtype=reference.dtype)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute blocks in backward (non-reentrant) instead of keeping their activations."""
        self.grad_checkpointing = enable

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layer groups for timm's layer-wise learning-rate decay."""
        return {
            "stem": r"^(embed|log_k)",
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


def default_cfg(config: VisionConfig) -> dict[str, Any]:
    """What timm calls a model's default configuration: input size, normalisation, where the ends are."""
    return {
        "input_size": (config.in_chans, *config.image),
        "num_classes": config.num_classes,
        "mean": (0.5,) * config.in_chans,
        "std": (0.5,) * config.in_chans,
        "interpolation": "bicubic",
        "crop_pct": 0.875,
        "first_conv": "embed.proj",
        "classifier": "head",
        "license": "apache-2.0",
    }


