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
            raise ValueError("concat: a single point has no axis to join; pass a sequence or a point [..., H]")
        scale, space = _scaled_space(rescale(points.radius, k), points.direction)
        return _from_scaled(space.flatten(-2), scale, k)
    if not isinstance(points, list | tuple) or not points:
        raise ValueError(f"concat: points must be a non-empty sequence of PolarPoints, got {type(points).__name__}")
    for index, point in enumerate(points):
        need_point("concat", f"points[{index}]", point)
        need_broadcast("concat", points[0].shape, point.shape, ("points[0]", f"points[{index}]"))
    batch = torch.broadcast_shapes(*(point.shape for point in points))
    a = torch.stack([rescale(point.radius, k).expand(batch) for point in points], -1)
    scale = a.detach().amax(-1)
    sizes = sh(a) * torch.exp(a - scale.unsqueeze(-1))
    parts = [sizes[..., index, None] * point.direction.expand(*batch, point.dim) for index, point in enumerate(points)]
    return _from_scaled(torch.cat(parts, -1), scale, k)


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


def _scaled_space(a: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """(m, sinh(a_i) e^-m u_i) with m the largest radius along the last batch axis; m carries no gradient."""
    scale = a.detach().amax(-1)
    return scale, (sh(a) * torch.exp(a - scale.unsqueeze(-1))).unsqueeze(-1) * u


def _from_scaled(space: Tensor, scale: Tensor, k: float | Tensor) -> PolarPoint:
    radius, direction = scaled_polar(space, scale)
    return PolarPoint(restore(radius, k), direction)
