"""LViT (He et al., 2025), rebuilt from the formulas of HyperCore.

    images -> pixels on the hyperboloid, Lorentz convolution of patches -> + learned points of positions
           -> depth x [x = norm(x); x = sum(x, attention(x)); x = sum(x, MLP(norm(x)))] -> centroid -> Lorentz MLR

`dim` counts the space coordinates of the heads; with their times the stream has n = dim + heads - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.models.entry import SIZES, Entry
from polarvit.models.stream import HyperbolicConfig, StreamModel
from polarvit.nn.baselines.chen import LorentzLinear
from polarvit.nn.baselines.lorentz import LorentzMLR, SpaceLayerNorm, TangentPoint
from polarvit.nn.baselines.lvit import LorentzSum, LViTAttention, draw_evenly
from polarvit.nn.embed import patchify
from polarvit.nn.precision import full, tensors_in_full_precision


@dataclass(frozen=True, kw_only=True)
class LViTConfig(HyperbolicConfig):
    """LViT."""

    drop_path: float = 0.0
    """None, as published: a dropped step moves a token further than another image does (docs/systems.md)."""
    dropout: float = 0.1
    """Dropout of the space coordinates that the MLP gives."""
    position_table: Literal["learned", "none"] = "learned"
    residual_scale: float = 27.5
    """Fixed factor of the space coordinates after every residual."""

    @property
    def width(self) -> int:
        """Dimension of the stream's points."""
        return self.dim + self.heads - 1


class LViTEmbed(nn.Module):
    """A Lorentz convolution with kernel = stride = patch, and a learned point for every position joined by LResNet.

    The convolution concatenates the pixels' points directly, which is the point with the whole patch as space part. Its
    weights and biases are drawn from U(-sqrt(2/m), sqrt(2/m)) for a patch of m numbers.
    """

    def __init__(self, config: LViTConfig) -> None:
        super().__init__()
        c = config
        self.patch_size, self.k = c.patch_size, c.k
        numbers = c.patch_size**2 * c.in_chans
        self.proj = LorentzLinear(numbers, c.width, k=c.k, bias=True)
        draw_evenly(self.proj, math.sqrt(2 / numbers))
        start = torch.randn(c.grid[0] * c.grid[1], c.width)
        learned = c.position_table == "learned"
        self.table = TangentPoint(start / start.norm(dim=-1, keepdim=True), c.k) if learned else None
        self.add = LorentzSum(1.0, k=c.k) if learned else None

    def forward(self, images: Tensor) -> Tensor:
        x = self.proj(ambient.from_space(full(patchify(images, self.patch_size)), k=self.k))
        return x if self.table is None or self.add is None else self.add(x, self.table().expand_as(x))


class LViTBlock(nn.Module):
    """LViT's block: the first norm overwrites the stream, as published. The MLP is drawn Xavier uniform, gain 2^1/2."""

    def __init__(self, config: LViTConfig, drop_path: float) -> None:
        super().__init__()
        c = config
        self.k, self.dropout = c.k, c.dropout
        self.norm1 = SpaceLayerNorm(c.width, c.norm_eps, c.k)
        self.attention = LViTAttention(c.heads, c.dim // c.heads, c.k)
        self.residual1 = LorentzSum(c.residual_scale, drop_path, c.k)
        self.norm2 = SpaceLayerNorm(c.width, c.norm_eps, c.k)
        layers = (
            LorentzLinear(c.width, c.mlp_dim, "gelu", k=c.k, bias=True),
            LorentzLinear(c.mlp_dim, c.width, k=c.k, bias=True),
        )
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(2))
        self.mlp = nn.Sequential(*layers)
        self.residual2 = LorentzSum(c.residual_scale, drop_path, c.k)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x)
        x = self.residual1(x, self.attention(x))
        return self.residual2(x, self.drop(self.mlp(self.norm2(x))))

    @tensors_in_full_precision
    def drop(self, x: Tensor) -> Tensor:
        """Dropout of space coordinates, time recomputed."""
        if not self.training or self.dropout == 0:
            return x
        return ambient.from_space(torch.dropout(x[..., 1:], self.dropout, True), k=self.k)


class LViT(StreamModel):
    """LViT (`LViTConfig`), with timm's surface."""

    config_class = LViTConfig
    first_layer = "embed.proj"

    def __init__(self, config: LViTConfig) -> None:
        super().__init__(config)
        c = config
        self.config: LViTConfig
        self.embed = LViTEmbed(c)
        self.blocks = nn.ModuleList(LViTBlock(c, drop) for drop in c.drop_paths())
        self.norm = None
        self.head = self._make_head(c.num_classes)

    @property
    def num_features(self) -> int:
        """Width of the pooled features."""
        return self.config.width

    def _make_head(self, num_classes: int) -> nn.Module:
        return LorentzMLR(self.config.width, num_classes, self.config.k, uniform=True) if num_classes else nn.Identity()

    def pool(self, x: Tensor) -> Tensor:
        return self.centroid(x)


ENTRIES = tuple(
    Entry(
        f"lvit_{size}",
        LViT,
        LViTConfig(**{**SIZES[size], "mlp_dim": mlp}),
        "He et al., 2025, HyperCore (LViT)",
        "formulas of Graph-and-Geometric-Learning/HyperCore, ambient arithmetic",
    )
    for size, mlp in (("tiny", 384), ("base", 3120))
)
