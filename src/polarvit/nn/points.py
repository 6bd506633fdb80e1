"""A table of learned points: the hyperbolic `nn.Embedding`, for nodes of a graph, words, classes, prototypes."""

from __future__ import annotations

from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, from_tangent0, to_tangent0
from polarvit.kernels.pick import full
from polarvit.parameters import MANIFOLD, Role


class PolarEmbedding(nn.Module):
    """Learned points of hyperbolic space, looked up by index [...] -> `PolarPoint` [...], [..., dim]; without one, all.

    They start around the origin, normal with standard deviation `std` in each tangent coordinate, and are stored as
    v = r u [count, dim]: smooth at the origin, a plain tensor for `state_dict`. `RiemannianAdamW` with
    `param_groups(model, lr, decay, k=k)` moves them on the manifold of curvature -1/k; the table itself needs no k.
    """

    roles: ClassVar[dict[str, Role]] = {"v": MANIFOLD}

    def __init__(self, count: int, dim: int, *, std: float = 1e-2) -> None:
        super().__init__()
        if count < 1 or dim < 1:
            raise ValueError(
                f"PolarEmbedding: expected a table of at least one point and dimension, got {count}, {dim}"
            )
        if not std >= 0:
            raise ValueError(f"PolarEmbedding: std must be 0 or more, got {std}")
        self.v = nn.Parameter(std * torch.randn(count, dim) if std else torch.zeros(count, dim))

    @classmethod
    def starting_at(cls, points: PolarPoint) -> Self:
        """A table that starts at these points [count], in their dtype and on their device."""
        if points.direction.ndim != 2:
            raise ValueError(f"PolarEmbedding: expected points [count], got {list(points.shape)}")
        table = cls(*points.direction.shape, std=0.0)
        table.v = nn.Parameter(to_tangent0(points).detach().clone())
        return table

    def forward(self, index: Tensor | None = None) -> PolarPoint:
        v = self.v if index is None else F.embedding(index, self.v)
        return from_tangent0(full(v))

    def extra_repr(self) -> str:
        return f"{self.v.shape[0]}, {self.v.shape[1]}"
