"""Which arithmetic a layer uses: matrix products follow autocast, geometry never does.

A radius or a chord in bf16 is noise (docs/numerics.md), so layers switch autocast off around everything but the
matrix product and return float32 (float64 for a float64 model).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from polarvit.geometry import PolarPoint
from polarvit.kernels.pick import full

P = ParamSpec("P")
T = TypeVar("T")


def in_full_precision(function: Callable[P, T]) -> Callable[P, T]:
    """Run a layer's forward with autocast off and its `PolarPoint` arguments in float32 or float64."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        device = next(p.radius.device.type for p in args if isinstance(p, PolarPoint))
        points = [p.map(full) if isinstance(p, PolarPoint) else p for p in args]
        if not torch.is_autocast_enabled(device):
            return function(*points, **kwargs)  # type: ignore[arg-type]
        with torch.autocast(device, enabled=False):
            return function(*points, **kwargs)  # type: ignore[arg-type]

    return wrapper


def tensors_in_full_precision(function: Callable[P, T]) -> Callable[P, T]:
    """The same for layers over plain tensors, ambient points or points of the ball: autocast off, float32 at least."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        device = next(x.device.type for x in args if isinstance(x, Tensor))
        points = [full(x) if isinstance(x, Tensor) else x for x in args]
        if not torch.is_autocast_enabled(device):
            return function(*points, **kwargs)  # type: ignore[arg-type]
        with torch.autocast(device, enabled=False):
            return function(*points, **kwargs)  # type: ignore[arg-type]

    return wrapper


def rough_product(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T: in bf16 under autocast or for bf16 weights, otherwise in the weight's dtype, and returned like that.

    Rows that lie in memory features first (those of joined heads on a GPU) get their gradient features first too.
    """
    dtype = product_dtype(weight, x.device.type)
    if x.ndim == 3 and x.stride(-1) > 1 and x.stride(-2) == 1 and x.stride(0) == x.shape[1]:
        return FromFeatures.apply(x.flatten(0, 1).mT.to(dtype), weight.to(dtype)).unflatten(0, x.shape[:-1])
    return F.linear(x.to(dtype), weight)


def halved(point: PolarPoint) -> bool:
    """Whether autocast will round directions to bfloat16 for the next product: they may as well be made so."""
    device = point.direction.device.type
    return torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16


def product_dtype(weight: Tensor, device: str) -> torch.dtype:
    """What autocast makes of a product with this weight; it leaves float64 alone."""
    if weight.dtype != torch.float64 and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return weight.dtype


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T: in bf16 under autocast or for bf16 weights, otherwise in the weight's dtype; returns full precision."""
    return full(rough_product(x, weight))


class FeaturesFirst(torch.autograd.Function):
    """W x^T for rows x, whose gradient by x is written row by row, as the layer before wants it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return weight @ x.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return grad.mT @ weight if wanted[0] else None, grad @ x if wanted[1] else None


class FromFeatures(torch.autograd.Function):
    """x^T W^T for columns x, whose gradient by x is written column by column."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return x.mT @ weight.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return weight.mT @ grad.mT if wanted[0] else None, grad.mT @ x.mT if wanted[1] else None


def product_features_first(x: Tensor, weight: Tensor) -> Tensor:
    """W x^T, [features, all tokens of x]: a rough product, on a GPU stored so that neighbours are tokens."""
    device = x.device.type
    if device == "cpu":
        return rough_product(x, weight).flatten(0, -2).mT
    dtype = product_dtype(weight, device)
    return FeaturesFirst.apply(x.flatten(0, -2).to(dtype), weight.to(dtype))
