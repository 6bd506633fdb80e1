"""The epilogue kernels as PyTorch operators: launches, shapes for tracing, and the autograd formula."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from polarvit.kernels.linear.triton import backward_kernel, forward_kernel

ACTIVATIONS = {None: 0, "relu": 1, "gelu": 2}
TURNS = 4
"""Blocks of rows that one backward program takes, adding up the gradients of the weights on the way."""


def new_output(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Every tensor a kernel writes comes from here; the tests fill it with NaN first."""
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def block(pad: int) -> int:
    """Rows in a tile of about 2,048 numbers."""
    return max(1, min(16, 2048 // pad))


def programs(rows: int, pad: int) -> int:
    return triton.cdiv(rows, block(pad) * TURNS)


@torch.library.custom_op("polarvit::linear_epilogue", mutates_args=())
def linear_epilogue_op(
    product: Tensor,
    a: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    phi0: Tensor,
    activation: int,
    root_k: float,
) -> tuple[Tensor, Tensor]:
    """Radius [rows] and direction [rows, width] from the product [rows, stride]."""
    rows, width = product.shape[0], time_weight.shape[0]
    pad = triton.next_power_of_2(width)
    radius, direction = new_output((rows,), product), new_output((rows, width), product)
    forward_kernel[(triton.cdiv(rows, block(pad)),)](
        product, a, time_weight, beta, slope, phi0, radius, direction, rows,
        WIDTH=width, STRIDE=product.shape[1], PAD=pad, BLOCK=block(pad), ACTIVATION=activation, ROOT_K=root_k,
        num_warps=4,
    )  # fmt: skip
    return radius, direction


@linear_epilogue_op.register_fake
def _(
    product: Tensor,
    a: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    phi0: Tensor,
    activation: int,
    root_k: float,
) -> tuple[Tensor, Tensor]:
    rows, width = product.shape[0], time_weight.shape[0]
    return new_output((rows,), product), new_output((rows, width), product)


@torch.library.custom_op("polarvit::linear_epilogue_backward", mutates_args=())
def linear_epilogue_backward_op(
    product: Tensor,
    a: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    phi0: Tensor,
    radius: Tensor,
    direction: Tensor,
    grad_radius: Tensor,
    grad: Tensor,
    activation: int,
    root_k: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of product, a, the time weight and (beta, slope, phi0)."""
    rows, width = product.shape[0], time_weight.shape[0]
    pad = triton.next_power_of_2(width)
    count = programs(rows, pad)
    to_product, to_a = new_output(tuple(product.shape), product), new_output((rows,), product)
    to_weight, to_scalars = new_output((count, width), product), new_output((count, 3), product)
    backward_kernel[(count,)](
        product, a, time_weight, beta, slope, phi0, radius, direction, grad_radius.contiguous(), grad.contiguous(),
        to_product, to_a, to_weight, to_scalars, rows,
        WIDTH=width, STRIDE=product.shape[1], PAD=pad, BLOCK=block(pad), TURNS=TURNS,
        ACTIVATION=activation, ROOT_K=root_k, num_warps=4,
    )  # fmt: skip
    # Summed here: how many programs there are is the launch's business and must not show in the operator's shapes.
    return to_product, to_a, to_weight.sum(0), to_scalars.sum(0)


@linear_epilogue_backward_op.register_fake
def _(
    product: Tensor,
    a: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    phi0: Tensor,
    radius: Tensor,
    direction: Tensor,
    grad_radius: Tensor,
    grad: Tensor,
    activation: int,
    root_k: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, width = product.shape[0], time_weight.shape[0]
    shapes = (tuple(product.shape), (rows,), (width,), (3,))
    return tuple(new_output(shape, product) for shape in shapes)  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.activation, ctx.root_k = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, grad_radius: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
    to_product, to_a, to_weight, to_scalars = linear_epilogue_backward_op(
        *ctx.saved_tensors, grad_radius, grad, ctx.activation, ctx.root_k
    )
    beta, slope, phi0 = to_scalars.unbind()
    return to_product, to_a, to_weight, beta, slope, phi0, None, None


linear_epilogue_op.register_autograd(_differentiate, setup_context=_save)
