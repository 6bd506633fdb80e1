"""The epilogue kernels as PyTorch operators: launches, shapes for tracing, and the autograd formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from polarvit.kernels.linear.triton import linear_backward_kernel, linear_forward_kernel
from polarvit.kernels.outputs import new_output
from polarvit.kernels.pieces import lanes, pieces
from polarvit.kernels.sums import row_length, sum_rows

ACTIVATIONS = {None: 0, "relu": 1, "gelu": 2}


@dataclass(frozen=True)
class Launch:
    """Columns of a tile, warps, and programs at most (backward: each then takes several blocks of rows in turn)."""

    lanes: int
    warps: int
    programs: int = 1024

    @property
    def rows(self) -> int:
        """Rows of a tile: four numbers to a thread."""
        return max(1, 128 * self.warps // self.lanes)


def forward_launch(width: int, activation: int) -> Launch:
    return Launch(lanes(width), 4)


def backward_launch(width: int, activation: int) -> Launch:
    """Two programs for each of 132 multiprocessors: 8.1 us at 8192 x 192 and 14.9 at 8192 x 384 with GELU (H200).

    A wide row lies in three chunks over 128 threads or more: half the registers, twice the warps.
    """
    if width > 1024:
        row = triton.next_power_of_2(triton.cdiv(width, 3))
        return Launch(row, row // 128, 264 * 1024 // row)
    return Launch(lanes(width), 4, 264)


def forward_outputs(product: Tensor, width: int, half: bool) -> tuple[Tensor, Tensor, Tensor]:
    rows, dtype = product.shape[0], torch.bfloat16 if half else torch.float32
    return new_output((rows,), product), new_output((rows, width), product, dtype), new_output((rows,), product)


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
    half: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Radius [rows] and direction [rows, width] from the product [rows, stride]; |h| [rows] for backward.

    With `half` the direction is bfloat16.
    """
    rows, width = product.shape[0], time_weight.shape[0]
    launch = forward_launch(width, activation)
    radius, direction, norm = forward_outputs(product, width, half)
    linear_forward_kernel[(triton.cdiv(rows, launch.rows),)](
        product, a, time_weight, beta, slope, phi0, radius, direction, norm, rows,
        WIDTH=width, STRIDE=product.shape[1], BLOCK=launch.rows,
        ACTIVATION=activation, ROOT_K=root_k, num_warps=launch.warps, **pieces(width, launch.lanes),
    )  # fmt: skip
    return radius, direction, norm


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
    half: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    return forward_outputs(product, time_weight.shape[0], half)


@torch.library.custom_op("polarvit::linear_epilogue_backward", mutates_args=())
def linear_epilogue_backward_op(
    product: Tensor,
    a: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    radius: Tensor,
    norm: Tensor,
    grad_radius: Tensor,
    grad: Tensor,
    activation: int,
    root_k: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of product and a, and in one vector those of the time weight, beta, slope and phi0."""
    (rows, stride), width = product.shape, time_weight.shape[0]
    launch = backward_launch(width, activation)
    blocks = triton.cdiv(rows, launch.rows)
    turns = triton.cdiv(blocks, launch.programs)
    programs, columns = triton.cdiv(blocks, turns), row_length(width + 3)
    to_product, to_a = new_output((rows, stride), product, product.dtype), new_output((rows,), product)
    partials = new_output((programs, columns), product)
    linear_backward_kernel[(programs,)](
        product, a, time_weight, beta, slope, radius, norm, grad_radius.contiguous(), grad.contiguous(),
        to_product, to_a, partials, rows, columns,
        WIDTH=width, STRIDE=stride, EXTRA=triton.next_power_of_2(stride - width),
        BLOCK=launch.rows, TURNS=turns, ACTIVATION=activation, ROOT_K=root_k, num_warps=launch.warps,
        **pieces(width, launch.lanes),
    )  # fmt: skip
    # Summed here: how many programs there are is the launch's business and must not show in the operator's shapes.
    return to_product, to_a, sum_rows(partials, width + 3)


@linear_epilogue_backward_op.register_fake
def _(
    product: Tensor,
    a: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    radius: Tensor,
    norm: Tensor,
    grad_radius: Tensor,
    grad: Tensor,
    activation: int,
    root_k: float,
) -> tuple[Tensor, Tensor, Tensor]:
    to_product = new_output(tuple(product.shape), product, product.dtype)
    return to_product, new_output((product.shape[0],), product), new_output((time_weight.shape[0] + 3,), product)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    product, a, time_weight, beta, slope, _, ctx.activation, ctx.root_k, _ = inputs
    radius, _, norm = output
    ctx.mark_non_differentiable(norm)
    ctx.save_for_backward(product, a, time_weight, beta, slope, radius, norm)


def _differentiate(
    ctx: Any, grad_radius: Tensor | None, grad: Tensor | None, _norm: Tensor | None
) -> tuple[Tensor | None, ...]:
    product, a, time_weight, *_ = ctx.saved_tensors
    width = time_weight.shape[0]
    if grad_radius is None:
        grad_radius = torch.zeros_like(a)
    if grad is None:
        grad = a.new_zeros(product.shape[0], width)
    to_product, to_a, parameters = linear_epilogue_backward_op(
        *ctx.saved_tensors, grad_radius, grad, ctx.activation, ctx.root_k
    )
    beta, slope, phi0 = parameters[width:].unbind()
    return to_product, to_a, parameters[:width], beta, slope, phi0, None, None, None


linear_epilogue_op.register_autograd(_differentiate, setup_context=_save)
