"""The head kernels as PyTorch operators: launches, shapes for tracing, and the autograd formulas."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from polarvit.kernels.heads.triton import merge_backward_kernel, merge_kernel, project_backward_kernel, project_kernel
from polarvit.kernels.outputs import new_output
from polarvit.kernels.sums import sum_rows

MODES = {"none": 0, "separate": 1, "joint": 2}
TURNS = 1
"""Blocks of tokens that a program of the backward kernel takes one after the other."""


def tiles(heads: int, width: int, numbers: int = 8192) -> dict[str, int]:
    """Tile sizes: tokens, and heads and dimensions padded to powers of two."""
    heads_pad, width_pad = triton.next_power_of_2(heads), triton.next_power_of_2(width)
    block = max(1, min(32, numbers // (heads_pad * width_pad)))
    return {"BLOCK": block, "HEADS_PAD": heads_pad, "WIDTH_PAD": width_pad}


def long_tiles(heads: int, width: int) -> dict[str, int]:
    """At least 16 tokens, 64 bytes, where that is not too much."""
    return tiles(heads, width, 4096 if width <= 32 else 8192)


def warps(size: dict[str, int], numbers: int = 16) -> int:
    """So many that a thread holds `numbers` numbers of a tile."""
    count = size["BLOCK"] * size["HEADS_PAD"] * size["WIDTH_PAD"] // (32 * numbers)
    return max(1, min(16, count))


@torch.library.custom_op("polarvit::project_heads", mutates_args=())
def project_op(
    product: Tensor,
    a: Tensor,
    weight: Tensor,
    scalars: Tensor,
    log_gain: Tensor,
    rate: Tensor,
    place: Tensor,
    mode: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Radius [B, H, N] and direction [B, H, d, N] of queries, keys and values."""
    (b, n), heads = a.shape, log_gain.shape[1]
    width = weight.shape[1] // heads
    outputs = _project_outputs(a, heads, width)
    size = tiles(heads, width)
    project_kernel[(triton.cdiv(b * n, size["BLOCK"]), 3)](
        product, a, weight, scalars, log_gain, rate, place, *outputs, b * n, n, 0, 1,
        HEADS=heads, WIDTH=width, MODE=mode, num_warps=warps(size), **size,
    )  # fmt: skip
    return outputs


def _project_outputs(a: Tensor, heads: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    b, n = a.shape
    shapes = ((b, heads, n), (b, heads, width, n)) * 3
    return tuple(new_output(shape, a) for shape in shapes)  # type: ignore[return-value]


@project_op.register_fake
def _(
    product: Tensor,
    a: Tensor,
    weight: Tensor,
    scalars: Tensor,
    log_gain: Tensor,
    rate: Tensor,
    place: Tensor,
    mode: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _project_outputs(a, log_gain.shape[1], weight.shape[1] // log_gain.shape[1])


@torch.library.custom_op("polarvit::project_heads_backward", mutates_args=())
def project_backward_op(
    product: Tensor,
    a: Tensor,
    weight: Tensor,
    scalars: Tensor,
    log_gain: Tensor,
    rate: Tensor,
    place: Tensor,
    grad_query_radius: Tensor,
    grad_query: Tensor,
    grad_key_radius: Tensor,
    grad_key: Tensor,
    grad_value_radius: Tensor,
    grad_value: Tensor,
    mode: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the product; for queries, keys and values those of a, [3, B, N], and those of weight, gain, rate and
    scalars side by side, [3, ...]: the compiler adds up and cuts these together with what follows.
    """
    (b, n), heads = a.shape, log_gain.shape[1]
    width = weight.shape[1] // heads
    size = long_tiles(heads, width)
    points = (grad_query_radius, grad_query, grad_key_radius, grad_key, grad_value_radius, grad_value)
    upstream = [x.contiguous() for x in points]
    programs = triton.cdiv(b * n, size["BLOCK"] * TURNS)
    to_product, to_a = new_output(tuple(product.shape), a, product.dtype), new_output((3, b, n), a)
    partials = new_output((programs, 3, heads * width + 3 * heads + 3), a)
    project_backward_kernel[(programs, 3)](
        product, a, weight, scalars, log_gain, rate, place, *upstream,
        to_product, to_a, partials, b * n, n, product.shape[0] - 3 * heads * width, 0, 1,
        HEADS=heads, WIDTH=width, TURNS=TURNS, MODE=mode, num_warps=warps(size), **size,
    )  # fmt: skip
    # Summed here: how many programs there are is the launch's business and must not show in the operator's shapes.
    return to_product, to_a, sum_rows(partials.flatten(1)).view(3, -1)


@project_backward_op.register_fake
def _(
    product: Tensor,
    a: Tensor,
    weight: Tensor,
    scalars: Tensor,
    log_gain: Tensor,
    rate: Tensor,
    place: Tensor,
    grad_query_radius: Tensor,
    grad_query: Tensor,
    grad_key_radius: Tensor,
    grad_key: Tensor,
    grad_value_radius: Tensor,
    grad_value: Tensor,
    mode: int,
) -> tuple[Tensor, Tensor, Tensor]:
    columns = weight.shape[1] + 3 * log_gain.shape[1] + 3
    to_product = new_output(tuple(product.shape), a, product.dtype)
    return to_product, new_output((3, *a.shape), a), new_output((3, columns), a)


def _save_project(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.mode = inputs
    ctx.save_for_backward(*tensors)


def _project_gradients(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
    to_product, to_a, sums = project_backward_op(*ctx.saved_tensors, *upstream, ctx.mode)
    columns, heads = ctx.saved_tensors[2].shape[1], ctx.saved_tensors[4].shape[1]
    to_weight, to_gain, to_rate, to_scalars = sums.split((columns, heads, 2 * heads, 3), 1)
    to_rate = (to_rate[0] + to_rate[1]).view(heads, 2) if ctx.mode else None
    return to_product, to_a.sum(0), to_weight, to_scalars, to_gain, to_rate, None, None


project_op.register_autograd(_project_gradients, setup_context=_save_project)


def merge_outputs(direction: Tensor, half: bool) -> tuple[Tensor, Tensor]:
    b, heads, width, n = direction.shape
    dtype = torch.bfloat16 if half else torch.float32
    return new_output((b, n), direction), new_output((heads * width, b * n), direction, dtype)


@torch.library.custom_op("polarvit::merge_heads", mutates_args=())
def merge_op(radius: Tensor, direction: Tensor, half: bool = False) -> tuple[Tensor, Tensor]:
    """Radius [B, N] and direction, features first, [H d, B N], of joined heads [B, H, N], [B, H, d, N].

    With `half` the direction is bfloat16.
    """
    b, heads, width, n = direction.shape
    out_radius, out = merge_outputs(direction, half)
    size = long_tiles(heads, width)
    merge_kernel[(triton.cdiv(b * n, size["BLOCK"]),)](
        radius, direction, out_radius, out, b * n, n, 0, HEADS=heads, WIDTH=width, num_warps=warps(size), **size
    )
    return out_radius, out


@merge_op.register_fake
def _(radius: Tensor, direction: Tensor, half: bool = False) -> tuple[Tensor, Tensor]:
    return merge_outputs(direction, half)


@torch.library.custom_op("polarvit::merge_heads_backward", mutates_args=())
def merge_backward_op(radius: Tensor, direction: Tensor, grad_radius: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the heads' radius and direction."""
    b, heads, width, n = direction.shape
    to_radius, to_direction = new_output(tuple(radius.shape), radius), new_output(tuple(direction.shape), radius)
    size = long_tiles(heads, width)
    merge_backward_kernel[(triton.cdiv(b * n, size["BLOCK"]),)](
        radius, direction, grad_radius.contiguous(), grad.contiguous(), to_radius, to_direction, b * n, n, 0,
        HEADS=heads, WIDTH=width, num_warps=warps(size), **size,
    )  # fmt: skip
    return to_radius, to_direction


@merge_backward_op.register_fake
def _(radius: Tensor, direction: Tensor, grad_radius: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return new_output(tuple(radius.shape), radius), new_output(tuple(direction.shape), radius)


def _save_merge(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])


def _merge_gradients(ctx: Any, grad_radius: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    return *merge_backward_op(*ctx.saved_tensors, grad_radius, grad), None


merge_op.register_autograd(_merge_gradients, setup_context=_save_merge)
