"""Distances by the hyperbolic law of haversines.

    sinh^2(D/2) = sinh^2((a-b)/2) + sinh a sinh b q/2,    D = d/sqrt(k),  q = 1/2 |u-v|^2

Two non-negative terms, one for the radial gap and one for the angular gap; the ambient cosh D = cosh a cosh b -
sinh a sinh b cos(angle) subtracts two numbers of size e^(a+b)/4 instead (paper, "Polar Operations").
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from polarvit.geometry.directions import chord, squared_differences, wide
from polarvit.geometry.door import geometric, need_broadcast, need_point, need_same_dim, need_same_space
from polarvit.geometry.points import PolarPoint
from polarvit.geometry.scaled import ch, exp_capped, rescale, restore, sh


def haversine_terms(a: Tensor, b: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(S, e^(a+b-S), sinh^2(D/2) e^-S) for rescaled radii and chord, of any size.

    S is the exponent of the larger of the two terms, a mere scale without gradient.
    """
    gap = (a - b).abs()
    s = torch.maximum(gap, a + b + torch.log(0.5 * q)).detach()
    growth = exp_capped(a + b - s)
    return s, growth, 0.25 * torch.expm1(-gap).square() * torch.exp(gap - s) + 0.5 * sh(a) * sh(b) * q * growth


def haversine(a: Tensor, b: Tensor, q: Tensor) -> Tensor:
    """D from rescaled radii and chord, read off in the log domain where S is large."""
    s, _, z2 = haversine_terms(a, b, q)
    z = torch.sqrt(z2)
    near = 2 * torch.asinh(torch.exp(0.5 * s.clamp_max(40.0)) * z)
    far = s + 2 * torch.log(z + torch.sqrt(z2 + torch.exp(-s)))
    return torch.where(s <= 40, near, far)


def haversine_slopes(a: Tensor, b: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """dD/da, dD/db, dD/dq, all zero where the points coincide.

    dD/da = [sinh(a-b) + cosh a sinh b q] / sinh D and its mirror, dD/dq = sinh a sinh b / sinh D, each divided by
    e^S above and below. sinh D comes from the same terms as the numerators, so that the rounding of a + b in the
    exponent cancels. The radial slopes are cosines of the angle between geodesics, never larger than 1.
    """
    s, growth, z2 = haversine_terms(a, b, q)
    apart = z2 > 0
    z2 = torch.where(apart, z2, torch.ones_like(z2))
    inverse = torch.where(apart, 0.5 / torch.sqrt(z2 * (z2 + torch.exp(-s))), torch.zeros_like(z2))
    gap = a - b
    radial = torch.sign(gap) * sh(gap.abs()) * torch.exp(gap.abs() - s)
    slope_a = (radial + ch(a) * sh(b) * q * growth) * inverse
    slope_b = (-radial + ch(b) * sh(a) * q * growth) * inverse
    slope_q = sh(a) * sh(b) * growth * inverse
    return slope_a, slope_b, torch.where(q > 0, slope_q, torch.zeros_like(slope_q))


class _Haversine(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor, q: Tensor) -> Tensor:
        return haversine(a, b, q)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slope_a, slope_b, slope_q = haversine_slopes(*ctx.saved_tensors)
        return grad * slope_a, grad * slope_b, grad * slope_q


@geometric
def distance(p: PolarPoint, q: PolarPoint, *, k: float | Tensor = 1.0) -> Tensor:
    """Geodesic distance by the hyperbolic law of haversines, [...] (batches broadcast).

    d = 2 sqrt(k) asinh sqrt(sinh^2((a-b)/2) + sinh a sinh b |u-v|^2/4), at any radius and exactly 0 for equal
    points. The gradient is the unit vector along the geodesic, and 0 where the points coincide.

    >>> o = PolarPoint(torch.tensor(0.0), torch.tensor([1.0, 0.0]))
    >>> distance(o, PolarPoint(torch.tensor(9.0), torch.tensor([0.0, 1.0])))
    tensor(9.)
    """
    need_same_space("distance", p, q)
    a, b, c = torch.broadcast_tensors(rescale(p.radius, k), rescale(q.radius, k), chord(p.direction, q.direction))
    return restore(_Haversine.apply(a, b, c), k)


@geometric
def squared_distance(p: PolarPoint, q: PolarPoint, *, k: float | Tensor = 1.0) -> Tensor:
    """d^2, smooth everywhere: its gradient is -2 log_p(q), which is 0 for coinciding points."""
    need_same_space("squared_distance", p, q)
    return distance(p, q, k=k).square()


class _PairwiseHaversine(torch.autograd.Function):
    """D and the chord, [..., N, M]. Saves the inputs and the chord; never [N, M, n].

    The gradient of the chord is (u_i - c) sum_j g_ij - sum_j g_ij (v_j - c) with c the mean key direction: the
    two sums are nearly equal for clustered directions, and the centring keeps their difference. Where close pairs
    lie far from the mean, centring does not help: the difference is taken in float64.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        q = 0.5 * squared_differences(u, v)
        return haversine(a.unsqueeze(-1), b.unsqueeze(-2), q), q

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_q: Tensor) -> tuple[Tensor, ...]:
        a, u, b, v, q = ctx.saved_tensors
        slope_a, slope_b, slope_q = haversine_slopes(a.unsqueeze(-1), b.unsqueeze(-2), q)
        g = grad * slope_q + grad_q
        centre = v.mean(-2, keepdim=True)
        g, x, y = wide(g), wide(u - centre), wide(v - centre)
        grad_u = (x * g.sum(-1).unsqueeze(-1) - g @ y).to(u.dtype)
        grad_v = (y * g.sum(-2).unsqueeze(-1) - g.mT @ x).to(v.dtype)
        return (grad * slope_a).sum(-1), grad_u, (grad * slope_b).sum(-2), grad_v


@geometric
def pairwise_distance(p: PolarPoint, q: PolarPoint, *, k: float | Tensor = 1.0) -> Tensor:
    """Distances of all pairs: p [..., N], q [..., M] -> [..., N, M], by the law of haversines.

    One autograd function with the closed-form gradient; of N x M tensors it keeps only the chord for backward.
    """
    for name, x in (("p", p), ("q", q)):
        need_point("pairwise_distance", name, x)
        if x.radius.ndim == 0 or x.shape[-1] == 0:
            raise ValueError(f"pairwise_distance: {name} must have shape [..., N] with N >= 1, got {list(x.shape)}")
    need_same_dim("pairwise_distance", p, q)
    need_broadcast("pairwise_distance", p.shape[:-1], q.shape[:-1], ("p", "q"))
    batch = torch.broadcast_shapes(p.shape[:-1], q.shape[:-1])
    dtype = functools.reduce(torch.promote_types, (x.dtype for x in (*p, *q)))
    (a, b), (u, v) = (
        [rescale(x.radius.to(dtype), k).expand(*batch, -1) for x in (p, q)],
        [x.direction.to(dtype).expand(*batch, -1, -1) for x in (p, q)],
    )
    d, _ = _PairwiseHaversine.apply(a, u, b, v)
    return restore(d, k)
