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


class _ScaledAsinh(torch.autograd.Function):
    """asinh(e^s x) for x >= 0, s >= 0 of any size; gradients 1/hypot(x, e^-s) and x/hypot(x, e^-s)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, s: Tensor) -> Tensor:
        near = torch.asinh(torch.exp(s.clamp_max(40.0)) * x)
        far = s + torch.log(x + torch.sqrt(x * x + torch.exp(-2 * s)))
        return torch.where(s <= 40, near, far.clamp_min(0.0))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, s = ctx.saved_tensors
        # hypot by scaling with e^s, so that neither square underflows: e^s x and 1 (near), x and e^-s (far).
        y = torch.exp(s.clamp_max(40.0)) * x
        cosh_near = torch.sqrt(1 + y * y)
        hypot_far = torch.sqrt(x * x + torch.exp(-2 * s))
        slope_x = torch.where(s <= 40, torch.exp(s.clamp_max(40.0)) / cosh_near, 1 / hypot_far)
        slope_s = torch.where(s <= 40, y / cosh_near, x / hypot_far)
        return grad * slope_x, grad * slope_s


def scaled_asinh(x: Tensor, s: Tensor) -> Tensor:
    """asinh(e^s x): the radius of a point whose space part e^s x was kept with its scale s apart."""
    x, s = torch.broadcast_tensors(x, s)
    return _ScaledAsinh.apply(x, s)  # type: ignore[no-any-return, no-untyped-call]
