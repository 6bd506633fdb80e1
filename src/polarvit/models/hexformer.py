"""HexFormer and HexFormer-Hybrid (Alyoussef et al., 2026), rebuilt from the formulas of their published code.

    images -> patches on the hyperboloid -> layer, class token, position table on the space part
           -> depth x [norm, attention, space residual, norm, MLP, space residual] -> norm -> class token -> head

The head is a Lorentz MLR (HexFormer) or a linear layer on the tangent space at the origin (Hybrid). Parameters are
those of the published models to the last one, counted in docs/systems.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.models.entry import SIZES, Entry
from polarvit.models.stream import HyperbolicConfig, StreamModel
from polarvit.nn.baselines.hexformer import HexAttention, HexLinear, HexNorm
from polarvit.nn.baselines.lorentz import LorentzMLR, SpaceResidual, TangentPoint, log0
from polarvit.nn.embed import patchify
from polarvit.nn.precision import full, tensors_in_full_precision
from polarvit.parameters import NO_DECAY, TABLE, Role


@dataclass(frozen=True, kw_only=True)
class HexFormerConfig(HyperbolicConfig):
    """HexFormer; its position table is drawn with standard deviation 1."""

    position_std: float = 1.0
    position_table: Literal["learned", "none"] = "learned"
    head: Literal["mlr", "linear"] = "mlr"
    """Lorentz MLR, or a linear layer on the tangent space at the origin (Hybrid)."""
    final_norm: Literal["tokens", "batch"] = "tokens"
    """Over the tokens of a sample, or over the class tokens of the batch as the published code has it."""
    clamped_keys: bool = False
    """The published defect: after every step of training the key weights are clamped to [0.05, 9]."""


class HexEmbed(nn.Module):
    """Patches through one layer, the class token first, the position table added to the space part of all."""

    roles: ClassVar[dict[str, Role]] = {"table": TABLE}

    def __init__(self, config: HexFormerConfig) -> None:
        super().__init__()
        c = config
        self.patch_size, self.k = c.patch_size, c.k
        self.proj = HexLinear(c.patch_size**2 * c.in_chans, c.dim, k=c.k)
        token = torch.randn(c.dim)
        self.token = TangentPoint(token / token.norm(), c.k)
        rows = c.grid[0] * c.grid[1] + 1
        learned = c.position_table == "learned"
        self.table = nn.Parameter(c.position_std * torch.randn(rows, c.dim)) if learned else None

    def forward(self, images: Tensor) -> Tensor:
        patches = ambient.from_space(full(patchify(images, self.patch_size)), k=self.k)
        return self.place(self.proj(patches))

    @tensors_in_full_precision
    def place(self, x: Tensor) -> Tensor:
        """Class token and positions."""
        x = torch.cat([self.token().expand(x.shape[0], 1, -1), x], 1)
        return x if self.table is None else ambient.from_space(x[..., 1:] + full(self.table), k=self.k)


class HexBlock(nn.Module):
    """Pre-norm transformer block on ambient points [B, N, dim + 1]."""

    def __init__(self, config: HexFormerConfig, drop_path: float) -> None:
        super().__init__()
        c = config
        self.norm1 = HexNorm(c.dim, c.norm_eps, c.k)
        self.attention = HexAttention(c.dim, c.heads, c.dropout, c.k)
        self.residual1 = SpaceResidual(drop_path, k=c.k)
        self.norm2 = HexNorm(c.dim, c.norm_eps, c.k)
        self.mlp = nn.Sequential(HexLinear(c.dim, c.mlp_dim, "gelu", c.k), HexLinear(c.mlp_dim, c.dim, k=c.k))
        self.residual2 = SpaceResidual(drop_path, k=c.k)

    def forward(self, x: Tensor) -> Tensor:
        x = self.residual1(x, self.attention(self.norm1(x)))
        return self.residual2(x, self.mlp(self.norm2(x)))


class TangentLinear(nn.Linear):
    """A linear layer on the tangent space at the origin, [..., n+1] -> [..., classes] (HexFormer-Hybrid)."""

    def __init__(self, in_features: int, num_classes: int, k: float = 1.0) -> None:
        super().__init__(in_features, num_classes)
        self.k = k
        nn.init.xavier_normal_(self.weight)
        nn.init.zeros_(self.bias)

    @tensors_in_full_precision
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(log0(x, k=self.k), full(self.weight), full(self.bias))


class HexFormer(StreamModel):
    """HexFormer (`HexFormerConfig`), with timm's surface."""

    config_class = HexFormerConfig
    first_layer = "embed.proj"
    roles: ClassVar[dict[str, Role]] = {"spaces": NO_DECAY}

    def __init__(self, config: HexFormerConfig) -> None:
        super().__init__(config)
        c = config
        self.config: HexFormerConfig
        self.embed = HexEmbed(c)
        self.blocks = nn.ModuleList(HexBlock(c, drop) for drop in c.drop_paths())
        whole = HexNorm(c.dim, c.norm_eps, c.k, by_itself=c.final_norm == "batch")
        self.norm = whole if c.final_norm == "tokens" else None
        self.readout_norm = whole if c.final_norm == "batch" else None
        self.head = self._make_head(c.num_classes)
        # What the published model counts beside its layers: k and an unused factor of each of its spaces, the encoder's
        # and the MLR's.
        count = 2 if c.head == "mlr" else 1
        self.spaces = nn.Parameter(torch.tensor([[c.k, 1.0]] * count), requires_grad=False)

    def _make_head(self, num_classes: int) -> nn.Module:
        if num_classes == 0:
            return nn.Identity()
        return (LorentzMLR if self.config.head == "mlr" else TangentLinear)(self.config.dim, num_classes, self.config.k)

    def after_step(self) -> None:
        """With the published defect, clamp the key projections as HexFormer's optimizer does."""
        if self.config.clamped_keys:
            for block in self.blocks:
                block.attention.clamp_keys()  # type: ignore[union-attr, operator]

    def pool(self, x: Tensor) -> Tensor:
        return x[:, 0] if self.readout_norm is None else self.readout_norm(x[:, 0])


def _entry(name: str, fields: dict[str, Any], origin: str) -> Entry:
    return Entry(name, HexFormer, HexFormerConfig(**fields), "Alyoussef et al., 2026, HexFormer", origin)


ENTRIES = tuple(
    entry
    for size in ("tiny", "base")
    for entry in (
        _entry(f"hexformer_{size}", SIZES[size], "formulas of HayaAlyoussef/HexFormer, ambient arithmetic"),
        _entry(
            f"hexformer_hybrid_{size}",
            {**SIZES[size], "head": "linear"},
            "formulas of HayaAlyoussef/HexFormer, ambient arithmetic",
        ),
    )
)
