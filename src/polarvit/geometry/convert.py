"""Into polar coordinates and out of them: ambient, space, tangent at the origin, Poincare ball, Klein.

Ambient points are one tensor [..., n+1], time first. A conversion into polar coordinates is as good as the
coordinates it is given: a point stored at radius 12 in ambient float32 has already lost its neighbourhood.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry.directions import norm_and_direction
from polarvit.geometry.door import geometric, need_point, need_tensor
from polarvit.geometry.points import PolarPoint
from polarvit.geometry.scaled import rescale, restore
from polarvit.geometry.validate import check_finite, check_inside, check_on_sheet


@geometric
def from_ambient(x: Tensor, *, k: float | Tensor = 1.0, check: bool = False) -> PolarPoint:
    """Point of the hyperboloid [..., n+1] to polar: r = sqrt(k) asinh(|x_s|/sqrt(k)), u = x_s/|x_s|.

    Only the space part is read; `check=True` also verifies that the time coordinate fits it.
    """
    need_tensor("from_ambient", "x", x)
    if x.shape[-1] < 2:
        raise ValueError(f"from_ambient: x must have shape [..., n+1] with n >= 1, got {list(x.shape)}")
    if check:
        check_on_sheet("from_ambient", x, k)
    return from_space(x[..., 1:], k=k)


@geometric
def to_ambient(p: PolarPoint, *, k: float | Tensor = 1.0) -> Tensor:
    """sqrt(k) (cosh a, sinh a u), [..., n+1]. Overflows in float32 past a = 88.7: coordinates do, points do not."""
    need_point("to_ambient", "p", p)
    time = restore(torch.cosh(rescale(p.radius, k)), k)
    return torch.cat([time.unsqueeze(-1), to_space(p, k=k)], -1)


@geometric
def from_space(x: Tensor, *, k: float | Tensor = 1.0, check: bool = False) -> PolarPoint:
    """Space coordinates [..., n] to polar: r = sqrt(k) asinh(|x|/sqrt(k))."""
    need_tensor("from_space", "x", x)
    if check:
        check_finite("from_space", "x", x, k)
    norm, direction = norm_and_direction(x)
    return PolarPoint(restore(torch.asinh(rescale(norm, k)), k), direction)


@geometric
def to_space(p: PolarPoint, *, k: float | Tensor = 1.0) -> Tensor:
    """Space coordinates sqrt(k) sinh a u, [..., n]."""
    need_point("to_space", "p", p)
    return restore(torch.sinh(rescale(p.radius, k)), k).unsqueeze(-1) * p.direction


@geometric
def from_tangent0(v: Tensor, *, k: float | Tensor = 1.0, check: bool = False) -> PolarPoint:
    """Exponential map at the origin, v = r u [..., n] to (r, u). `k` does not enter.

    Smooth at the origin: v = 0 gives the origin (radius 2^-60, see `origin_radius`) and receives its true gradient,
    so a parameter that starts there trains.
    """
    need_tensor("from_tangent0", "v", v)
    if check:
        check_finite("from_tangent0", "v", v, k)
    return PolarPoint(*norm_and_direction(v))


@geometric
def to_tangent0(p: PolarPoint, *, k: float | Tensor = 1.0) -> Tensor:
    """Logarithmic map at the origin, r u [..., n]. `k` does not enter."""
    need_point("to_tangent0", "p", p)
    return p.radius.unsqueeze(-1) * p.direction


@geometric
def from_ball(y: Tensor, *, k: float | Tensor = 1.0, check: bool = False) -> PolarPoint:
    """Poincare ball of radius sqrt(k) (curvature -1/k) to polar: r = 2 sqrt(k) artanh(|y|/sqrt(k)).

    A point on or outside the ball gives inf or NaN; `check=True` raises instead.
    """
    need_tensor("from_ball", "y", y)
    if check:
        check_inside("from_ball", "y", y, k, ball=True)
    norm, direction = norm_and_direction(y)
    return PolarPoint(restore(2 * torch.atanh(rescale(norm, k)), k), direction)


@geometric
def to_ball(p: PolarPoint, *, k: float | Tensor = 1.0) -> Tensor:
    """Poincare ball: sqrt(k) tanh(a/2) u, [..., n]. Rounds onto the boundary past a = 17 in float32."""
    need_point("to_ball", "p", p)
    return restore(torch.tanh(0.5 * rescale(p.radius, k)), k).unsqueeze(-1) * p.direction


@geometric
def from_klein(y: Tensor, *, k: float | Tensor = 1.0, check: bool = False) -> PolarPoint:
    """Klein vector tanh(a) u of the unit ball to polar: r = sqrt(k) artanh |y|."""
    need_tensor("from_klein", "y", y)
    if check:
        check_inside("from_klein", "y", y, k, ball=False)
    norm, direction = norm_and_direction(y)
    return PolarPoint(restore(torch.atanh(norm), k), direction)


@geometric
def to_klein(p: PolarPoint, *, k: float | Tensor = 1.0) -> Tensor:
    """Klein vector tanh(a) u [..., n]: space coordinates over the time coordinate, inside the unit ball."""
    need_point("to_klein", "p", p)
    return torch.tanh(rescale(p.radius, k)).unsqueeze(-1) * p.direction
