"""The U-Net: stages on the way down, stages on the way up, a skip between the two at every level.

    lift -> stage -> (pool -> stage) x levels -> (rise, join the skip, stage) x levels -> classifier at every pixel

The topology stands here once, with its Euclidean parts; the hyperbolic nets replace the parts (`unet_polar`,
`unet_lorentz`, `unet_poincare`). The Euclidean one is the reference's: 486,562 parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.compilation import compiled
from polarvit.geometry import PolarPoint
from polarvit.models.base import VisionModel
from polarvit.models.entry import Entry
from polarvit.models.unet_config import Stage, UNetConfig
from polarvit.nn.conv.euclidean import BatchNorm2d


@dataclass(frozen=True)
class UNetTrace:
    """One forward pass in evaluation mode, without gradient: how far out every stage puts every pixel."""

    radius: tuple[Tensor, ...]
    """[B, h, w] of every stage: down to the bottleneck and up again. Of a Euclidean model, the norm."""
    logits: Tensor
    """[B, classes, H, W]"""

    @property
    def bottleneck(self) -> Tensor:
        """Radii at the coarsest resolution."""
        return self.radius[len(self.radius) // 2]


class UNet(VisionModel):
    """Images [B, C, H, W] to logits [B, classes, H, W]; H and W are any multiples of 2^levels."""

    config_class = UNetConfig
    task: ClassVar[str] = "segmentation"
    first_layer = "encoder.0.0"
    compiles_norms: ClassVar[bool] = False
    """Whether `compile_blocks` compiles the batch norms instead of the whole forward pass."""

    def __init__(self, config: UNetConfig) -> None:
        super().__init__(config)
        self.config: UNetConfig
        self.default_cfg.update(mean=(0.0,) * config.in_chans, std=(1.0,) * config.in_chans, crop_pct=1.0)
        self.default_cfg["padding"] = "zeros"
        self.encoder = nn.ModuleList(self.make_stage(stage) for stage in config.encoder)
        self.rises = nn.ModuleList(self.make_rise(stage) for stage in config.decoder)
        self.decoder = nn.ModuleList(self.make_stage(stage) for stage in config.decoder)
        self.head = self._make_head(config.num_classes)

    @property
    def depth(self) -> int:
        """Number of stages."""
        return len(self.encoder) + len(self.decoder)

    def make_stage(self, stage: Stage) -> nn.Module:
        """Two 3x3 convolutions, each with batch norm and ReLU."""
        layers: list[nn.Module] = []
        for inputs in stage:
            layers += [
                nn.Conv2d(inputs, stage.outputs, 3, padding=1, bias=False),
                BatchNorm2d(stage.outputs, self.config.norm_eps, self.config.momentum),
                nn.ReLU(inplace=True),
            ]
        return nn.Sequential(*layers)

    def make_rise(self, stage: Stage) -> nn.Module:
        """Twice the resolution for what comes from below."""
        return nn.ConvTranspose2d(stage.inputs, stage.inputs // 2, 2, stride=2)

    def _make_head(self, num_classes: int) -> nn.Module:
        return nn.Conv2d(self.config.dim, num_classes, 1) if num_classes else nn.Identity()

    def lift(self, images: Tensor) -> Any:
        """Pixels as points of the model's space."""
        return images

    def pool(self, x: Any) -> Any:
        return F.max_pool2d(x, 2)

    def stage(self, stage: nn.Module, x: Any) -> Any:
        return stage(x)

    def rise(self, rise: nn.Module, x: Any) -> Any:
        return rise(x)

    def join(self, stage: nn.Module, skip: Any, risen: Any) -> Any:
        """A decoder stage on the skip and what rose from below, side by side."""
        return stage(torch.cat([skip, risen], 1))

    def classify(self, x: Any) -> Tensor:
        return self.head(x)

    def flat(self, x: Any) -> Tensor:
        """Features as a plain image [B, dim, H, W]."""
        return x

    def radius(self, x: Any) -> Tensor:
        """How far from the origin, [B, H, W]."""
        return x.radius if isinstance(x, PolarPoint) else x.norm(dim=1)

    def tokens(self, images: Tensor) -> Iterator[Any]:
        """The lifted image, then the features after every stage."""
        self._check(images)
        x = self.lift(images)
        yield x
        skips = []
        for index, stage in enumerate(self.encoder):
            x = self.stage(stage, x if index == 0 else self.pool(x))
            yield x
            skips.append(x)
        skips.pop()
        for rise, stage in zip(self.rises, self.decoder, strict=True):
            x = self.join(stage, skips.pop(), self.rise(rise, x))
            yield x

    def _check(self, images: Tensor) -> None:
        side = 2**self.config.levels
        shape = tuple(images.shape)
        if len(shape) != 4 or shape[1] != self.config.in_chans or shape[2] % side or shape[3] % side:
            raise ValueError(
                f"{type(self).__name__}: expected images [B, {self.config.in_chans}, H, W] with H and W multiples "
                f"of {side}, got {list(shape)}"
            )

    def forward_features(self, images: Tensor) -> Any:
        """Features at full resolution, before the classifier."""
        x = None
        for x in self.tokens(images):  # noqa: B007 - the last one
            pass
        return x

    def forward_head(self, x: Any, pre_logits: bool = False) -> Tensor:
        """Logits [B, classes, H, W]; with `pre_logits` the features as a plain image [B, dim, H, W]."""
        return self.flat(x) if pre_logits or isinstance(self.head, nn.Identity) else self.classify(x)

    def forward(self, images: Tensor) -> Tensor:
        if self.compiled is not None and self.training and not self.compiles_norms:
            return self.compiled(images)
        return super().forward(images)

    def compile_blocks(self, **options: Any) -> None:
        """Compile the whole forward pass for training, as no two stages have the same shapes; or the batch norms.

        Ambient and Poincare nets make thousands of operations of a pass, four in five in their batch norms, of which
        two have the same shape at every level: those are compiled a few times faster than all, and gain nearly as much.
        """
        if self.compiles_norms:
            super().compile_blocks(**options)
        else:
            self.compiled = compiled(super().forward, **options)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        if enable:
            raise ValueError(
                f"{type(self).__name__}: no gradient checkpointing; batch norm would count every batch twice"
            )

    @torch.no_grad()
    def trace(self, images: Tensor) -> UNetTrace:  # type: ignore[override]
        """Radii of every stage and the logits, as plain tensors."""
        was_training = self.training
        try:
            self.eval()
            stream = list(self.tokens(images))
            return UNetTrace(tuple(self.radius(x) for x in stream[1:]), self.forward_head(stream[-1]))
        finally:
            self.train(was_training)

    def no_weight_decay(self) -> set[str]:
        """Names for timm's optimizers; ours reads roles (`polarvit.parameters`)."""
        return self._names_without_decay()

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layer groups for layer-wise learning-rate decay: a stage and what rises to it."""
        return {"stem": r"^encoder\.0\.", "encoder": r"^encoder\.(\d+)", "decoder": r"^(?:rises|decoder)\.(\d+)"}

    def resize_positions(self, state: dict[str, Tensor], grid: tuple[int, int]) -> None:
        """Nothing to do: a convolution takes any size."""


ENTRIES = (
    Entry(
        "unet", UNet, UNetConfig(), "Ronneberger et al., 2015; Mishra et al., 2026", "the reference topology, Euclidean"
    ),
)
