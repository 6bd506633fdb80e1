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


def frame_components(a: Tensor, b: Tensor, cosine: Tensor, gap: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(R e^-S, Q e^-S, S, e^(a+b-S)) for rescaled radii a, b, the cosine between the steps and `gap` = P = 1 + cosine.

    R = sinh a cosh b + cosh a sinh b cosine where that does not cancel (cosine >= -1/2), and the form with P where it
    does. S is the larger radius while the smaller, n, is at most 40: then no exponent is a sum of radii, whose
    rounding would cost a direction several eps. Beyond, S is the exponent of the larger term of R, a mere scale
    without gradient. The threshold is 40 because squares of e^n are formed later.
    """
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    delta, n, far = large - small, small.clamp_max(40.0), small > 40
    scale = torch.maximum(delta, a + b + torch.log(0.5 * gap)).detach()
    s = torch.where(far, scale, large)
    growth = torch.where(far, exp_capped(a + b - scale), torch.exp(n))
    radial = torch.where(a >= b, sh(delta), -sh(delta)) * torch.where(far, torch.exp(delta - scale), torch.exp(-n))
    opening = (sh(a) * ch(b) + ch(a) * sh(b) * cosine) * growth
    closing = radial + ch(a) * sh(b) * gap * growth
    return torch.where(cosine >= -0.5, opening, closing), sh(b) * exp_capped(b - s), s, growth


def add(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Gyroaddition (a, u) (+) (b, v) of rescaled points.

    The space part is also F u + sinh b v with F = sinh a cosh b + (cosh a - 1) sinh b cos, in which u appears with a
    factor that vanishes with a: so the gradient is right at x = o. That form is taken wherever it does not cancel.
    """
    a, b, cosine, gap = torch.broadcast_tensors(a, b, (u * v).sum(-1), chord(u, -v))
    r, q, s, growth = frame_components(a, b, cosine, gap)
    f = (sh(a) * ch(b) + 0.5 * torch.expm1(-a).square() * sh(b) * cosine) * growth
    plain = (cosine >= -0.5) | ((a < 0.5) & (2 * f < q))
    r, q, f = r.unsqueeze(-1), q.unsqueeze(-1), f.unsqueeze(-1)
    return scaled_polar(torch.where(plain.unsqueeze(-1), f * u + q * v, r * u + q * across(u, v)), s)


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
    r, q, s, _ = frame_components(*torch.broadcast_tensors(rescale(p.radius, k), rescale(length, k), radial, gap))
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
    r, size, s, _ = frame_components(*torch.broadcast_tensors(rescale(p.radius, k), rescale(q.radius, k), cosine, gap))
    towards = size.unsqueeze(-1) * across(u, v)
    length, unit = scaled_polar(torch.cat([-r.unsqueeze(-1), towards], -1), s)
    xi = restore(length, k).unsqueeze(-1) * unit
    return PolarTangent(xi[..., 0], xi[..., 1:])
