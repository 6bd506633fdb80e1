"""Batch normalisation of points with its gradient in closed form: a few passes over the batch, each way.

Backward needs the radii and directions that came in, and recomputes the rest from them.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from polarvit.geometry.once import differentiable_once
from polarvit.kernels.images import steps
from polarvit.kernels.images.scale import LARGEST
from polarvit.kernels.images.sync import count, gather
from polarvit.kernels.pick import fused_runs

LARGEST_WIDTH = 256
Point = tuple[Tensor, Tensor]
"""Rescaled radius [] and direction [n]."""


def passes(*tensors: Tensor, width: int) -> ModuleType:
    """Where the passes over the batch come from: the kernels, or plain PyTorch."""
    if width <= LARGEST_WIDTH and fused_runs(*tensors):
        from polarvit.kernels.images import operator

        return operator
    return steps


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, u: Tensor, b: Tensor, v: Tensor, f: Tensor, c: Tensor, e: Tensor, relu: bool
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(a, u, b, v, f, c, e)
        ctx.relu = relu
        return passes(a, u, width=u.shape[-1]).normalised(a, u, b, v, f, c, e, relu)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_radius: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, u, *_ = ctx.saved_tensors
        run = passes(a, u, width=u.shape[-1])
        to_a, to_u, sums = run.normalised_backward(*ctx.saved_tensors, grad_radius, grad, ctx.relu)
        to_b, to_f, to_c, to_v, to_e = split(sums, u.shape[-1])
        return to_a, to_u, to_b, to_v, to_f, to_c, to_e, None


class _BatchNorm(torch.autograd.Function):
    """f = gain/(root s + eps) with s the mean distance; also returns the mean and s, without gradient."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, u: Tensor, gain: Tensor, root: Tensor, c: Tensor, e: Tensor, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        run = passes(a, u, width=u.shape[-1])
        largest, near = farthest(a, u)
        t = torch.relu(largest - LARGEST)
        b, v, facts = between(run).centroid(a, u, largest, t, near)
        s = gather(run.distance_sum(a, u, b, v) / a.shape[0]).mean()
        f = gain / (root * s + eps)
        radius, direction = run.normalised(a, u, b, v, f, c, e, relu)
        ctx.save_for_backward(a, u, b, v, f, c, e, gain, root, s, t, facts)
        ctx.eps, ctx.relu = eps, relu
        ctx.mark_non_differentiable(b, v, s)
        return radius, direction, b, v, s

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_radius: Tensor, grad: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
        a, u, b, v, f, c, e, gain, root, s, t, facts = ctx.saved_tensors
        run = passes(a, u, width=u.shape[-1])
        to_a, to_u, sums = run.normalised_backward(a, u, b, v, f, c, e, grad_radius, grad, ctx.relu)
        slopes = run.distance_slopes(a, u, b, v)
        given = (sums, slopes, v, f, gain, root, s, t, facts)
        scalars, g, tail = between(run).shared_backward(*given, ctx.eps, a.shape[0])
        to_a, to_u = run.statistics_backward(a, u, b, v, scalars, g, to_a, to_u)
        _, _, to_c, _, to_e = split(sums, u.shape[-1])
        return to_a, to_u, tail[0], tail[1], to_c, to_e, None, None


def between(run: ModuleType) -> ModuleType:
    """Where the steps between the passes come from: plain PyTorch too where processes must talk to each other."""
    return run if count() == 1 else steps


def split(sums: Tensor, n: int) -> tuple[Tensor, ...]:
    """b, f, c, v and e of a vector [3 + 2n]."""
    return sums[0], sums[1], sums[2], sums[3 : 3 + n], sums[3 + n :]


def farthest(a: Tensor, u: Tensor) -> Point:
    """Radius and direction of the farthest point of all processes."""
    radius, index = a.max(0)
    direction = u.index_select(0, index.reshape(1))
    if count() == 1:
        return radius, direction.squeeze(0)
    radius, index = gather(radius.reshape(1)).max(0)
    return radius, gather(direction).index_select(0, index.reshape(1)).squeeze(0)


def rows(a: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    return a.reshape(-1).contiguous(), u.reshape(-1, u.shape[-1]).contiguous()


def normalise(a: Tensor, u: Tensor, mean: Point, f: Tensor, bias: Point, *, relu: bool = False) -> Point:
    """bias (+) (f (x) ((-mean) (+) x)) for rescaled points a [...], u [..., n]; with `relu`, that of the space part."""
    radius, direction = _Normalise.apply(*rows(a, u), *mean, f, *bias, relu)
    return radius.view(a.shape), direction.view(u.shape)


def batch_norm(
    a: Tensor, u: Tensor, gain: Tensor, bias: Point, *, root: Tensor, eps: float, relu: bool = False
) -> tuple[Point, Point, Tensor]:
    """`normalise` with the batch's own centroid and f = gain/(root s + eps), s the mean distance to it.

    `root` is sqrt(k). Returns points [...], and without gradient the mean and s: statistics of all processes.
    """
    radius, direction, b, v, s = _BatchNorm.apply(*rows(a, u), gain, root, *bias, eps, relu)
    return (radius.view(a.shape), direction.view(u.shape)), (b, v), s


def remember(old: Tensor, spread: Tensor, mean: Point, s: Tensor, *, root: Tensor, momentum: float) -> Point:
    """New running mean r u [n] and spread from the old ones and what `batch_norm` returned."""
    run = passes(old, mean[1], width=len(old))
    return run.remember(old, spread, *mean, s, root, momentum)
