"""The Lorentz centroid of all pixels of a batch, over all processes, with its closed-form gradient."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polarvit.geometry.directions import norm_and_direction, wide
from polarvit.geometry.scaled import ch, exp_capped, sh
from polarvit.nn.conv.space import LARGEST, scaled_sinh
from polarvit.nn.conv.sums import centroid_logs, radius_of_logs
from polarvit.nn.conv.sync import added, count, gather


class _BatchCentroid(torch.autograd.Function):
    """a [...], u [..., n] -> (b [], v [n]); gradients as in `polarvit.geometry.centroid` with equal weights.

    One pass: with offsets o = u - c from the direction c of the farthest point, M2 = sum m |o|^2 - |sum m o|^2/P. That
    difference is taken in float64, of terms formed in float64, and equal directions give 0 exactly.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        largest, c = farthest(a, u)
        t = torch.relu(largest - LARGEST)
        mass = wide(scaled_sinh(a, t))
        offset = wide(u) - wide(c)
        axes = tuple(range(a.ndim))
        moment = (mass.unsqueeze(-1) * offset).mean(axes)
        square = (mass.unsqueeze(-1) * offset.square()).mean(axes).sum(-1)
        sums = torch.cat([mass.mean().reshape(1), square.reshape(1), moment])
        total, square, moment = gather(sums.unsqueeze(0)).mean(0).split([1, 1, len(c)])
        log_e = torch.logsumexp(gather(torch.logsumexp(-a.flatten(), 0).reshape(1)), 0)
        log_e = log_e - math.log(a.numel() * count()) - t

        shift = moment / torch.where(total > 0, total, torch.ones_like(total))
        spread = (square - total * shift.square().sum()).clamp_min(0.0).squeeze(0)
        length, v = norm_and_direction(wide(c) + shift)
        size = total.squeeze(0) * length
        minus, plus = centroid_logs(size, spread / (1 + length), wide(log_e))
        b = radius_of_logs(size, minus, plus)
        out = b.to(a.dtype), v.to(u.dtype)
        ctx.save_for_backward(a, u, t, out[1], size.to(a.dtype), minus.to(a.dtype), plus.to(a.dtype))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_b: Tensor, grad_v: Tensor) -> tuple[Tensor, Tensor]:
        a, u, t, v, size, minus, plus = ctx.saved_tensors
        grads = added(torch.cat([grad_b.reshape(1), grad_v])) / (a.numel() * count())
        grad_b, g = grads[0], grads[1:]
        g = torch.where(size > 0, (g - (g * v).sum() * v) / torch.where(size > 0, size, 1.0), torch.zeros_like(g))
        gap = u - v
        chi = 0.5 * gap.square().sum(-1)
        sideways = (gap * g).sum(-1)
        scale = exp_capped(a - t)  # e^(a-t)
        up, over = exp_capped(a - t - plus), exp_capped(a - t - minus)  # e^a/(T+|V|), e^a/(E+S)
        under = exp_capped(-a - t - minus)  # e^-a/(E+S)
        sinh, cosh = sh(a), ch(a)
        to_a = 0.5 * grad_b * (up * (1 - cosh * chi) + under - cosh * chi * over) + cosh * scale * sideways
        pull = 0.5 * grad_b * sinh * (up + over)
        to_u = (pull * (chi - 1)).unsqueeze(-1) * gap + (pull * chi).unsqueeze(-1) * v
        return to_a, to_u + (sinh * scale).unsqueeze(-1) * g


def farthest(a: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Radius [] and direction [n] of the farthest point of all processes."""
    radius, index = a.flatten().max(0)
    direction = u.flatten(0, -2).index_select(0, index.reshape(1))
    if count() == 1:
        return radius, direction.squeeze(0)
    radius, index = gather(radius.reshape(1)).max(0)
    return radius, gather(direction).index_select(0, index.reshape(1)).squeeze(0)


def batch_centroid(a: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Centroid (b [], v [n]) of rescaled points a [...], u [..., n] of all processes."""
    return _BatchCentroid.apply(a, u)
