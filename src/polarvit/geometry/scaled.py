"""Hyperbolic functions with their growth taken out, and the curvature as a unit of length.

    sh(x) = sinh(x) e^-x,   ch(x) = cosh(x) e^-x

lie in [0, 1] for x >= 0, so an operation that works with them and adds the exponents by hand overflows at no
radius. `k` enters every formula through the rescaled radius a = r / sqrt(k) alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def sqrt_k(k: float | Tensor, like: Tensor) -> float | Tensor:
    """sqrt(k) in the dtype and on the device of `like`; a tensor k keeps its gradient."""
    if isinstance(k, Tensor):
        return k.to(dtype=like.dtype, device=like.device).sqrt()
    return math.sqrt(k)


def rescale(radius: Tensor, k: float | Tensor) -> Tensor:
    """a = r / sqrt(k)."""
    return radius if not isinstance(k, Tensor) and k == 1 else radius / sqrt_k(k, radius)


def restore(a: Tensor, k: float | Tensor) -> Tensor:
    """r = sqrt(k) a."""
    return a if not isinstance(k, Tensor) and k == 1 else a * sqrt_k(k, a)


def sh(x: Tensor) -> Tensor:
    """sinh(x) e^-x for x >= 0."""
    return -0.5 * torch.expm1(-2 * x)


def ch(x: Tensor) -> Tensor:
    """cosh(x) e^-x for x >= 0."""
    return 0.5 * (1 + torch.exp(-2 * x))


def exp_capped(x: Tensor) -> Tensor:
    """e^x, with x held below overflow (80 in float32, 700 in float64).

    Stands where a huge factor meets one that is exactly zero, so that 0 * inf never arises: both are finite here
    and the product is zero.
    """
    return torch.exp(x.clamp_max(700.0 if x.dtype == torch.float64 else 80.0))


def scaled_asinh_value(x: Tensor, s: Tensor) -> Tensor:
    """asinh(e^s x) for x >= 0, s >= 0 of any size, for use inside an autograd function."""
    near = torch.asinh(torch.exp(s.clamp_max(40.0)) * x)
    far = s + torch.log(x + torch.hypot(x, torch.exp(-s)))
    return torch.where(s <= 40, near, far.clamp_min(0.0))


def scaled_asinh_slope(x: Tensor, s: Tensor) -> Tensor:
    """d asinh(e^s x)/dx = 1/hypot(x, e^-s); times x it is the derivative in s. At most e^40, at x = 0."""
    growth = torch.exp(s.clamp_max(40.0))
    near = growth / torch.hypot(growth * x, torch.ones_like(x))
    close = (s <= 40) | (x == 0)
    return torch.where(close, near, 1 / torch.where(close, torch.ones_like(x), torch.hypot(x, torch.exp(-s))))


class _ScaledAsinh(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, s: Tensor) -> Tensor:
        return scaled_asinh_value(x, s)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, s = ctx.saved_tensors
        slope = grad * scaled_asinh_slope(x, s)
        return slope, slope * x


def scaled_asinh(x: Tensor, s: Tensor) -> Tensor:
    """asinh(e^s x) for x >= 0, s >= 0 of any size, with a finite gradient at x = 0."""
    return _ScaledAsinh.apply(*torch.broadcast_tensors(x, s))
