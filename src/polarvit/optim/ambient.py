"""Riemannian AdamW in ambient arithmetic, as published (after Bdeir et al., 2025): the optimizer that fails far out.

    x  <- centroid({x, o}; 1 - lr wd, lr wd)                       decay, by the ambient centroid
    xi  = h + <x, h> x/k                                           gradient made tangent at the decayed point
    m  <- b1 m + (1 - b1) xi,   s <- b2 s + (1 - b2) <xi, xi>      one second moment per point
    x  <- exp_x(-lr m^/(sqrt(s^) + eps)),   m <- transported along; x and m put back on the manifold

Every line has a difference of large numbers in it: T^2 - |V|^2 in the centroid, <x, h>, <xi, xi>. In float32 the decay
step moves points outward from radius 8 on (`polarvit reproduce weight-decay`). To compare with;
a model trains with it by `--set optim.arithmetic=ambient`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polarvit.geometry import ambient
from polarvit.geometry.directions import norm_and_direction
from polarvit.geometry.scaled import rescale
from polarvit.optim.points import bias, decay_weight, polar_gradient
from polarvit.optim.riemannian import RiemannianAdamW, curvature_of


class AmbientRiemannianAdamW(RiemannianAdamW):
    """A stand-in for `RiemannianAdamW` that differs in the arithmetic of points only.

    Models store points as v = r u; here they are lifted to the hyperboloid [..., n+1], moved there and lowered again.
    Ordinary and anchored parameters, groups and options are as in the parent. Moments are ambient vectors, so a state
    of one optimizer is not one of the other. It is never compiled: fused sums would round differently, and how these
    round is the point.
    """

    def _moved(
        self, group: dict[str, Any], v: Tensor, g: Tensor, moment: Tensor, square: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        lr, k, (beta1, beta2) = group["lr"], curvature_of(group), group["betas"]
        bias1, bias2 = bias(beta1, step, v), bias(beta2, step, v)
        x, h = ambient.from_tangent0(v, k=k), lifted_gradient(v, g, k)
        if group["weight_decay"]:
            x = decayed(x, decay_weight(lr, group["weight_decay"], v), k=k)
        xi = tangent(x, h, k=k)
        moment = torch.lerp(moment, xi, 1 - beta1)
        square = torch.lerp(square, ambient.inner(xi, xi), 1 - beta2)
        size = lr / bias1 / (torch.sqrt(square / bias2) + group["eps"])
        moved = ambient.exp_map(x, -size.unsqueeze(-1) * moment, k=k)
        moved = ambient.from_space(ambient.to_space(moved), k=k)
        moment = tangent(moved, ambient.transport(x, moved, moment, k=k), k=k)
        return ambient.to_tangent0(moved, k=k), moment, square


def decayed(x: Tensor, w: Tensor | float, *, k: float | Tensor = 1.0) -> Tensor:
    """One step of weight decay: the ambient centroid of x [..., n+1] and the origin with weights (1 - w, w)."""
    pair = torch.stack([x, ambient.origin(x.shape[-1] - 1, k=k, like=x).expand_as(x)], -2)
    w = torch.as_tensor(w, dtype=x.dtype, device=x.device)
    return ambient.centroid(pair, torch.stack([1 - w, w]).expand(*x.shape[:-1], 2), k=k)


def tangent(x: Tensor, h: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """The part of h that is tangent at x: h + <x, h> x/k."""
    return h + ambient.inner(x, h).unsqueeze(-1) * x / k


def lifted_gradient(v: Tensor, g: Tensor, k: float | Tensor) -> Tensor:
    """Riemannian gradient at exp_0(v) as an ambient vector [..., n+1], from the gradient g in v.

    The polar frame at radius a is (sinh a, cosh(a) u) outward and (0, t) across.
    """
    radius, u = norm_and_direction(v)
    a = rescale(radius, k)
    frame = polar_gradient(a, u, g)
    outward, a = frame.radial.unsqueeze(-1), a.unsqueeze(-1)
    return torch.cat([torch.sinh(a) * outward, torch.cosh(a) * outward * u + frame.perpendicular], -1)
