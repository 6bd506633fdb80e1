"""The polar U-Net: every feature of every pixel is a point, kept as a radius and a direction. No radius is capped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from polarvit.geometry import PolarPoint, from_space, to_tangent0
from polarvit.models.entry import Entry
from polarvit.models.unet import UNet
from polarvit.models.unet_config import BilinearUNetConfig, Stage
from polarvit.nn.conv import PolarBatchNorm2d, PolarConv2d, PolarMaxPool2d, PolarUpsample2d
from polarvit.nn.conv.space import as_image, as_rows
from polarvit.nn.precision import full


@dataclass(frozen=True, kw_only=True)
class PolarUNetConfig(BilinearUNetConfig):
    """The U-Net with bilinear upsampling, in hyperbolic space of curvature -1/k."""

    k: float = 1.0
    time_init: Literal["zero", "full"] = "full"
    """Whether the time column of a convolution starts at zero or is drawn with the rest."""


class PolarStage(nn.Module):
    """Two polar 3x3 convolutions, each with batch norm and ReLU. Several images are joined by concatenation first."""

    def __init__(self, stage: Stage, config: PolarUNetConfig) -> None:
        super().__init__()
        self.k = config.k
        inputs, width = stage
        self.conv1 = PolarConv2d(inputs, width, 3, padding=1, time_init=config.time_init)
        self.norm1 = PolarBatchNorm2d(width, config.norm_eps, config.momentum, "relu")
        self.conv2 = PolarConv2d(width, width, 3, padding=1, time_init=config.time_init)
        self.norm2 = PolarBatchNorm2d(width, config.norm_eps, config.momentum, "relu")

    def forward(self, *images: PolarPoint) -> PolarPoint:
        x = self.norm1(self.conv1(*images, k=self.k), k=self.k)
        return self.norm2(self.conv2(x, k=self.k), k=self.k)


class PolarUNet(UNet):
    """U-Net of polar layers (`PolarUNetConfig`): images are space coordinates, logits the log map at the origin."""

    config_class = PolarUNetConfig
    first_layer = "encoder.0.conv1"
    hyperbolic = True

    def __init__(self, config: PolarUNetConfig) -> None:
        super().__init__(config)
        self.config: PolarUNetConfig
        self.halve = PolarMaxPool2d(2)

    @property
    def k(self) -> float:
        """Curvature is -1/k."""
        return self.config.k

    def make_stage(self, stage: Stage) -> nn.Module:
        return PolarStage(stage, self.config)

    def make_rise(self, stage: Stage) -> nn.Module:
        return PolarUpsample2d()

    def rise(self, rise: nn.Module, x: PolarPoint) -> PolarPoint:
        return rise(x, k=self.k)

    def _make_head(self, num_classes: int) -> nn.Module:
        c = self.config
        return PolarConv2d(c.dim, num_classes, 1, time_init=c.time_init) if num_classes else nn.Identity()

    def lift(self, images: Tensor) -> PolarPoint:
        return from_space(full(as_rows(images)).contiguous(), k=self.k)

    def pool(self, x: PolarPoint) -> PolarPoint:
        return self.halve(x, k=self.k)

    def join(self, stage: nn.Module, skip: PolarPoint, risen: PolarPoint) -> PolarPoint:
        return stage(skip, risen)

    def classify(self, x: PolarPoint) -> Tensor:
        return self.flat(self.head(x, k=self.k))

    def flat(self, x: PolarPoint) -> Tensor:
        return as_image(to_tangent0(x))


ENTRIES = (
    Entry(
        "unet_polar", PolarUNet, PolarUNetConfig(), "Bdeir & Landwehr, Polar-ViT", "the paper's appendix, in polar form"
    ),
)
