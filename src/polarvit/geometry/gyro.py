"""Gyrovector operations, exponential and logarithmic map: one primitive serves all four.

The point y seen from x, or carried by the boost that takes the origin to x, has the space part

    R u + Q t,   R = sinh(a-b) + cosh a sinh b P,   Q = sinh b,   t = v - (v.u)u

with P = 1/2|u+v|^2 for gyroaddition and P = 1/2|u-v|^2 (and -R) for the logarithm. Both terms of R have one sign
unless the point truly passes the origin, so nothing large is subtracted. A common factor e^S is taken out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry.directions import across, chord, norm_and_direction, scaled_polar
from polarvit.geometry.door import as_step, geometric, need_broadcast, need_frame, need_point, need_same_space
from polarvit.geometry.points import PolarPoint, PolarTangent
from polarvit.geometry.scaled import ch, exp_capped, rescale, restore, sh


def frame_components(a: Tensor, b: Tensor, cosine: Tensor, gap: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(R e^-S, Q e^-S, S) for rescaled radii a, b, the cosine between the two steps and `gap` = P = 1 + cosine.

    R = sinh a cosh b + cosh a sinh b cosine where that does not cancel (cosine >= -1/2), and the form with P where it
    does. S is the larger radius while the smaller, n, is at most 40: then no exponent is a sum of radii, whose
    rounding would cost a direction several eps. Beyond, S is the exponent of the larger term of R, a mere scale
    without gradient. The threshold is 40 because squares of e^n are formed later.
    """
    outward, open_angle = a >= b, cosine >= -0.5
    large, small = torch.where(outward, a, b), torch.where(outward, b, a)
    n = small.clamp_max(40.0)
    wide, tall = torch.sinh(n), torch.cosh(n)
    cosh_sinh = torch.where(outward, ch(large) * wide, tall * sh(large))
    sinh_cosh = torch.where(outward, tall * sh(large), ch(large) * wide)
    radial = torch.exp(-n) * sh(large - small)
    closing = torch.where(outward, radial, -radial) + cosh_sinh * gap
    near_r = torch.where(open_angle, sinh_cosh + cosh_sinh * cosine, closing)
    near_q = torch.where(outward, wide * torch.exp(-large), sh(large))

    delta = large - small
    s = torch.maximum(delta, a + b + torch.log(0.5 * gap)).detach()
    growth = exp_capped(a + b - s)
    radial = sh(delta) * torch.exp(delta - s)
    closing = torch.where(outward, radial, -radial) + ch(a) * sh(b) * gap * growth
    far_r = torch.where(open_angle, (sh(a) * ch(b) + ch(a) * sh(b) * cosine) * growth, closing)
    far_q = sh(b) * exp_capped(b - s)

    far = small > 40
    return torch.where(far, far_r, near_r), torch.where(far, far_q, near_q), torch.where(far, s, large)


def add(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Gyroaddition (a, u) (+) (b, v) of rescaled points."""
    r, q, s = frame_components(*torch.broadcast_tensors(a, b, (u * v).sum(-1), chord(u, -v)))
    return scaled_polar(r.unsqueeze(-1) * u + q.unsqueeze(-1) * across(u, v), s)


@geometric
def gyroadd(x: PolarPoint, y: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
    """x (+) y: the boost that carries the origin to x, applied to y.

    x (+) y = exp_x(PT_o->x(log_o y)). An isometry in y with left inverse gyroneg(x); not commutative.
    """
    need_same_space("gyroadd", x, y, ("x", "y"))
    radius, direction = add(rescale(x.radius, k), x.direction, rescale(y.radius, k), y.direction)
    return PolarPoint(restore(radius, k), direction)


@geometric
def gyroneg(x: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
    """(-)x = (r, -u), the gyro-inverse."""
    need_point("gyroneg", "x", x)
    return PolarPoint(x.radius, -x.direction)


@geometric
def gyroscale(x: PolarPoint, t: Tensor | float, *, k: float | Tensor = 1.0) -> PolarPoint:
    """t (x) x = (|t| r, sign(t) u): t times as far along the geodesic from the origin. `t` [...] broadcasts."""
    need_point("gyroscale", "x", x)
    t = as_step("gyroscale", t, x.radius)
    need_broadcast("gyroscale", x.shape, t.shape, ("x", "t"))
    sign = torch.where(t < 0, -torch.ones_like(t), torch.ones_like(t))
    radius = x.radius * (t * sign)
    return PolarPoint(radius, (x.direction * sign.unsqueeze(-1)).expand(*radius.shape, x.dim))


@geometric
def exp_map(p: PolarPoint, xi: PolarTangent, *, k: float | Tensor = 1.0) -> PolarPoint:
    """Exponential map: from p along the tangent vector xi (frame components) for the length |xi|.

    Gyroaddition of p and the point at distance |xi| in direction xi, with P = 1 + xi_r/|xi| outward and
    |xi_perp|^2 / (|xi| (|xi| + |xi_r|)) inward, which does not cancel. Smooth at xi = 0.
    """
    need_frame("exp_map", p, xi)
    steps = torch.cat([xi.radial.unsqueeze(-1), xi.perpendicular], -1)
    length, unit = norm_and_direction(steps)
    radial, perpendicular = unit[..., 0], unit[..., 1:]
    gap = torch.where(radial >= 0, 1 + radial, perpendicular.square().sum(-1) / (1 + radial.abs()))
    r, q, s = frame_components(*torch.broadcast_tensors(rescale(p.radius, k), rescale(length, k), radial, gap))
    radius, direction = scaled_polar(r.unsqueeze(-1) * p.direction + q.unsqueeze(-1) * perpendicular, s)
    return PolarPoint(restore(radius, k), direction)


@geometric
def log_map(p: PolarPoint, q: PolarPoint, *, k: float | Tensor = 1.0) -> PolarTangent:
    """Logarithmic map: the tangent vector at p that leads to q, in the polar frame of p.

    sqrt(k) D (-R, Q t)/|(R, Q t)| with P the chord; its length is the distance, and it is smooth at p = q.
    """
    need_same_space("log_map", p, q)
    u, v = p.direction, q.direction
    cosine, gap = -(u * v).sum(-1), chord(u, v)
    r, size, s = frame_components(*torch.broadcast_tensors(rescale(p.radius, k), rescale(q.radius, k), cosine, gap))
    towards = size.unsqueeze(-1) * across(u, v)
    length, unit = scaled_polar(torch.cat([-r.unsqueeze(-1), towards], -1), s)
    xi = restore(length, k).unsqueeze(-1) * unit
    return PolarTangent(xi[..., 0], xi[..., 1:])
