"""Images of points, their space parts, and the way back.

A batch of images of points is a `PolarPoint` with radius [B, H, W] and direction [B, H, W, C]: channels last, as every
geometry function wants them. It is the memory format `channels_last` of PyTorch, so `as_image` is a view, a
convolution takes it as it is (and tensor cores prefer it), and the norm over the channels of a pixel reads one
contiguous row.

A space part sinh(a) u is kept times e^-t, with one t for each image: 0 up to a largest radius of 40, so that nothing is
rounded, and what exceeds 40 beyond it, so that nothing overflows. Only where an image has a radius above 40 **and**
points 80 nearer to the origin than that do these vanish beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry import PolarPoint
from polarvit.geometry.directions import scaled_polar
from polarvit.geometry.scaled import rescale, restore
from polarvit.kernels.images.scale import LARGEST, scaled_sinh


def as_image(x: Tensor) -> Tensor:
    """[B, H, W, C] as [B, C, H, W], without a copy."""
    return x.permute(0, 3, 1, 2)


def as_rows(x: Tensor) -> Tensor:
    """[B, C, H, W] as [B, H, W, C], without a copy."""
    return x.permute(0, 2, 3, 1)


def excess(*radii: Tensor) -> Tensor:
    """t [B, 1, 1]: by how much the largest rescaled radius of each image exceeds `LARGEST`. Without gradient."""
    largest = [a.detach().amax((1, 2), keepdim=True) for a in radii]
    return torch.relu(torch.stack(largest).amax(0) - LARGEST)


def space_part(x: PolarPoint, *, k: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
    """sinh(a) u e^-t [B, H, W, C] and t [B, 1, 1]."""
    a = rescale(x.radius, k)
    t = excess(a)
    return scaled_sinh(a, t).unsqueeze(-1) * x.direction, t


def from_space_part(z: Tensor, t: Tensor, *, k: float | Tensor = 1.0) -> PolarPoint:
    """The points whose space parts are sqrt(k) e^t z; a zero vector is the origin."""
    a, direction = scaled_polar(z, t)
    return PolarPoint(restore(a, k), direction)
