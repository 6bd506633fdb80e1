"""The kernels as PyTorch operators: launches, shapes for tracing, and the autograd formula.

`polarvit::step_residual` and its backward are opaque to `torch.compile`, read nothing back from the device and allocate
only through `new_output`, so a step that uses them can be captured in a CUDA graph. Tensors are contiguous.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from polarvit.kernels.outputs import new_output
from polarvit.kernels.pieces import lanes, pieces
from polarvit.kernels.residual.operator import Launch, forward_launch
from polarvit.kernels.step.triton import step_forward_kernel
from polarvit.kernels.step.triton_backward import step_backward_kernel
from polarvit.kernels.sums import row_length, sum_rows

MOST_SUMS = 2048
"""Programs at most that leave partial sums; beyond, each takes several blocks of rows in turn."""


def backward_launch(count: int, width: int) -> Launch:
    """Half the rows and warps of the residual's: three programs fit where a thread needs 168 registers or fewer."""
    return Launch(lanes(width), max(1, min(triton.next_power_of_2(count), 512 // lanes(width))), 4)


@torch.library.custom_op("polarvit::step_residual", mutates_args=())
def step_forward(
    a: Tensor,
    u: Tensor,
    product: Tensor,
    c: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    phi0: Tensor,
    size: Tensor,
    kept: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Radius [B, N] and direction [B, N, n] of the moved tokens; their radius with its sign, and radius and |h| of
    the steps, for backward."""
    (samples, count, width), stride = u.shape, product.shape[-1]
    launch = forward_launch(count, width)
    radius, signed, step, norm = (new_output((samples, count), u) for _ in range(4))
    direction = new_output((samples, count, width), u)
    step_forward_kernel[(samples, launch.split)](
        a, u, product, c, time_weight, beta, slope, phi0, size, size if kept is None else kept,
        radius, direction, signed, step, norm, count,
        WIDTH=width, STRIDE=stride, ROWS=launch.rows, SPLIT=launch.split,
        WHOLE=launch.split == 1 and launch.rows >= count, HAS_KEPT=kept is not None, num_warps=launch.warps,
        **pieces(width, launch.lanes),
    )  # fmt: skip
    return radius, direction, signed, step, norm


@step_forward.register_fake
def _(a: Tensor, u: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    signed, step, norm = (new_output(tuple(a.shape), u) for _ in range(3))
    return new_output(tuple(a.shape), u), new_output(tuple(u.shape), u), signed, step, norm


@torch.library.custom_op("polarvit::step_residual_backward", mutates_args=())
def step_backward(
    grad_radius: Tensor,
    grad: Tensor,
    a: Tensor,
    u: Tensor,
    product: Tensor,
    c: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    size: Tensor,
    kept: Tensor | None,
    signed: Tensor,
    step: Tensor,
    norm: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of a, u, product and c, and in one vector those of the time weight, beta, slope, phi0 and size."""
    (samples, count, width), stride = u.shape, product.shape[-1]
    launch = backward_launch(count, width)
    blocks, columns = triton.cdiv(count, launch.rows), row_length(width + 4)
    turns = min(blocks, triton.cdiv(samples * blocks, MOST_SUMS))
    programs = triton.cdiv(blocks, turns)
    to_a, to_u, to_c = (new_output(tuple(x.shape), x) for x in (a, u, c))
    to_product = new_output(tuple(product.shape), product, product.dtype)
    partials = new_output((samples * programs, columns), u)
    step_backward_kernel[(samples, programs)](
        a, u, product, c, time_weight, beta, slope, size, size if kept is None else kept, signed, step, norm,
        grad_radius.contiguous(), grad.contiguous(), to_a, to_u, to_product, to_c, partials, count, columns,
        WIDTH=width, STRIDE=stride, EXTRA=triton.next_power_of_2(stride - width), ROWS=launch.rows,
        COUNT=triton.next_power_of_2(count), TURNS=turns, HAS_KEPT=kept is not None, num_warps=launch.warps,
        **pieces(width, launch.lanes),
    )  # fmt: skip
    # Summed here: how many programs there are is the launch's business and must not show in the operator's shapes.
    return to_a, to_u, to_product, to_c, sum_rows(partials, width + 4)


@step_backward.register_fake
def _(
    grad_radius: Tensor, grad: Tensor, a: Tensor, u: Tensor, product: Tensor, c: Tensor, time_weight: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    to_a, to_u, to_c = (new_output(tuple(x.shape), x) for x in (a, u, c))
    to_product = new_output(tuple(product.shape), product, product.dtype)
    return to_a, to_u, to_product, to_c, new_output((time_weight.shape[0] + 4,), u)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    a, u, product, c, time_weight, beta, slope, _phi0, size, kept = inputs
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(a, u, product, c, time_weight, beta, slope, size, kept, *output[2:])


def _differentiate(
    ctx: Any, grad_radius: Tensor | None, grad: Tensor | None, *_: Tensor | None
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    if grad_radius is None:
        grad_radius = torch.zeros_like(saved[0])
    if grad is None:
        grad = torch.zeros_like(saved[1])
    to_a, to_u, to_product, to_c, parameters = step_backward(grad_radius, grad, *saved)
    width = saved[4].shape[0]
    return to_a, to_u, to_product, to_c, parameters[:width], *parameters[width:].unbind(), None


step_forward.register_autograd(_differentiate, setup_context=_save)
