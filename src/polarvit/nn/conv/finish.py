"""The polar rule behind a convolution, with its closed-form gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polarvit.geometry.directions import first_axis, norm_of, origin_radius
from polarvit.geometry.scaled import scaled_asinh_value
from polarvit.kernels.linear import radius_of_log_sinh


class _Finish(torch.autograd.Function):
    """With c = cosh A e^-t, N = sinh A e^-t: h = y + w_0 c, l = beta (ln|h| + t) + lambda A + y_phi/c + phi_0."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, square: Tensor, t: Tensor, w: Tensor, beta: Tensor, slope: Tensor, phi0: Tensor
    ) -> tuple[Tensor, Tensor]:
        c, a = joined(square, t)
        h = y[..., : len(w)] + w * c.unsqueeze(-1)
        norm = norm_of(h)
        zero = norm == 0
        norm = torch.where(zero, torch.full_like(norm, origin_radius(h.dtype)), norm)
        direction = torch.where(zero, first_axis(h), h / norm)
        norm = norm.squeeze(-1)
        last = y[..., len(w)]
        radius = radius_of_log_sinh(beta * (torch.log(norm) + t) + slope * a + last / c + phi0)
        ctx.save_for_backward(direction, radius, norm, last, square, t, w, beta, slope)
        ctx.width = y.shape[-1]
        return radius, direction

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_radius: Tensor, grad_direction: Tensor) -> tuple[Tensor | None, ...]:
        u, radius, norm, last, square, t, w, beta, slope = ctx.saved_tensors
        c, a = joined(square, t)
        to_l = grad_radius * torch.tanh(radius)
        radial = (beta * to_l - (grad_direction * u).sum(-1)) / norm
        to_h = grad_direction / norm.unsqueeze(-1) + radial.unsqueeze(-1) * u
        to_c = (to_h * w).sum(-1) - to_l * last / c.square()
        some = square > 0
        size = torch.sqrt(torch.where(some, square, torch.ones_like(square)))
        to_square = 0.5 * (to_c + torch.where(some, slope * to_l / size, torch.zeros_like(size))) / c
        blank = u.new_zeros(*u.shape[:-1], ctx.width - len(w) - 1)
        to_y = torch.cat([to_h, (to_l / c).unsqueeze(-1), blank], -1)
        to_w = (to_h * c.unsqueeze(-1)).flatten(0, -2).sum(0)
        to_beta = (to_l * (torch.log(norm) + t)).sum()
        return to_y, to_square, None, to_w, to_beta, (to_l * a).sum(), to_l.sum()


def joined(square: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """cosh A e^-t and A from sinh^2 A e^-2t."""
    tiny = torch.finfo(square.dtype).tiny
    cosh = torch.sqrt((square + torch.exp(-2 * t)).clamp_min(tiny))
    return cosh, scaled_asinh_value(torch.sqrt(square), t)


def finish(
    y: Tensor, square: Tensor, t: Tensor, w: Tensor, beta: Tensor, slope: Tensor, phi0: Tensor
) -> tuple[Tensor, Tensor]:
    """Rescaled radius [...] and direction [..., out] from products y [..., out + 1 + padding], scaled by e^-t like
    `square` = sinh^2 A [...]; column `out` of y is phi's."""
    return _Finish.apply(y, square, t.expand(square.shape), w, beta, slope, phi0)
