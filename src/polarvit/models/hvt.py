"""HVT (Fein-Ashley et al., 2024), the vision transformer in the Poincare ball, rebuilt from its formulas.

    images -> Mobius layer on patches -> (+) learned points of positions
           -> depth x [norm(x (+) attention(x)), norm(x (+) MLP(x))] -> norm -> mean in the tangent space -> linear

It is trained by the loop of this library: the published one updates twice a step and lowers its rate every iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, from_ball
from polarvit.models.entry import SIZES, Entry
from polarvit.models.stream import HyperbolicConfig, StreamModel
from polarvit.nn.baselines import ball
from polarvit.nn.baselines.hvt import (
    BallPoint,
    MobiusLinear,
    MobiusResidual,
    TangentAttention,
    TangentNorm,
    TangentPReLU,
)
from polarvit.nn.embed import patchify
from polarvit.nn.precision import full, product, tensors_in_full_precision
from polarvit.parameters import NO_DECAY, Role


@dataclass(frozen=True, kw_only=True)
class HVTConfig(HyperbolicConfig):
    """HVT; curvature -1."""

    dropout: float = 0.1
    """Dropout of attention weights, of residual steps and of the pooled features."""
    position_table: Literal["learned", "none"] = "learned"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k != 1:
            raise ValueError(f"HVTConfig: the ball has curvature -1, so k must be 1, got {self.k}")


class HVTEmbed(nn.Module):
    """exp_0(W patch) (+) b, then (+) the position's point scaled by one learned number."""

    roles: ClassVar[dict[str, Role]] = {"scale": NO_DECAY}

    def __init__(self, config: HVTConfig) -> None:
        super().__init__()
        c = config
        self.patch_size = c.patch_size
        self.proj = MobiusLinear(c.patch_size**2 * c.in_chans, c.dim, tangent=True)
        rows, learned = c.grid[0] * c.grid[1], c.position_table == "learned"
        bound = (6 / (rows + c.dim)) ** 0.5
        self.table = BallPoint(bound * (2 * torch.rand(rows, c.dim) - 1)) if learned else None
        self.scale = nn.Parameter(torch.ones(())) if learned else None

    def forward(self, images: Tensor) -> Tensor:
        return self.place(self.proj(full(patchify(images, self.patch_size))))

    @tensors_in_full_precision
    def place(self, x: Tensor) -> Tensor:
        """Add the positions."""
        if self.table is None or self.scale is None:
            return x
        return ball.mobius_add(x, ball.mobius_scale(full(self.scale), self.table()))


class HVTBlock(nn.Module):
    """Post-norm transformer block on points of the ball [B, N, dim]."""

    def __init__(self, config: HVTConfig, drop_path: float) -> None:
        super().__init__()
        c = config
        self.attention = TangentAttention(c.dim, c.heads, c.dropout)
        self.residual1 = MobiusResidual(drop_path, c.dropout)
        self.norm1 = TangentNorm(c.dim, c.norm_eps)
        self.mlp = nn.Sequential(MobiusLinear(c.dim, c.mlp_dim), TangentPReLU(), MobiusLinear(c.mlp_dim, c.dim))
        self.residual2 = MobiusResidual(drop_path, c.dropout)
        self.norm2 = TangentNorm(c.dim, c.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.residual1(x, self.attention(x)))
        return self.norm2(self.residual2(x, self.mlp(x)))


class HVT(StreamModel):
    """HVT (`HVTConfig`), with timm's surface."""

    config_class = HVTConfig
    first_layer = "embed.proj"
    largest_radius = 2 * math.atanh(ball.LARGEST)

    def __init__(self, config: HVTConfig) -> None:
        super().__init__(config)
        c = config
        self.config: HVTConfig
        self.embed = HVTEmbed(c)
        self.blocks = nn.ModuleList(HVTBlock(c, drop) for drop in c.drop_paths())
        self.norm = TangentNorm(c.dim, c.norm_eps)
        self.head = self._make_head(c.num_classes)

    def _make_head(self, num_classes: int) -> nn.Module:
        return nn.Linear(self.config.dim, num_classes) if num_classes else nn.Identity()

    @tensors_in_full_precision
    def pool(self, x: Tensor) -> Tensor:
        """The mean of the tokens in the tangent space at the origin, [B, dim]."""
        return ball.log0(x).mean(1)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = self.pool(x)
        if pre_logits or isinstance(self.head, nn.Identity):
            return 2 * pooled  # a tangent vector of the ball has twice its length in geodesic distance
        dropped = torch.dropout(pooled, self.config.dropout, self.training)
        return product(dropped, self.head.weight) + full(self.head.bias)  # type: ignore[arg-type]

    def as_points(self, x: Tensor) -> PolarPoint:
        return from_ball(x)


ENTRIES = tuple(
    Entry(
        f"hvt_{size}",
        HVT,
        HVTConfig(**{**SIZES[size], "mlp_dim": 4 * SIZES[size]["dim"]}),
        "Fein-Ashley et al., 2024, HVT",
        "formulas of hyperbolicvit/hyperbolicvit, Poincare ball",
    )
    for size in ("tiny", "base")
)
