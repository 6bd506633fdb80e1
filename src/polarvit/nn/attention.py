"""Attention by hyperbolic distance, aggregation by the polar centroid."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, centroid, concat, pairwise_distance, split_heads
from polarvit.kernels import polar_attention
from polarvit.nn.linear import PolarLinear
from polarvit.nn.position import NoShift, PositionalEncoding
from polarvit.nn.precision import full, in_full_precision
from polarvit.parameters import NO_DECAY, Role


class PolarAttention(nn.Module):
    """Multi-head attention on points: score -(gamma/tau_h) d^2(q_i, k_j), values joined by their centroid.

    Queries, keys, values and output are polar layers. Heads are slices of the space coordinates, each a point of its
    own; a learned log-gain per head scales the radius of q, k and v after the split, then the positional encoding
    moves q and k. gamma = (dim/heads)^-1/2, tau_h = e^log_temperature.

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
        time_init: Literal["zero", "full"] = "zero",
        implementation: Literal["auto", "triton", "reference"] = "auto",
    ) -> None:
        super().__init__()
        if heads < 1 or dim % heads:
            raise ValueError(f"PolarAttention: dim {dim} is not divisible by {heads} heads")
        if not 0 <= dropout < 1:
            raise ValueError(f"PolarAttention: dropout must be in [0, 1), got {dropout}")
        self.dim, self.heads, self.head_dim, self.dropout = dim, heads, dim // heads, dropout
        self.implementation = implementation
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
    ) -> PolarPoint:
        q, key, v = self.project(x, positions, extent, k=k)
        return self.out(self.merge(self.attend(q, key, v, k=k, mask=mask), k=k), k=k)  # type: ignore[no-any-return]

    def project(
        self, x: PolarPoint, positions: Tensor | None, extent: Tensor | None, *, k: float | Tensor
    ) -> tuple[PolarPoint, PolarPoint, PolarPoint]:
        """Query, key and value heads [B, H, N], gained and placed."""
        layers = (self.query, self.key, self.value)
        q, key, v = (self.to_heads(layer(x, k=k), index, k=k) for index, layer in enumerate(layers))
        if positions is not None and extent is not None:
            q, key = (self.position(p, positions, extent, k=k) for p in (q, key))
        elif not isinstance(self.position, NoShift):
            raise ValueError(f"PolarAttention: {type(self.position).__name__} needs positions and extent")
        return q, key, v

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
        scores = -self.scale()[:, None, None] * pairwise_distance(q, key, k=k).square()
        if mask is None:
            return torch.softmax(scores, -1)
        some = mask.any(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill((some & ~mask)[:, None, None, :], -torch.inf), -1)
        return torch.where(some[:, None, None, :], weights, torch.zeros_like(weights))

    @in_full_precision
    def merge(self, heads: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        """Join heads [B, H, N] by direct concatenation into [B, N]."""
        return concat(PolarPoint(heads.radius.transpose(1, 2), heads.direction.transpose(1, 2)), k=k)  # type: ignore[arg-type]

    def scale(self) -> Tensor:
        """gamma/tau_h [H]."""
        return self.head_dim**-0.5 * torch.exp(-full(self.log_temperature))

    def extra_repr(self) -> str:
        return f"{self.dim}, heads={self.heads}, dropout={self.dropout}"
