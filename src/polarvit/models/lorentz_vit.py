"""The split-head Lorentz ViT with class-token readout in ambient coordinates: the first row of the paper's ablation.

    images -> patches on the hyperboloid -> depth x [space norm, attention, space residual, space norm, MLP, residual]
           -> space norm -> class token -> Lorentz MLR

What the paper says of this row is its name; docs/systems.md states how it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.models.entry import SIZES, Entry
from polarvit.models.stream import HyperbolicConfig, StreamModel
from polarvit.nn.baselines.chen import LorentzLinear
from polarvit.nn.baselines.lorentz import LorentzMLR, SpaceLayerNorm, SpaceResidual, TangentPoint
from polarvit.nn.baselines.lorentz_attention import LorentzAttention
from polarvit.nn.embed import patchify
from polarvit.nn.position import sincos_table
from polarvit.nn.precision import full, tensors_in_full_precision
from polarvit.parameters import TABLE, Role


@dataclass(frozen=True, kw_only=True)
class LorentzViTConfig(HyperbolicConfig):
    """The ambient Lorentz ViT."""

    readout: Literal["class_token", "centroid"] = "class_token"
    final_norm: bool = True
    """A space norm before the readout."""
    cap: bool = False
    """The soft radius cap of Bdeir et al. (2025) after every residual."""
    temperature: float = 1.0
    """Initial temperature tau_h of attention."""


class LorentzEmbed(nn.Module):
    """Patches as space coordinates, Chen's layer, the position table added to the space part; a class token first."""

    roles: ClassVar[dict[str, Role]] = {"table": TABLE}

    def __init__(self, config: LorentzViTConfig) -> None:
        super().__init__()
        c = config
        self.patch_size, self.k = c.patch_size, c.k
        self.proj = LorentzLinear(c.patch_size**2 * c.in_chans, c.dim, k=c.k)
        self.table: Tensor | None
        if c.position_table == "learned":
            self.table = nn.Parameter(c.position_std * torch.randn(c.grid[0] * c.grid[1], c.dim))
        elif c.position_table == "sincos":
            self.register_buffer("table", sincos_table(c.grid, c.dim), persistent=False)
        else:
            self.table = None
        self.token = TangentPoint(torch.zeros(c.dim), c.k) if c.readout == "class_token" else None

    def forward(self, images: Tensor) -> Tensor:
        patches = ambient.from_space(full(patchify(images, self.patch_size)), k=self.k)
        return self.place(self.proj(patches))

    @tensors_in_full_precision
    def place(self, x: Tensor) -> Tensor:
        """Add the position table and put the class token first."""
        if self.table is not None:
            x = ambient.from_space(x[..., 1:] + full(self.table), k=self.k)
        return x if self.token is None else torch.cat([self.token().expand(x.shape[0], 1, -1), x], 1)


class LorentzBlock(nn.Module):
    """Pre-norm transformer block on ambient points [B, N, dim + 1]."""

    def __init__(self, config: LorentzViTConfig, drop_path: float) -> None:
        super().__init__()
        c = config
        self.norm1 = SpaceLayerNorm(c.dim, c.norm_eps, c.k)
        self.attention = LorentzAttention(c.dim, c.heads, c.dropout, c.temperature, c.k)
        self.residual1 = SpaceResidual(drop_path, c.cap, c.k)
        self.norm2 = SpaceLayerNorm(c.dim, c.norm_eps, c.k)
        self.mlp = nn.Sequential(LorentzLinear(c.dim, c.mlp_dim, "gelu", k=c.k), LorentzLinear(c.mlp_dim, c.dim, k=c.k))
        self.residual2 = SpaceResidual(drop_path, c.cap, c.k)

    def forward(self, x: Tensor) -> Tensor:
        x = self.residual1(x, self.attention(self.norm1(x)))
        return self.residual2(x, self.mlp(self.norm2(x)))


class LorentzViT(StreamModel):
    """Ambient Lorentz vision transformer (`LorentzViTConfig`), with timm's surface."""

    config_class = LorentzViTConfig
    calibrated: ClassVar[bool] = True
    first_layer = "embed.proj"

    def __init__(self, config: LorentzViTConfig) -> None:
        super().__init__(config)
        c = config
        self.config: LorentzViTConfig
        self.embed = LorentzEmbed(c)
        self.blocks = nn.ModuleList(LorentzBlock(c, drop) for drop in c.drop_paths())
        self.norm = SpaceLayerNorm(c.dim, c.norm_eps, c.k) if c.final_norm else None
        self.head = self._make_head(c.num_classes)

    def _make_head(self, num_classes: int) -> nn.Module:
        return LorentzMLR(self.config.dim, num_classes, self.config.k) if num_classes else nn.Identity()

    def pool(self, x: Tensor) -> Tensor:
        return x[:, 0] if self.config.readout == "class_token" else self.centroid(x)


ENTRIES = tuple(
    Entry(
        f"lorentz_vit_{size}",
        LorentzViT,
        LorentzViTConfig(**fields, position_table="sincos" if size == "small" else "learned"),
        "Bdeir & Landwehr, first row of the ablation; after Chen et al., 2022",
        "our reading of the paper, ambient arithmetic",
    )
    for size, fields in SIZES.items()
)
