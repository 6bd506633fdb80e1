"""Bilinear upsampling: each new point is the Lorentz centroid of its four neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint
from polarvit.geometry.scaled import rescale, restore
from polarvit.kernels.images.scale import scaled_sinh
from polarvit.kernels.images.sums import Sums, merged
from polarvit.nn.conv.space import excess
from polarvit.nn.precision import in_full_precision


class PolarUpsample2d(nn.Module):
    """Twice the resolution: images of points [B, H, W] -> [B, 2H, 2W].

    The weights are those of bilinear interpolation between pixel centres (3/4 and 1/4 along each axis), the blend is
    the Lorentz centroid. The sums of two neighbouring rows are merged, then those of two columns: blocks of a centroid
    merge like variances, by the difference of their mean directions (`polarvit.geometry.centroid`).
    """

    @in_full_precision
    def forward(self, x: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        a = rescale(x.radius, k)
        t = excess(a)
        sums = Sums(scaled_sinh(a, t), x.direction, torch.zeros_like(a), -a)
        for axis in (1, 2):
            near, far = (Sums(*(neighbour(y, axis) for y in sums)) for neighbour in (doubled, beside))
            sums = merged(near, far, 0.25)
        radius, direction = sums.point(t)
        return PolarPoint(restore(radius, k), direction)


def doubled(x: Tensor, axis: int) -> Tensor:
    """Every entry twice along an axis: the nearer neighbour of each new pixel."""
    return x.unsqueeze(axis + 1).expand(*x.shape[: axis + 1], 2, *x.shape[axis + 1 :]).flatten(axis, axis + 1)


def beside(x: Tensor, axis: int) -> Tensor:
    """The entries before and after each, itself at the border: the farther neighbour of each new pixel."""
    size = x.shape[axis]
    before = torch.cat([x.narrow(axis, 0, 1), x.narrow(axis, 0, size - 1)], axis)
    after = torch.cat([x.narrow(axis, 1, size - 1), x.narrow(axis, size - 1, 1)], axis)
    return torch.stack([before, after], axis + 1).flatten(axis, axis + 1)
