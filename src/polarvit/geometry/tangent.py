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
    inverse = torch.where(circle > 0, torch.exp(-a) / torch.where(circle > 0, circle, 1.0), 0.0)
    return PolarTangent(gradient.radius.expand(g.shape[:-1]), inverse.unsqueeze(-1) * g)


@geometric
def transport(p: PolarPoint, q: PolarPoint, xi: PolarTangent, *, k: float | Tensor = 1.0) -> PolarTangent:
    """Parallel transport of xi from p to q along the geodesic: a rotation between the two polar frames.

    The angle w in the plane of u and v obeys tan(w/2) = cosh((a+b)/2)|u-v| / (cosh((a-b)/2)|u+v|). With
    rho = (e^-a + e^-b)/(1 + e^-(a+b)), q = 1/2|u-v|^2 and p = 1/2|u+v|^2 this is

        sin^2(w/2) = q/(q + rho^2 p),    sin w / |t| = 2 rho/(q + rho^2 p),    t = v - (v.u)u,

    all smooth, so no axis is normalised and equal or opposite directions are no special case of the result.
    """
    need_same_space("transport", p, q)
    need_frame("transport", p, xi)
    need_broadcast("transport", q.shape, xi.shape, ("q", "xi"))
    a, b = rescale(p.radius, k), rescale(q.radius, k)
    u, v = p.direction, q.direction
    near, far = chord(u, v), chord(u, -v)
    rho = (torch.exp(-a) + torch.exp(-b)) / (1 + torch.exp(-(a + b)))
    whole = near + rho.square() * far
    whole = torch.where(whole == 0, torch.ones_like(whole), whole)  # only if u = v and e^-2a underflows: no turn
    # Each factor takes its own square root of `whole`, which can be as small as e^-2a: so none of them overflows.
    root = whole.sqrt()
    here, there = across(u, v), -across(v, u)  # sin(angle) times the unit axes of the plane at p and at q
    along = (xi.perpendicular * here).sum(-1)
    lean, tilt, axis = rho / root, along / root, there / root.unsqueeze(-1)
    radial = (rho.square() * far - near) / whole * xi.radial + 2 * lean * tilt

    # The part of xi along t at p becomes one along t at q, by way of u + v or u - v, whichever is the longer.
    aligned = near <= far
    share = along / torch.where(aligned, -far, near)
    kept = xi.perpendicular + share.unsqueeze(-1) * torch.where(aligned.unsqueeze(-1), u + v, u - v)
    swing = share * torch.where(aligned, 1 / root, lean.square() * root)
    return PolarTangent(radial, kept + (2 * (swing - lean * xi.radial)).unsqueeze(-1) * axis)
