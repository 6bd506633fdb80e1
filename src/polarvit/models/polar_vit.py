"""Polar-ViT: a vision transformer whose every embedding is a radius and a direction.

    images -> patches on the manifold -> depth x [norm, attention, residual, norm, MLP, residual]
           -> norm -> centroid -> MLR

B images, N tokens, points of dimension dim throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from polarvit.geometry import PolarPoint, to_tangent0
from polarvit.models.base import VisionModel
from polarvit.models.config import PolarViTConfig
from polarvit.models.entry import SIZES, Entry
from polarvit.nn import (
    BoostResidual,
    CentroidPool,
    ClassTokenPool,
    GyroLayerNorm,
    PolarAttention,
    PolarMLP,
    PolarMLR,
    PolarPatchEmbed,
    grid_positions,
    positional_encoding,
    residual,
)
from polarvit.nn.embed import check_dtype, resize_table
from polarvit.nn.precision import full, product
from polarvit.parameters import CURVATURE, Role


class PolarBlock(nn.Module):
    """Pre-norm transformer block on points [B, N].

    While training, attention and MLP leave their last layer `Begun` and the residual finishes it: one kernel, and hooks
    on these modules see that instead of a point. In evaluation they see points.
    """

    def __init__(self, config: PolarViTConfig, drop_path: float) -> None:
        super().__init__()
        c = config
        encoding = positional_encoding(c.position, c.heads, c.dim // c.heads, rate=c.rate)
        encoding.spread(c.rate_spread)
        self.norm1 = GyroLayerNorm(c.dim, c.norm_eps, c.k, before_product=True)
        self.attention = PolarAttention(
            c.dim, c.heads, encoding, c.dropout, c.temperature, c.rule, c.time_init, c.implementation, c.head_gain
        )
        self.residual1 = residual(c.residual, c.alpha, drop_path)
        self.norm2 = GyroLayerNorm(c.dim, c.norm_eps, c.k, before_product=True)
        self.mlp = PolarMLP(c.dim, c.mlp_dim, rule=c.rule, time_init=c.time_init)
        self.residual2 = residual(c.residual, c.alpha, drop_path)

    def forward(self, x: PolarPoint, positions: Tensor, extent: Tensor, k: float | Tensor = 1.0) -> PolarPoint:
        attended = self.attention(self.norm1(x, k=k), positions, extent, k=k, begin=self._begins(self.residual1))
        x = self.residual1(x, attended, k=k)
        return self.residual2(x, self.mlp(self.norm2(x, k=k), k=k, begin=self._begins(self.residual2)), k=k)

    def _begins(self, residual: nn.Module) -> bool:
        """Whether a step is left to the residual to finish: while training, if it can."""
        return self.training and isinstance(residual, BoostResidual)


class PolarViT(VisionModel):
    """Vision transformer in polar coordinates (`PolarViTConfig`), with timm's surface."""

    config_class = PolarViTConfig
    first_layer = "embed.proj"
    hyperbolic: ClassVar[bool] = True
    calibrated: ClassVar[bool] = True
    roles: ClassVar[dict[str, Role]] = {"log_k": CURVATURE}

    def __init__(self, config: PolarViTConfig) -> None:
        super().__init__(config)
        c = config
        self.config: PolarViTConfig
        token = c.readout == "class_token"
        self.log_k = nn.Parameter(torch.tensor(math.log(c.k))) if c.learn_k else None
        self.embed = PolarPatchEmbed(
            c.image, c.patch_size, c.in_chans, c.dim, c.position_table, c.position_std, token, c.rule, c.time_init
        )
        positions, extent = grid_positions(c.grid, token, c.token_position)
        self.register_buffer("positions", positions, persistent=False)
        self.register_buffer("extent", extent, persistent=False)
        self.positions: Tensor
        self.extent: Tensor
        self.blocks = nn.ModuleList(PolarBlock(c, drop) for drop in c.drop_paths())
        self.norm = GyroLayerNorm(c.dim, c.norm_eps, c.k) if c.final_norm else None
        self.pool = ClassTokenPool() if token else CentroidPool()
        self.head = self._make_head(c.num_classes)

    def _make_head(self, num_classes: int) -> nn.Module:
        if num_classes == 0:
            return nn.Identity()
        if self.config.head == "mlr":
            return PolarMLR(self.config.dim, num_classes)
        return nn.Linear(self.config.dim, num_classes)

    @property
    def k(self) -> float | Tensor:
        """Curvature is -1/k: the config's number, or the learned one."""
        return self.config.k if self.log_k is None else self.log_k.exp()

    def tokens(self, images: Tensor) -> Iterator[PolarPoint]:
        """The stream after the embedding and after every block, [B, N] each."""
        check_dtype(self, images)
        k = self.k
        x = self.run_end(self.embed, images, k=k)
        yield x
        for block in self.blocks:
            if self.grad_checkpointing and self.training:
                x = checkpoint(self.run, block, x, self.positions, self.extent, k, use_reentrant=False)
            else:
                x = self.run(block, x, self.positions, self.extent, k)
            yield x

    def forward_features(self, images: Tensor) -> PolarPoint:
        """Tokens [B, N] after the final norm."""
        x = None
        for x in self.tokens(images):  # noqa: B007 - the last one
            pass
        return self._normed(x)

    def forward_head(self, x: PolarPoint, pre_logits: bool = False) -> Tensor:
        """Logits [B, classes]; with `pre_logits` the pooled point in the tangent space at the origin [B, dim]."""
        pooled = self.run_end(self.pool, x, k=self.k)
        if pre_logits or isinstance(self.head, nn.Identity):
            return to_tangent0(pooled)
        if isinstance(self.head, PolarMLR):
            return self.run_end(self.head, pooled, k=self.k)
        return product(to_tangent0(pooled), self.head.weight) + full(self.head.bias)  # type: ignore[arg-type]

    def as_points(self, x: PolarPoint) -> PolarPoint:
        return x

    def no_weight_decay(self) -> set[str]:
        """Names for timm's optimizers; ours reads roles (`polarvit.parameters`)."""
        return self._names_without_decay()

    def resize_positions(self, state: dict[str, Tensor], grid: tuple[int, int]) -> None:
        """Fit the position table in `state` (made for `grid`) to this model's grid, in place."""
        if "embed.table" in state:
            state["embed.table"] = resize_table(state["embed.table"], grid, self.config.grid)


ENTRIES = tuple(
    Entry(
        f"polar_vit_{size}",
        PolarViT,
        PolarViTConfig(**fields, position_table="sincos" if size == "small" else "learned"),
        "Bdeir & Landwehr, Polar-ViT",
        "the paper, polar arithmetic",
    )
    for size, fields in SIZES.items()
)
