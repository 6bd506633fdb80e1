"""Points to measure on, made in float64, and what an error is compared with.

Every method starts from the same true points and stores them in its own coordinates in the narrow type, so an
error is that of storing and computing together: what a user gets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from polarvit.geometry import PolarPoint, PolarTangent, exp_map, from_tangent0, gyroadd, to_ambient

DIM = 16
"""Dimension of the space: that of one attention head. The paper does not state its own."""

SIZE = 64
"""Points in a cluster, as in the paper."""


def clusters(radius: float, count: int, seed: int) -> PolarPoint:
    """Clusters of 64 points [count, 64] with geodesic spread 1 (root mean square) around centres at `radius`."""
    generator = torch.Generator().manual_seed(seed)
    centre = PolarPoint(torch.full((count, 1), radius, dtype=torch.float64), directions((count, 1), generator))
    offsets = torch.randn(count, SIZE, DIM, dtype=torch.float64, generator=generator) / math.sqrt(DIM)
    return gyroadd(centre, from_tangent0(offsets))


def unit_pairs(radius: float, count: int, seed: int) -> tuple[PolarPoint, PolarPoint]:
    """Pairs [count] at distance exactly 1 in random directions from points within 0.05 of `radius`.

    The radii differ a little because equal ones would all round their time coordinate alike.
    """
    generator = torch.Generator().manual_seed(seed)
    jitter = 0.1 * torch.rand(count, dtype=torch.float64, generator=generator) - 0.05
    first = PolarPoint(radius + jitter, directions((count,), generator))
    step = directions((count,), generator)
    along = (step * first.direction).sum(-1)
    xi = PolarTangent(along, step - along.unsqueeze(-1) * first.direction)
    length = torch.sqrt(xi.radial.square() + xi.perpendicular.square().sum(-1))
    return first, exp_map(first, PolarTangent(xi.radial / length, xi.perpendicular / length.unsqueeze(-1)))


def directions(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Uniform unit vectors [*shape, DIM]."""
    x = torch.randn(*shape, DIM, dtype=torch.float64, generator=generator)
    return x / x.norm(dim=-1, keepdim=True)


def axis_and_directions(count: int, seed: int) -> Tensor:
    """The first axis, then `count` random unit vectors, [count + 1, n]."""
    axis = torch.zeros(1, DIM, dtype=torch.float64)
    axis[0, 0] = 1.0
    return torch.cat([axis, directions((count,), torch.Generator().manual_seed(seed))])


def stored(points: PolarPoint, dtype: torch.dtype = torch.float32) -> PolarPoint:
    """The points in polar coordinates, rounded to `dtype`."""
    return points.map(lambda x: x.to(dtype))


def stored_ambient(points: PolarPoint, dtype: torch.dtype = torch.float32) -> Tensor:
    """The points in ambient coordinates [..., n+1], every coordinate correctly rounded: the best ambient can do."""
    return to_ambient(points).to(dtype)


def resolution_limit(radius: float, dtype: torch.dtype = torch.float32, k: float = 1.0) -> float:
    """eps (r + sqrt k) + sqrt k sinh(a) eps: how far a stored point may be from the one that was meant."""
    eps, root = torch.finfo(dtype).eps / 2, math.sqrt(k)
    return eps * (radius + root) + root * math.sinh(radius / root) * eps


@dataclass(frozen=True)
class Spread:
    """Errors of many trials: median and worst of all (a NaN counts as infinite), and the share that is not finite."""

    median: float
    worst: float
    not_finite: float

    @classmethod
    def of(cls, errors: Tensor) -> Spread:
        flat = errors.detach().double().flatten()
        lost = ~torch.isfinite(flat)
        ordered = torch.where(lost, torch.inf, flat).sort().values
        return cls(ordered[(len(ordered) - 1) // 2].item(), ordered[-1].item(), lost.double().mean().item())

    def record(self) -> dict[str, float]:
        return {"median": self.median, "worst": self.worst, "not_finite": self.not_finite}
