"""The Lorentz U-Net in ambient coordinates, of the layers of HCNN as they come: what the polar one is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.models.entry import Entry
from polarvit.models.unet import UNet
from polarvit.models.unet_config import BilinearUNetConfig, Stage
from polarvit.nn.baselines.lorentz import arcosh, log0
from polarvit.nn.conv.lorentz import LorentzBatchNorm2d, LorentzConv2d, max_pool, upsample
from polarvit.nn.conv.space import as_image, as_rows
from polarvit.nn.precision import full


@dataclass(frozen=True, kw_only=True)
class LorentzUNetConfig(BilinearUNetConfig):
    """The U-Net with bilinear upsampling, in hyperbolic space of curvature -1/k."""

    k: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.k < 2000:
            raise ValueError(f"{type(self).__name__}: k must be between 0 and 2000 (the radius cap), got {self.k}")


class LorentzStage(nn.Module):
    """Two Lorentz 3x3 convolutions, each with batch norm and ReLU on the space part: [B, H, W, n+1] -> the same.

    `run(norm, x)` calls a norm, which the model may have compiled.
    """

    def __init__(self, stage: Stage, config: LorentzUNetConfig) -> None:
        super().__init__()
        c = config
        self.convs = nn.ModuleList(LorentzConv2d(n, stage.outputs, 3, padding=1, k=c.k) for n in stage)
        self.norms = nn.ModuleList(
            LorentzBatchNorm2d(stage.outputs, c.norm_eps, c.momentum, c.k, "relu") for _ in stage
        )

    def forward(self, x: Tensor, run: Callable[..., Tensor]) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = run(norm, conv(x))
        return x


class LorentzUNet(UNet):
    """U-Net of ambient Lorentz layers with the soft radius cap (`LorentzUNetConfig`). Features are [B, H, W, n+1]."""

    config_class = LorentzUNetConfig
    first_layer = "encoder.0.convs.0"
    hyperbolic = True
    compiles_norms = True

    def __init__(self, config: LorentzUNetConfig) -> None:
        super().__init__(config)
        self.config: LorentzUNetConfig

    @property
    def k(self) -> float:
        """Curvature is -1/k."""
        return self.config.k

    def make_stage(self, stage: Stage) -> nn.Module:
        return LorentzStage(stage, self.config)

    def make_rise(self, stage: Stage) -> nn.Module:
        return nn.Identity()  # has no weights

    def stage(self, stage: nn.Module, x: Tensor) -> Tensor:
        return stage(x, self.run)

    def rise(self, rise: nn.Module, x: Tensor) -> Tensor:
        return upsample(x, k=self.k)

    def _make_head(self, num_classes: int) -> nn.Module:
        return LorentzConv2d(self.config.dim, num_classes, 1, k=self.config.k) if num_classes else nn.Identity()

    def lift(self, images: Tensor) -> Tensor:
        return ambient.from_space(full(as_rows(images)), k=self.k)

    def pool(self, x: Tensor) -> Tensor:
        return max_pool(x, k=self.k)

    def join(self, stage: nn.Module, skip: Tensor, risen: Tensor) -> Tensor:
        return self.stage(stage, ambient.concat([skip, risen], k=self.k))

    def classify(self, x: Tensor) -> Tensor:
        return self.flat(self.head(x))

    def flat(self, x: Tensor) -> Tensor:
        return as_image(log0(x, k=self.k))

    def radius(self, x: Tensor) -> Tensor:
        return self.k**0.5 * arcosh(x[..., 0] / self.k**0.5)


ENTRIES = (
    Entry(
        "unet_lorentz",
        LorentzUNet,
        LorentzUNetConfig(),
        "Bdeir & Landwehr, Polar-ViT; layers of Bdeir et al., 2024",
        "published formulas of HCNN, ambient arithmetic",
    ),
)
