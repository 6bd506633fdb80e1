"""Attention by hyperbolic distance, aggregation by the polar centroid."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, centroid, split_heads
from polarvit.geometry.scaled import rescale, restore
from polarvit.kernels import polar_attention
from polarvit.kernels.attention.reference import attention_weights
from polarvit.kernels.heads import merge_heads, project_heads
from polarvit.nn.linear import Begun, PolarLinear, joined
from polarvit.nn.position import HoroShift, NoShift, PositionalEncoding
from polarvit.nn.precision import full, halved, in_full_precision, product_features_first
from polarvit.parameters import NO_DECAY, Role


class PolarAttention(nn.Module):
    """Multi-head attention on points: score -(gamma/tau_h) d^2(q_i, k_j), values joined by their centroid.

    Queries, keys, values and output are polar layers. Heads are slices of the space coordinates, each a point of its
    own; a learned log-gain per head scales the radius of q, k and v after the split, then the positional encoding
    moves q and k (or first the encoding, if `gain` is "after_shift"). gamma = (dim/heads)^-1/2, tau_h =
    e^log_temperature.

    Shapes: x [B, N] -> [B, N], points of dimension `dim`; `mask` [B, N] bool, True = attend. A row with nothing to
    attend to gives the output layer's image of the origin.
    """

    roles: ClassVar[dict[str, Role]] = {"log_gain": NO_DECAY, "log_temperature": NO_DECAY}

    def __init__(
        self,
        dim: int,
        heads: int,
        position: PositionalEncoding | None = None,
        dropout: float = 0.0,
        temperature: float = 1.0,
        rule: str = "anchored",
        time_init: Literal["zero", "full"] = "full",
        implementation: Literal["auto", "triton", "reference"] = "auto",
        gain: Literal["before_shift", "after_shift"] = "before_shift",
    ) -> None:
        super().__init__()
        if gain not in ("before_shift", "after_shift"):
            raise ValueError(f"PolarAttention: gain must be before_shift or after_shift, got {gain!r}")
        if heads < 1 or dim % heads:
            raise ValueError(f"PolarAttention: dim {dim} is not divisible by {heads} heads")
        if not 0 <= dropout < 1:
            raise ValueError(f"PolarAttention: dropout must be in [0, 1), got {dropout}")
        self.dim, self.heads, self.head_dim, self.dropout = dim, heads, dim // heads, dropout
        self.implementation, self.gain = implementation, gain
        self.one_by_one = False  # calibration sets it: it must meet every layer on its own
        self.query, self.key, self.value, self.out = (
            PolarLinear(dim, dim, rule=rule, init="orthogonal", time_init=time_init) for _ in range(4)
        )
        self.position = position if position is not None else NoShift(heads, self.head_dim)
        self.log_gain = nn.Parameter(torch.zeros(3, heads))
        self.log_temperature = nn.Parameter(torch.full((heads,), math.log(temperature)))

    def forward(
        self,
        x: PolarPoint,
        positions: Tensor | None = None,
        extent: Tensor | None = None,
        *,
        k: float | Tensor = 1.0,
        mask: Tensor | None = None,
        begin: bool = False,
    ) -> PolarPoint | Begun:
        """The point; with `begin` the output layer is left `Begun`."""
        if x.dim != self.dim:
            raise ValueError(f"PolarAttention: expected points of dimension {self.dim}, got {x.dim}")
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape):
            expected, got = f"{torch.bool} {list(x.shape)}", f"{mask.dtype} {list(mask.shape)}"
            raise ValueError(f"PolarAttention: mask must be {expected}, got {got}")
        q, key, v = self.project(x, positions, extent, k=k)
        return self.out(self.merge(self.attend(q, key, v, k=k, mask=mask), k=k, half=halved(x)), k=k, begin=begin)

    def project(
        self, x: PolarPoint, positions: Tensor | None, extent: Tensor | None, *, k: float | Tensor
    ) -> tuple[PolarPoint, PolarPoint, PolarPoint]:
        """Query, key and value heads [B, H, N], gained and placed."""
        placed = positions is not None and extent is not None
        if not placed and not isinstance(self.position, NoShift):
            raise ValueError(f"PolarAttention: {type(self.position).__name__} needs positions and extent")
        layers = (self.query, self.key, self.value)
        if self.together():
            weight = joined([layer.weight for layer in layers], [layer.rule.phi for layer in layers])
            return self.project_together(x, product_features_first(x.direction, weight), positions, extent, k=k)
        q, key, v = (self.to_heads(layer(x, k=k), index, k=k) for index, layer in enumerate(layers))
        if placed:
            q, key = (self.place(p, index, positions, extent, k=k) for index, p in enumerate((q, key)))
        return q, key, v

    def place(
        self, heads: PolarPoint, index: int, positions: Tensor | None, extent: Tensor | None, *, k: float | Tensor
    ) -> PolarPoint:
        """Move gained heads to their positions, before the gain if it acts after the shift."""
        if self.gain == "before_shift":
            return self.position(heads, positions, extent, k=k)
        gain = torch.exp(full(self.log_gain)[index])[:, None]
        moved = self.position(PolarPoint(heads.radius / gain, heads.direction), positions, extent, k=k)
        return PolarPoint(moved.radius * gain, moved.direction)

    def together(self) -> bool:
        """Whether one product and one kernel make queries, keys and values at once."""
        rules = all(layer.rule.affine and not layer.rule.bounded for layer in (self.query, self.key, self.value))
        plane = isinstance(self.position, NoShift) or (
            isinstance(self.position, HoroShift) and self.position.grid_axes == 2
        )
        gained = isinstance(self.position, NoShift) or self.gain == "before_shift"
        return rules and plane and gained and not self.one_by_one

    @in_full_precision
    def project_together(
        self, x: PolarPoint, y: Tensor, positions: Tensor | None, extent: Tensor | None, *, k: float | Tensor = 1.0
    ) -> tuple[PolarPoint, PolarPoint, PolarPoint]:
        """Everything between the joint product `y` and the attention core."""
        layers = (self.query, self.key, self.value)
        encoding = self.position if isinstance(self.position, HoroShift) else None
        q, key, v = project_heads(
            y,
            rescale(x.radius, k),
            torch.stack([full(layer.time_weight) for layer in layers]),
            torch.stack([torch.stack(layer.rule.scalars()) for layer in layers]),
            full(self.log_gain),
            None if encoding is None else full(encoding.rate),
            None if positions is None or extent is None else positions / extent,
            "none" if encoding is None else encoding.mode,
        )
        return tuple(PolarPoint(restore(p.radius, k), p.direction) for p in (q, key, v))  # type: ignore[return-value]

    @in_full_precision
    def to_heads(self, x: PolarPoint, index: int, *, k: float | Tensor = 1.0) -> PolarPoint:
        """Split [B, N] into heads [B, H, N] and scale their radii by the gain."""
        heads = split_heads(x, self.heads, k=k)
        radius = heads.radius * torch.exp(full(self.log_gain)[index])
        return PolarPoint(radius.transpose(1, 2), heads.direction.transpose(1, 2))

    @in_full_precision
    def attend(
        self, q: PolarPoint, key: PolarPoint, v: PolarPoint, *, k: float | Tensor = 1.0, mask: Tensor | None = None
    ) -> PolarPoint:
        """The attention core: [B, H, N] -> [B, H, N]."""
        if self.dropout and self.training:
            weights = torch.dropout(self.weights(q, key, k=k, mask=mask), self.dropout, train=True)
            return centroid(v, weights, k=k)
        return polar_attention(q, key, v, self.scale(), k=k, mask=mask, implementation=self.implementation)

    @in_full_precision
    def weights(self, q: PolarPoint, key: PolarPoint, *, k: float | Tensor = 1.0, mask: Tensor | None = None) -> Tensor:
        """Attention weights [B, H, N, N]; rows with nothing to attend to are zero."""
        return attention_weights(q, key, self.scale(), k=k, mask=mask)

    @in_full_precision
    def merge(self, heads: PolarPoint, *, k: float | Tensor = 1.0, half: bool = False) -> PolarPoint:
        """Join heads [B, H, N] by direct concatenation into [B, N]."""
        merged = merge_heads(PolarPoint(rescale(heads.radius, k), heads.direction), half=half)
        return PolarPoint(restore(merged.radius, k), merged.direction)

    def scale(self) -> Tensor:
        """gamma/tau_h [H]."""
        return self.head_dim**-0.5 * torch.exp(-full(self.log_temperature))

    def extra_repr(self) -> str:
        return f"{self.dim}, heads={self.heads}, dropout={self.dropout}"
