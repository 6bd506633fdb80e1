"""The polar rule behind a convolution, with its closed-form gradient.

With c = cosh A e^-t, N = sinh A e^-t: h = y + w_0 c, l = beta (ln|h| + t) + lambda A + y_phi/c + phi_0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polarvit.geometry.directions import first_axis, norm_of, origin_radius
from polarvit.geometry.once import differentiable_once
from polarvit.geometry.scaled import scaled_asinh_value
from polarvit.kernels.linear import radius_of_log_sinh
from polarvit.kernels.pick import fused_runs

LARGEST_WIDTH = 256


class _Finish(torch.autograd.Function):
    """Rows of y [rows, out + 1 + padding], square [rows]; t [images] holds for equally many rows each."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, square: Tensor, t: Tensor, w: Tensor, beta: Tensor, slope: Tensor, phi0: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.stride, ctx.fused = y.shape[1], len(w) <= LARGEST_WIDTH and fused_runs(y, square, w)
        if ctx.fused:
            from polarvit.kernels.images import operator

            radius, direction, norm = operator.finish(y, square, t, w, beta, slope, phi0)
        else:
            radius, direction, norm = forward(y, square, spread(t, square), w, beta, slope, phi0)
        last = y[:, len(w)].contiguous()  # all that is kept of y
        ctx.save_for_backward(direction, radius, norm, last, square, t, w, beta, slope)
        return radius, direction

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_radius: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, radius, norm, last, square, t, w, beta, slope = ctx.saved_tensors
        if ctx.fused:
            from polarvit.kernels.images import operator

            to_y, to_square, sums = operator.finish_backward(*ctx.saved_tensors, grad_radius, grad, ctx.stride)
        else:
            given = (u, radius, norm, last, square, spread(t, square), w, beta, slope)
            to_y, to_square, sums = backward(*given, grad_radius, grad, ctx.stride)
        n = len(w)
        return to_y, to_square, None, sums[:n], sums[n], sums[n + 1], sums[n + 2]


def spread(t: Tensor, square: Tensor) -> Tensor:
    """t of every row."""
    return t.unsqueeze(-1).expand_as(square.view(t.shape[0], -1)).reshape(-1)


def joined(square: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """cosh A e^-t and A from sinh^2 A e^-2t."""
    tiny = torch.finfo(square.dtype).tiny
    cosh = torch.sqrt((square + torch.exp(-2 * t)).clamp_min(tiny))
    return cosh, scaled_asinh_value(torch.sqrt(square), t)


def forward(
    y: Tensor, square: Tensor, t: Tensor, w: Tensor, beta: Tensor, slope: Tensor, phi0: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Radius, direction and |h|, in plain PyTorch."""
    c, a = joined(square, t)
    h = y[:, : len(w)] + w * c.unsqueeze(-1)
    norm = norm_of(h)
    zero = norm == 0
    norm = torch.where(zero, torch.full_like(norm, origin_radius(h.dtype)), norm)
    direction, norm = torch.where(zero, first_axis(h), h / norm), norm.squeeze(-1)
    l = beta * (torch.log(norm) + t) + slope * a + y[:, len(w)] / c + phi0
    return radius_of_log_sinh(l), direction, norm


def backward(
    u: Tensor,
    radius: Tensor,
    norm: Tensor,
    last: Tensor,
    square: Tensor,
    t: Tensor,
    w: Tensor,
    beta: Tensor,
    slope: Tensor,
    grad_radius: Tensor,
    grad: Tensor,
    stride: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of y, square, and in one vector those of w, beta, slope and phi0, in plain PyTorch."""
    c, a = joined(square, t)
    to_l = grad_radius * torch.tanh(radius)
    radial = (beta * to_l - (grad * u).sum(-1)) / norm
    to_h = grad / norm.unsqueeze(-1) + radial.unsqueeze(-1) * u
    to_c = (to_h * w).sum(-1) - to_l * last / c.square()
    some = square > 0
    size = torch.sqrt(torch.where(some, square, torch.ones_like(square)))
    to_square = 0.5 * (to_c + torch.where(some, slope * to_l / size, torch.zeros_like(size))) / c
    blank = u.new_zeros(u.shape[0], stride - len(w) - 1)
    to_y = torch.cat([to_h, (to_l / c).unsqueeze(-1), blank], -1)
    scalars = torch.stack([(to_l * (torch.log(norm) + t)).sum(), (to_l * a).sum(), to_l.sum()])
    return to_y, to_square, torch.cat([(to_h * c.unsqueeze(-1)).sum(0), scalars])


def finish(
    y: Tensor, square: Tensor, t: Tensor, w: Tensor, beta: Tensor, slope: Tensor, phi0: Tensor
) -> tuple[Tensor, Tensor]:
    """Rescaled radius [B, H, W] and direction [B, H, W, out] from the products y [B, H, W, out + 1 + padding] of
    space parts times e^-t, and `square` = sinh^2 A e^-2t [B, H, W]; column `out` of y is that of phi, t is [B, 1, 1].
    """
    rows = y.reshape(-1, y.shape[-1]).contiguous()
    radius, direction = _Finish.apply(rows, square.reshape(-1).contiguous(), t.flatten(), w, beta, slope, phi0)
    return radius.view(square.shape), direction.view(*square.shape, len(w))
