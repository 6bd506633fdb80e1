"""Batch normalisation of points with its gradient in closed form: a few passes over the batch, each way.

Backward needs the radii and directions that came in, and recomputes the rest from them.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polarvit.geometry.directions import norm_and_direction, wide
from polarvit.kernels.images import steps
from polarvit.kernels.images.scale import LARGEST
from polarvit.kernels.images.sums import centroid_logs, radius_of_logs
from polarvit.kernels.images.sync import added, count, gather
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
    @once_differentiable
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
        b, v, t, size, minus, plus = centroid(run, a, u)
        s = gather(run.distance_sum(a, u, b, v) / len(a)).mean()
        f = gain / (root * s + eps)
        radius, direction = run.normalised(a, u, b, v, f, c, e, relu)
        ctx.save_for_backward(a, u, b, v, f, c, e, gain, root, s, t, size, minus, plus)
        ctx.eps, ctx.relu = eps, relu
        ctx.mark_non_differentiable(b, v, s)
        return radius, direction, b, v, s

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_radius: Tensor, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        a, u, b, v, f, c, e, gain, root, s, t, size, minus, plus = ctx.saved_tensors
        run, n = passes(a, u, width=u.shape[-1]), u.shape[-1]
        to_a, to_u, sums = run.normalised_backward(a, u, b, v, f, c, e, grad_radius, grad, ctx.relu)
        to_b, to_f, to_c, to_v, to_e = split(sums, n)
        fall = -to_f * f / (root * s + ctx.eps)
        weight = 1 / (len(a) * count())  # of a point in the statistics of all processes
        to_distance = weight * added(fall * root)
        to_mean = torch.cat([to_b.reshape(1), to_v]) + to_distance * run.distance_slopes(a, u, b, v)
        to_mean = weight * added(to_mean)
        g = to_mean[1:] - (to_mean[1:] * v).sum() * v
        g = torch.where(size > 0, g / torch.where(size > 0, size, torch.ones_like(size)), torch.zeros_like(g))
        scalars = torch.stack([to_distance, to_mean[0], t, plus, minus])
        to_a, to_u = run.statistics_backward(a, u, b, v, scalars, g, to_a, to_u)
        return to_a, to_u, to_f * f / gain, fall * s, to_c, to_e, None, None


def split(sums: Tensor, n: int) -> tuple[Tensor, ...]:
    """b, f, c, v and e of a vector [3 + 2n]."""
    return sums[0], sums[1], sums[2], sums[3 : 3 + n], sums[3 + n :]


def centroid(run: ModuleType, a: Tensor, u: Tensor) -> tuple[Tensor, ...]:
    """Centroid (b, v) of the points of all processes; t, and after division by e^t |V|, ln(T - |V|), ln(T + |V|).

    One pass: with offsets o = u - c from the direction c of the farthest point, M2 = sum m |o|^2 - |sum m o|^2/P. That
    difference is taken in float64, of terms formed in float64, and equal directions give 0 exactly.
    """
    largest, c = farthest(a, u)
    t = torch.relu(largest - LARGEST)
    means = gather(run.centroid_sums(a, u, largest, t, c).unsqueeze(0)).mean(0)
    mass, square, rest, moment = means[0], means[1], means[2], means[3:]
    offset = moment / torch.where(mass > 0, mass, torch.ones_like(mass))
    spread = (square - mass * offset.square().sum()).clamp_min(0.0)
    length, v = norm_and_direction(wide(c) + offset)
    size = mass * length
    minus, plus = centroid_logs(size, spread / (1 + length), torch.log(rest) - wide(largest) - wide(t))
    b = radius_of_logs(size, minus, plus)
    return tuple(x.to(a.dtype) for x in (b, v, t, size, minus, plus))


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
