"""Closed-form gradients that cannot be differentiated again, and say so."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Refuse(torch.autograd.Function):
    """Tensors as they are; a derivative of them is an error. `_` is what it would be a derivative by."""

    generate_vmap_rule = True

    @staticmethod
    def forward(_: Tensor, *found: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.clone() for x in found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        raise RuntimeError(
            "polarvit: this gradient is a closed form that is differentiable once: it has no second derivative here "
            "(gradient penalties and Hessians need one)"
        )


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """The backward of an autograd function whose result must not be differentiated.

    PyTorch's `once_differentiable` refuses that only where the incoming gradients depend on something; a closed form
    depends on what was saved too, and would silently count as constant.
    """

    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Tensor) -> Any:
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():
            return found
        by = next((x for x in (*ctx.saved_tensors, *grads) if isinstance(x, Tensor) and x.requires_grad), None)
        if by is None:
            return found
        several = found if isinstance(found, tuple) else (found,)
        marked = iter(_Refuse.apply(by, *(x for x in several if x is not None)))
        told = tuple(None if x is None else next(marked) for x in several)
        return told if isinstance(found, tuple) else told[0]

    return wrapped
