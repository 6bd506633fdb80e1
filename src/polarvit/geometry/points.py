"""Points and tangent vectors of hyperbolic space in polar coordinates.

The Lorentz model of curvature -1/k is the sheet `<x, x> = -k, x_0 > 0` of a hyperboloid in R^(n+1). A point is

    x = sqrt(k) (cosh a, sinh a u),    a = r / sqrt(k),

with r its distance from the origin `o = (sqrt(k), 0, ..., 0)` and u a unit vector of R^n. Both ambient
coordinates grow as e^a / 2 and lose everything that makes two far points different; r and u are known to full
relative precision at every radius. So we keep (r, u).

A tangent vector at x is written in the polar frame: its component along the outward geodesic from the origin, and
the perpendicular rest, a vector of R^n orthogonal to u.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor


class PolarPoint(NamedTuple):
    """Points of hyperbolic space: `radius` [...] and unit `direction` [..., n].

    A tuple of two tensors, hence a pytree: it passes through `torch.compile`, `vmap`, `export` and `DataParallel`
    as it is. Indexing is the tuple's (`p[0]` is the radius), so say `p.radius`. Sums and multiples, which would join
    or repeat tuples, are refused.

    >>> p = PolarPoint(torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> p.shape, p.dim
    (torch.Size([2]), 2)
    """

    radius: Tensor
    direction: Tensor

    @property
    def shape(self) -> torch.Size:
        """Batch shape: that of the radius."""
        return self.radius.shape

    @property
    def dim(self) -> int:
        """Dimension n of the space the points live in."""
        return self.direction.shape[-1]

    def map(self, fn: Callable[[Tensor], Tensor]) -> PolarPoint:
        """Apply `fn` to both tensors: `p.map(torch.detach)`, `p.map(lambda x: x.to(device))`."""
        return PolarPoint(fn(self.radius), fn(self.direction))

    def reshape(self, *shape: int) -> PolarPoint:
        """Reshape the batch: radius to `shape`, direction to `[*shape, n]`."""
        return PolarPoint(self.radius.reshape(shape), self.direction.reshape(*shape, self.dim))


class PolarTangent(NamedTuple):
    """Tangent vectors in the polar frame of their base point: `radial` [...] and `perpendicular` [..., n].

    The frame is orthonormal, so the Lorentzian inner product is a plain sum of products and nothing cancels.
    At radius 0 the frame is that of the stored direction. As of points, + and * of the tuple are refused.
    """

    radial: Tensor
    perpendicular: Tensor

    @property
    def shape(self) -> torch.Size:
        """Batch shape: that of the radial component."""
        return self.radial.shape

    def map(self, fn: Callable[[Tensor], Tensor]) -> PolarTangent:
        """Apply `fn` to both tensors: `v.map(lambda x: 0.1 * x)`."""
        return PolarTangent(fn(self.radial), fn(self.perpendicular))


def _refuse(kind: type, why: str) -> None:
    """Tuples of this kind have no + and no *, which would join or repeat them."""

    def refused(self: object, other: object) -> NoReturn:
        raise TypeError(f"{kind.__name__}: {why}")

    for name in ("__add__", "__radd__", "__mul__", "__rmul__"):
        setattr(kind, name, refused)


_refuse(
    PolarPoint,
    "points have no + and no *: gyroadd(p, q) and gyroscale(p, t) are those of the gyrovector space, exp_map(p, v) "
    "goes along a tangent vector, centroid(p) averages; functions of geometry.ambient take to_ambient(p)",
)
_refuse(
    PolarTangent,
    "a tuple has no + and no *: v.map(lambda x: t * x) scales, and vectors v, w at one point add up to "
    "PolarTangent(v.radial + w.radial, v.perpendicular + w.perpendicular)",
)
