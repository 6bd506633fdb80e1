"""Closed-form gradients that cannot be differentiated again, and say so."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Refuse(torch.autograd.Function):
    """Tensors as they are; a derivative of them is an error. The first `count` are what they would be derived by."""

    generate_vmap_rule = True

    @staticmethod
    def forward(count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.clone() for x in tensors[count:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        raise RuntimeError(
            "polarvit: this gradient is a closed form that is differentiable once: it has no second derivative here "
            "(gradient penalties and Hessians need one)"
        )


class _ReadOnce:
    """The context of a backward pass whose saved tensors are unpacked a single time, as checkpointing demands."""

    def __init__(self, ctx: Any) -> None:
        self.saved_tensors = ctx.saved_tensors
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """The backward of an autograd function whose result must not be differentiated.

    PyTorch's `once_differentiable` refuses that only where the incoming gradients depend on something; a closed form
    depends on what was saved too, and would silently count as constant.
    """

    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Tensor) -> Any:
        if not torch.is_grad_enabled():
            return backward(ctx, *grads)
        ctx = _ReadOnce(ctx)
        with torch.no_grad():
            found = backward(ctx, *grads)
        by = [x for x in (*ctx.saved_tensors, *grads) if isinstance(x, Tensor) and x.requires_grad]
        if not by:
            return found
        several = found if isinstance(found, tuple) else (found,)
        marked = iter(_Refuse.apply(len(by), *by, *(x for x in several if x is not None)))
        told = tuple(None if x is None else next(marked) for x in several)
        return told if isinstance(found, tuple) else told[0]

    return wrapped
