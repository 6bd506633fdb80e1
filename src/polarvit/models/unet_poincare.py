"""The Poincare U-Net (Mishra et al., 2026): the Euclidean topology, every layer in a ball of trainable curvature."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.models.entry import Entry
from polarvit.models.unet import UNet
from polarvit.models.unet_config import Stage, UNetConfig
from polarvit.nn.baselines.ball import exp0, log0
from polarvit.nn.conv.ball import PoincareBatchNorm2d, PoincareConv2d, concatenated
from polarvit.nn.conv.space import as_image, as_rows
from polarvit.nn.precision import full
from polarvit.parameters import CURVATURE, Role


@dataclass(frozen=True, kw_only=True)
class PoincareUNetConfig(UNetConfig):
    """The U-Net with transposed convolutions in the Poincare ball."""

    k: float = 10.0
    """Curvature is -1/k at first: -0.1."""
    learn_k: bool = True


class PoincareStage(nn.Module):
    """Two Poincare 3x3 convolutions, each with batch norm and ReLU in the tangent space at the origin.

    `run(norm, x)` calls a norm, which the model may have compiled.
    """

    def __init__(self, stage: Stage, config: PoincareUNetConfig) -> None:
        super().__init__()
        self.convs = nn.ModuleList(PoincareConv2d(n, stage.outputs, 3, padding=1) for n in stage)
        self.norms = nn.ModuleList(
            PoincareBatchNorm2d(stage.outputs, config.norm_eps, config.momentum, "relu") for _ in stage
        )

    def forward(self, x: Tensor, k: float | Tensor, run: Callable[..., Tensor]) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = run(norm, conv(x, k=k), k=k)
        return x


class PoincareUNet(UNet):
    """U-Net of Poincare layers (`PoincareUNetConfig`). Features are [B, H, W, n] in the unit ball."""

    config_class = PoincareUNetConfig
    first_layer = "encoder.0.convs.0"
    hyperbolic = True
    compiles_norms = True
    roles: ClassVar[dict[str, Role]] = {"log_k": CURVATURE}

    def __init__(self, config: PoincareUNetConfig) -> None:
        super().__init__(config)
        self.config: PoincareUNetConfig
        self.log_k = nn.Parameter(torch.tensor(math.log(config.k))) if config.learn_k else None

    @property
    def k(self) -> float | Tensor:
        """Curvature is -1/k: the config's number, or the learned one."""
        return self.config.k if self.log_k is None else full(self.log_k).exp()

    def make_stage(self, stage: Stage) -> nn.Module:
        return PoincareStage(stage, self.config)

    def make_rise(self, stage: Stage) -> nn.Module:
        return PoincareConv2d(stage.inputs, stage.inputs // 2, 1, rise=True)

    def _make_head(self, num_classes: int) -> nn.Module:
        return PoincareConv2d(self.config.dim, num_classes, 1) if num_classes else nn.Identity()

    def lift(self, images: Tensor) -> Tensor:
        return exp0(full(as_rows(images)).contiguous() / self.k**0.5)

    def pool(self, x: Tensor) -> Tensor:
        return exp0(as_rows(F.max_pool2d(as_image(log0(x)), 2)))

    def stage(self, stage: nn.Module, x: Any) -> Any:
        return stage(x, self.k, self.run)

    def rise(self, rise: nn.Module, x: Any) -> Any:
        return rise(x, k=self.k)

    def join(self, stage: nn.Module, skip: Tensor, risen: Tensor) -> Tensor:
        return self.stage(stage, concatenated(skip, risen))

    def classify(self, x: Tensor) -> Tensor:
        return self.flat(self.head(x, k=self.k))

    def flat(self, x: Tensor) -> Tensor:
        return as_image(self.k**0.5 * log0(x))

    def radius(self, x: Tensor) -> Tensor:
        return 2 * self.k**0.5 * log0(x).norm(dim=-1)


ENTRIES = (
    Entry(
        "unet_poincare",
        PoincareUNet,
        PoincareUNetConfig(),
        "Mishra et al., 2026; layers of Shimizu et al., 2021",
        "published formulas of HNN++ and HypLL, in the ball",
    ),
)
