"""One step along a geodesic, with a tangent vector carried along it.

`transport(p, q, ...)` knows the geodesic by its two ends. Far out these say little about it: one unit in the last place
of a direction is sinh(a) times as much in length, so from a = 16 on in float32 (37 in float64) the rounding of q alone
can turn a carried vector around. Whoever has the step needs no directions: sides and angles of the triangle
(origin, p, q) give the rotation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry.directions import norm_and_direction, norm_of, scaled_polar
from polarvit.geometry.door import geometric, need_frame
from polarvit.geometry.gyro import frame_components
from polarvit.geometry.points import PolarPoint, PolarTangent
from polarvit.geometry.scaled import rescale, restore


@geometric
def follow(
    p: PolarPoint, step: PolarTangent, xi: PolarTangent, *, k: float | Tensor = 1.0
) -> tuple[PolarPoint, PolarTangent]:
    """exp_p(step), and xi transported from p along that geodesic, in the polar frame of its end.

    The step leads from (a, u) to (c, v) through an angle phi at the origin, in the plane of u and e = step_perp/|.|:

        R = sinh a cosh b + cosh a sinh b cos,   Q = sinh b sin,   sinh c (cos phi, sin phi) = (R, Q)

    where b is its length and (cos, sin) its slope. Between the frames (u, e) and (v, e cos phi - u sin phi) xi turns by

        tan(w/2) = cosh((a+c)/2)/cosh((a-c)/2) tan(phi/2),

    and what is perpendicular to both u and e stays. A step that ends in the origin itself keeps the direction u. For
    optimizers, without gradients: e has none where the step is radial; `exp_map` and `transport` have.
    """
    need_frame("follow", p, step)
    need_frame("follow", p, xi)
    a, u = rescale(p.radius, k), p.direction
    length, slope = norm_and_direction(torch.cat([step.radial.unsqueeze(-1), step.perpendicular], -1))
    cosine, across = slope[..., 0], slope[..., 1:]
    sine = norm_of(across)
    e = across / torch.where(sine > 0, sine, 1.0)
    gap = torch.where(cosine >= 0, 1 + cosine, across.square().sum(-1) / (1 + cosine.abs()))
    r, q, s, _ = frame_components(*torch.broadcast_tensors(a, rescale(length, k), cosine, gap))
    end = r.unsqueeze(-1) * u + q.unsqueeze(-1) * across
    c, v = scaled_polar(end, s)
    v = torch.where((end == 0).all(-1, keepdim=True), u, v)

    cos, sin = unit(r, q * sine.squeeze(-1))
    turn_cos, turn_sin = turn(a, c, cos, sin)
    along = (xi.perpendicular * e).sum(-1)
    radial = turn_cos * xi.radial + turn_sin * along
    turned = turn_cos * along - turn_sin * xi.radial
    carried = xi.perpendicular + (turned * cos - along).unsqueeze(-1) * e - (turned * sin).unsqueeze(-1) * u
    carried = carried - (carried * v).sum(-1, keepdim=True) * v  # rounding leaves a trace along v
    return PolarPoint(restore(c, k), v), PolarTangent(radial, carried)


def turn(a: Tensor, c: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """(cos w, sin w) of the rotation between rescaled radii a and c through the angle phi, 0 <= phi <= pi."""
    large = torch.sqrt(0.5 * (1 + cos.abs()))  # the larger of cos(phi/2) and sin(phi/2) gives the other
    small = 0.5 * sin / large
    opening = cos >= 0
    rho = (torch.exp(-a) + torch.exp(-c)) / (1 + torch.exp(-(a + c)))  # cosh((a-c)/2)/cosh((a+c)/2)
    x, y = unit(rho * torch.where(opening, large, small), torch.where(opening, small, large))
    return x.square() - y.square(), 2 * x * y


def unit(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(x, y)/|(x, y)|; the first axis where both are zero."""
    norm = torch.hypot(x, y)
    zero = norm == 0
    safe = torch.where(zero, 1.0, norm)
    return torch.where(zero, 1.0, x / safe), y / safe
