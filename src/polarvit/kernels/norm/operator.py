"""The kernels as PyTorch operators: launches, shapes for tracing, and the autograd formula.

`polarvit::gyro_layer_norm` and its backward are opaque to `torch.compile`, read nothing back from the device and
allocate only through `new_output`, so a step that uses them can be captured in a CUDA graph. Tensors are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from polarvit.kernels.norm.divided import divided_centre_kernel, divided_mean_kernel, divided_place_kernel
from polarvit.kernels.norm.divided_backward import (
    NOTES,
    divided_chain_kernel,
    divided_columns_kernel,
    divided_dots_kernel,
    divided_tokens_kernel,
)
from polarvit.kernels.norm.triton import norm_forward_kernel
from polarvit.kernels.norm.triton_backward import norm_backward_kernel
from polarvit.kernels.outputs import new_output
from polarvit.kernels.pieces import pieces
from polarvit.kernels.sums import row_length, sum_rows

LARGEST_HELD = 16384
"""Numbers of a sample's directions that one program keeps in registers; larger samples are divided among programs."""

MOST_HELD = 512
"""Rows that it keeps at most: each brings a chain of scalars."""

GROUP = 32
"""Columns of a program that takes all rows of a divided sample: 128 bytes, which memory likes."""

BLOCK = 64
"""Rows that it takes at a time, sixteen numbers to a thread."""


@dataclass(frozen=True)
class Launch:
    """Columns that lie over the lanes of a warp, rows, warps, and whether the directions stay in registers."""

    lanes: int
    rows: int
    warps: int
    held: bool


def forward_launch(count: int, width: int) -> Launch:
    """Held: eight numbers of a row to a thread. Divided: rows of four warps, at most six chunks of a row to a thread.

    Held, 10.4 us forward and 15.2 backward at 128 x 64 x 192 (H200); twice the warps take 12.6 and 21.1.
    """
    rows, whole = triton.next_power_of_2(count), triton.next_power_of_2(width)
    if rows <= MOST_HELD and rows * width <= LARGEST_HELD:
        lanes = min(32, whole)
        return Launch(lanes, rows, max(1, min(8, rows * lanes // 256)), held=True)
    lanes = min(whole, max(32, triton.next_power_of_2(triton.cdiv(width, 6))))
    return Launch(lanes, min(rows, max(1, 512 // lanes)), 4, held=False)


def backward_launch(count: int, width: int) -> Launch:
    """The same."""
    return forward_launch(count, width)


def by_rows(width: int, launch: Launch) -> dict[str, Any]:
    """Options of a kernel that takes whole rows."""
    return {"WIDTH": width, **pieces(width, launch.lanes), "num_warps": launch.warps, "num_stages": 1}


def by_columns(count: int, width: int) -> dict[str, Any]:
    """Options of a kernel that takes all rows of some columns."""
    rows, lanes = min(BLOCK, triton.next_power_of_2(count)), min(GROUP, triton.next_power_of_2(width))
    return {"WIDTH": width, "ROWS": rows, "LANES": lanes, "num_warps": max(1, rows * lanes // 512)}


def forward_outputs(u: Tensor, half: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    samples, count, width = u.shape
    radius, direction = new_output((samples, count), u), new_output(u.shape, u, torch.bfloat16 if half else u.dtype)
    mean, tokens, stats = (new_output(shape, u) for shape in ((samples, width), (samples, count, 4), (samples, 8)))
    return radius, direction, mean, tokens, stats


@torch.library.custom_op("polarvit::gyro_layer_norm", mutates_args=())
def norm_forward(
    a: Tensor, u: Tensor, gain: Tensor, bias: Tensor, eps: Tensor | None, eps_value: float, half: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Radius [B, N] and direction [B, N, n]; for backward ubar [B, n], four numbers a token and eight a sample.

    `eps`, where it is given, stands for `eps_value` and receives a gradient. With `half` the direction is bfloat16.
    """
    count, width = u.shape[1:]
    launch, outputs = forward_launch(count, width), forward_outputs(u, half)
    radius, direction, mean, tokens, stats = outputs
    known = gain if eps is None else eps
    if launch.held:
        norm_forward_kernel[(len(u),)](
            a, u, gain, bias, known, *outputs, count, eps_value,
            COUNT=launch.rows, HAS_EPS=eps is not None, **by_rows(width, launch),
        )  # fmt: skip
        return outputs
    columns, rows = by_columns(count, width), {"ROWS": launch.rows, **by_rows(width, launch)}
    groups, parts = triton.cdiv(width, columns["LANES"]), triton.cdiv(count, launch.rows)
    of_groups, of_radii = new_output((len(u), groups, 2), u), new_output((len(u), 4), u)
    of_rows = new_output((len(u), parts), u)
    divided_mean_kernel[(len(u), groups)](a, u, mean, of_groups, of_radii, count, **columns)
    divided_centre_kernel[(len(u), parts)](
        a, u, mean, of_groups, of_radii, tokens, stats, of_rows, count, groups, **rows
    )
    divided_place_kernel[(len(u), parts)](
        a, u, gain, bias, known, mean, of_rows, radius, direction, tokens, stats, count, eps_value,
        HAS_EPS=eps is not None, **rows,
    )  # fmt: skip
    return outputs


@norm_forward.register_fake
def _(
    a: Tensor, u: Tensor, gain: Tensor, bias: Tensor, eps: Tensor | None, eps_value: float, half: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return forward_outputs(u, half)


@torch.library.custom_op("polarvit::gyro_layer_norm_backward", mutates_args=())
def norm_backward(
    grad_radius: Tensor,
    grad: Tensor,
    a: Tensor,
    u: Tensor,
    gain: Tensor,
    bias: Tensor,
    mean: Tensor,
    token_stats: Tensor,
    stats: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a and u, and in one vector those of the bias, gain and eps."""
    samples, count, width = u.shape
    launch, line = backward_launch(count, width), row_length(width + 2)
    grad_radius, grad = grad_radius.contiguous(), grad.contiguous()
    to_a, to_u, partials = (new_output(shape, u) for shape in ((samples, count), tuple(u.shape), (samples, line)))
    if launch.held:
        norm_backward_kernel[(samples,)](
            a, u, gain, bias, mean, token_stats, stats, grad_radius, grad, to_a, to_u, partials, count, line,
            COUNT=launch.rows, **by_rows(width, launch),
        )  # fmt: skip
        return to_a, to_u, sum_rows(partials, width + 2)
    columns, rows = by_columns(count, width), {"ROWS": launch.rows, **by_rows(width, launch)}
    groups, parts = triton.cdiv(width, columns["LANES"]), triton.cdiv(count, launch.rows)
    blocks = triton.cdiv(count, columns["ROWS"])
    notes, to_mean = new_output((samples, NOTES.value, count), u), new_output((samples, width), u)
    of_rows, of_blocks = new_output((samples, parts, 4), u), new_output((samples, blocks, 2), u)
    divided_dots_kernel[(samples, parts)](
        a, u, gain, bias, mean, token_stats, stats, grad_radius, grad, notes, of_rows, count, **rows
    )
    divided_chain_kernel[(samples, blocks)](
        a, gain, token_stats, stats, notes, of_rows, of_blocks, partials, count, parts, line,
        WIDTH=width, ROWS=columns["ROWS"], num_warps=4,
    )  # fmt: skip
    divided_columns_kernel[(samples, groups)](
        u, bias, mean, stats, grad, notes, of_rows, of_blocks, to_mean, partials, count, parts, blocks, line, **columns
    )
    divided_tokens_kernel[(samples, parts)](
        a, u, bias, mean, token_stats, stats, grad, notes, of_blocks, to_mean, to_a, to_u, count, blocks, **rows
    )
    return to_a, to_u, sum_rows(partials, width + 2)


@norm_backward.register_fake
def _(
    grad_radius: Tensor,
    grad: Tensor,
    a: Tensor,
    u: Tensor,
    gain: Tensor,
    bias: Tensor,
    mean: Tensor,
    token_stats: Tensor,
    stats: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    return new_output(a.shape, u), new_output(u.shape, u), new_output((u.shape[2] + 2,), u)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    a, u, gain, bias, eps, _, _ = inputs
    ctx.learns_eps = eps is not None
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(a, u, gain, bias, *output[2:])


def _differentiate(
    ctx: Any, grad_radius: Tensor | None, grad: Tensor | None, *_: Tensor | None
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    if grad_radius is None:
        grad_radius = torch.zeros_like(saved[0])
    if grad is None:
        grad = torch.zeros_like(saved[1])
    to_a, to_u, parameters = norm_backward(grad_radius, grad, *saved)
    width = saved[1].shape[2]
    to_gain, to_eps = parameters[width:].unbind()
    return to_a, to_u, to_gain, parameters[:width], to_eps if ctx.learns_eps else None, None, None


norm_forward.register_autograd(_differentiate, setup_context=_save)
