"""Lorentz direct concatenation and its inverse: space parts are joined, the time follows.

    sinh^2 a = sum_i sinh^2 a_i    and    sinh a_i = sinh a |u_i-th slice|

with the largest e^a taken out, so that no square of a sinh is ever formed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polarvit.geometry.directions import scaled_polar
from polarvit.geometry.door import geometric, need_broadcast, need_point, need_whole
from polarvit.geometry.points import PolarPoint
from polarvit.geometry.scaled import rescale, restore, sh


@geometric
def concat(points: Sequence[PolarPoint], *, k: float | Tensor = 1.0) -> PolarPoint:
    """Direct concatenation of points of dimensions n_1, n_2, ... into one of dimension n_1 + n_2 + ... .

    A single `PolarPoint` [..., H] of dimension d is joined over its last batch axis into [...] of dimension H d,
    as attention heads are.
    """
    if isinstance(points, PolarPoint):
        if points.radius.ndim == 0:
            raise ValueError("concat: points must be a sequence or a PolarPoint [..., H], got a single point []")
        radius, parts = points.radius, points.direction.unbind(-2)
    else:
        if not isinstance(points, list | tuple) or not points:
            raise ValueError(f"concat: points must be a non-empty sequence of PolarPoints, got {points!r}")
        for index, point in enumerate(points):
            need_point("concat", f"points[{index}]", point)
            need_broadcast("concat", points[0].shape, point.shape, ("points[0]", f"points[{index}]"))
        batch = torch.broadcast_shapes(*(point.shape for point in points))
        radius = torch.stack([point.radius.expand(batch) for point in points], -1)
        parts = tuple(point.direction.expand(*batch, point.dim) for point in points)
    # Radii are subtracted before they are divided by sqrt(k): the ratio of two sizes then keeps every digit.
    largest = radius.detach().amax(-1)
    size = sh(rescale(radius, k)) * torch.exp(rescale(radius - largest.unsqueeze(-1), k))
    space = torch.cat([part * size[..., index, None] for index, part in enumerate(parts)], -1)
    a, direction = scaled_polar(space, rescale(largest, k))
    return PolarPoint(restore(a, k), direction)


@geometric
def split(p: PolarPoint, sections: int | Sequence[int], *, k: float | Tensor = 1.0) -> tuple[PolarPoint, ...]:
    """Undo `concat`: cut the space part into `sections` equal slices (an int) or slices of the given sizes."""
    need_point("split", "p", p)
    if isinstance(sections, list | tuple):
        sizes = [need_whole("split", f"sections[{index}]", size) for index, size in enumerate(sections)]
        if sum(sizes) != p.dim:
            raise ValueError(f"split: sections must sum to the dimension {p.dim}, got {sizes}")
    else:
        count = need_whole("split", "sections", sections)
        if p.dim % count:
            raise ValueError(f"split: dimension {p.dim} is not divisible into sections = {count}")
        sizes = [p.dim // count] * count
    a = rescale(p.radius, k)
    return tuple(_slice(a, part, k) for part in p.direction.split(sizes, -1))


@geometric
def split_heads(p: PolarPoint, heads: int, *, k: float | Tensor = 1.0) -> PolarPoint:
    """`split` into equal slices kept in one tensor: [...] of dimension H d to [..., H] of dimension d."""
    need_point("split_heads", "p", p)
    if p.dim % need_whole("split_heads", "heads", heads):
        raise ValueError(f"split_heads: dimension {p.dim} is not divisible by heads = {heads}")
    parts = p.direction.reshape(*p.shape, heads, p.dim // heads)
    return _slice(rescale(p.radius, k).unsqueeze(-1), parts, k)


def _slice(a: Tensor, part: Tensor, k: float | Tensor) -> PolarPoint:
    radius, direction = scaled_polar(sh(a).unsqueeze(-1) * part, a)
    return PolarPoint(restore(radius, k), direction)
