"""Tangent vectors in the polar frame: inner product, Riemannian gradient, parallel transport."""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry.directions import across, chord
from polarvit.geometry.door import geometric, need_broadcast, need_frame, need_same_space, need_tangent
from polarvit.geometry.points import PolarPoint, PolarTangent
from polarvit.geometry.scaled import rescale, restore, sh


@geometric
def tangent_inner(xi: PolarTangent, zeta: PolarTangent, *, k: float | Tensor = 1.0) -> Tensor:
    """<xi, zeta> = xi_r zeta_r + xi_perp . zeta_perp, [...]. Neither the base point nor `k` enters.

    The ambient -xi_0 zeta_0 + xi_s . zeta_s is the difference cosh^2 a - sinh^2 a in disguise.
    """
    need_tangent("tangent_inner", "xi", xi)
    need_tangent("tangent_inner", "zeta", zeta)
    if xi.perpendicular.shape[-1] != zeta.perpendicular.shape[-1]:
        raise ValueError(
            f"tangent_inner: xi has dimension {xi.perpendicular.shape[-1]}, zeta has "
            f"{zeta.perpendicular.shape[-1]}; must be equal"
        )
    need_broadcast("tangent_inner", xi.shape, zeta.shape, ("xi", "zeta"))
    return xi.radial * zeta.radial + (xi.perpendicular * zeta.perpendicular).sum(-1)


@geometric
def riemannian_gradient(p: PolarPoint, gradient: PolarPoint, *, k: float | Tensor = 1.0) -> PolarTangent:
    """Riemannian gradient from autograd's derivatives with respect to the stored radius and direction.

    The metric in polar coordinates is dr^2 + k sinh^2(a) |du|^2, so xi_r = dL/dr and
    xi_perp = (dL/du made perpendicular to u) / (sqrt(k) sinh a); at radius 0, where dL/du says nothing, 0.
    """
    need_same_space("riemannian_gradient", p, gradient, ("p", "gradient"))
    a = rescale(p.radius, k)
    g = gradient.direction - (gradient.direction * p.direction).sum(-1, keepdim=True) * p.direction
    circle = restore(sh(a), k)
    origin = circle == 0
    inverse = torch.where(origin, 0.0, torch.exp(-a) / torch.where(origin, 1.0, circle))
    return PolarTangent(gradient.radius.expand(g.shape[:-1]), inverse.unsqueeze(-1) * g)


@geometric
def transport(p: PolarPoint, q: PolarPoint, xi: PolarTangent, *, k: float | Tensor = 1.0) -> PolarTangent:
    """Parallel transport of xi from p to q along the geodesic: a rotation between the two polar frames.

    The angle w in the plane of u and v obeys tan(w/2) = cosh((a+b)/2)|u-v| / (cosh((a-b)/2)|u+v|). With
    rho = (e^-a + e^-b)/(1 + e^-(a+b)), q = 1/2|u-v|^2, p = 1/2|u+v|^2, W = q + rho^2 p and s = xi_perp.v,

        xi_r'    = [(rho^2 p - q) xi_r + 2 rho s] / W
        xi_perp' = xi_perp + [s ((u-v) - rho^2 (u+v)) + 2 rho xi_r (u - (u.v)v)] / W,

    all smooth: no axis is normalised, and equal or opposite directions are no special case.
    """
    need_same_space("transport", p, q)
    need_frame("transport", p, xi)
    need_broadcast("transport", q.shape, xi.shape, ("q", "xi"))
    a, b = rescale(p.radius, k), rescale(q.radius, k)
    u, v = p.direction, q.direction
    rho = (torch.exp(-a) + torch.exp(-b)) / (1 + torch.exp(-(a + b)))
    turn, keep = chord(u, v), rho.square() * chord(u, -v)
    keep = torch.where(turn + keep == 0, torch.ones_like(keep), keep)  # only if u = v and e^-2a underflows: no turn
    # W can be as small as e^-2a; then every factor takes its own square root of it, so none of them overflows.
    whole = turn + keep
    half = torch.where(whole > 1e-6, torch.ones_like(whole), whole.sqrt())
    rest = whole / half
    lean, tilt = rho / rest, (xi.perpendicular * across(u, v)).sum(-1) / half
    radial = (keep - turn) / whole * xi.radial + 2 * lean * tilt
    chords = ((u - v) - rho.square().unsqueeze(-1) * (u + v)) / rest.unsqueeze(-1)
    axis = across(v, u) / half.unsqueeze(-1)
    swing = tilt.unsqueeze(-1) * chords + 2 * (lean * xi.radial).unsqueeze(-1) * axis
    moved = xi.perpendicular + swing
    return PolarTangent(radial, moved - (moved * v).sum(-1, keepdim=True) * v)  # rounding leaves a trace along v
