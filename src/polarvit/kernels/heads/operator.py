"""The head kernels as PyTorch operators: launches, shapes for tracing, and the autograd formulas."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from polarvit.kernels.heads.triton import merge_backward_kernel, merge_kernel, project_backward_kernel, project_kernel

MODES = {"none": 0, "separate": 1, "joint": 2}


def new_output(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Every tensor a kernel writes comes from here; the tests fill it with NaN first."""
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def tiles(heads: int, width: int, numbers: int = 1024) -> dict[str, int]:
    """Tile sizes: tokens, and heads and dimensions padded to powers of two.

    Heads are stored dimension first, so a run of memory is as long as the block of tokens: the longer the better.
    """
    heads_pad, width_pad = triton.next_power_of_2(heads), triton.next_power_of_2(width)
    block = max(1, min(8, numbers // (heads_pad * width_pad)))
    return {"BLOCK": block, "HEADS_PAD": heads_pad, "WIDTH_PAD": width_pad}


def launches(mode: int) -> tuple[tuple[int, int, int], ...]:
    """(first, count, mode): queries and keys are shifted, values are not."""
    return ((0, 3, 0),) if mode == 0 else ((0, 2, mode), (2, 1, 0))


def shares(tokens: int, block: int) -> tuple[int, int]:
    """Programs for each sample in backward, and blocks that each takes."""
    blocks = triton.cdiv(tokens, block)
    turns = min(blocks, 4)
    return triton.cdiv(blocks, turns), turns


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
) -> tuple[Tensor, Tensor]:
    """Radius [3, B, H, N] and direction [3, B, H, d, N] of queries, keys and values."""
    (b, n), heads = a.shape, log_gain.shape[1]
    width = weight.shape[1] // heads
    radius, direction = new_output((3, b, heads, n), a), new_output((3, b, heads, width, n), a)
    size = tiles(heads, width)
    for first, count, shift in launches(mode):
        project_kernel[(b, triton.cdiv(n, size["BLOCK"]), count)](
            product, a, weight, scalars, log_gain, rate, place, radius, direction, b, n, first,
            HEADS=heads, WIDTH=width, STRIDE=product.shape[-1], MODE=shift, num_warps=1, **size,
        )  # fmt: skip
    return radius, direction


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
) -> tuple[Tensor, Tensor]:
    (b, n), heads = a.shape, log_gain.shape[1]
    return new_output((3, b, heads, n), a), new_output((3, b, heads, weight.shape[1] // heads, n), a)


@torch.library.custom_op("polarvit::project_heads_backward", mutates_args=())
def project_backward_op(
    product: Tensor,
    a: Tensor,
    weight: Tensor,
    scalars: Tensor,
    log_gain: Tensor,
    rate: Tensor,
    place: Tensor,
    grad_radius: Tensor,
    grad: Tensor,
    mode: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of product, a, weight, scalars, gain and rate."""
    (b, n), heads = a.shape, log_gain.shape[1]
    width = weight.shape[1] // heads
    size = tiles(heads, width, 512)
    parts, turns = shares(n, size["BLOCK"])
    out = _backward_outputs(product, a, weight, log_gain, b * parts)
    for first, count, shift in launches(mode):
        project_backward_kernel[(b, parts, count)](
            product, a, weight, scalars, log_gain, rate, place, grad_radius.contiguous(), grad.contiguous(),
            *out, b, n, first,
            HEADS=heads, WIDTH=width, STRIDE=product.shape[-1], MODE=shift, TURNS=turns, num_warps=1, **size,
        )  # fmt: skip
    to_product, to_a, to_weight, to_scalars, to_gain, to_rate = out
    # Summed here: how many programs there are is the launch's business and must not show in the operator's shapes.
    parameters = (to_weight.sum(0), to_scalars.sum(0), to_gain.sum(0), to_rate[:, :2].sum((0, 1)))
    return to_product, to_a.sum(0), *parameters


def _backward_outputs(
    product: Tensor, a: Tensor, weight: Tensor, log_gain: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    heads = log_gain.shape[1]
    shapes = (
        tuple(product.shape), (3, *a.shape), (count, *weight.shape), (count, 3, 3), (count, 3, heads),
        (count, 3, heads, 2),
    )  # fmt: skip
    return tuple(new_output(shape, a) for shape in shapes)  # type: ignore[return-value]


@project_backward_op.register_fake
def _(
    product: Tensor,
    a: Tensor,
    weight: Tensor,
    scalars: Tensor,
    log_gain: Tensor,
    rate: Tensor,
    place: Tensor,
    grad_radius: Tensor,
    grad: Tensor,
    mode: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    like = (product, a, weight, scalars, log_gain)
    return *(new_output(tuple(x.shape), a) for x in like), new_output((log_gain.shape[1], 2), a)  # type: ignore[return-value]


def _save_project(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.mode = inputs
    ctx.save_for_backward(*tensors)


def _project_gradients(ctx: Any, grad_radius: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
    to_product, to_a, to_weight, to_scalars, to_gain, to_rate = project_backward_op(
        *ctx.saved_tensors, grad_radius, grad, ctx.mode
    )
    return to_product, to_a, to_weight, to_scalars, to_gain, to_rate if ctx.mode else None, None, None


project_op.register_autograd(_project_gradients, setup_context=_save_project)


@torch.library.custom_op("polarvit::merge_heads", mutates_args=())
def merge_op(radius: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """Radius [B, N] and direction [B, N, H d] of joined heads [B, H, N], [B, H, d, N]."""
    b, heads, width, n = direction.shape
    out_radius, out = new_output((b, n), radius), new_output((b, n, heads * width), radius)
    size = tiles(heads, width)
    merge_kernel[(b, triton.cdiv(n, size["BLOCK"]))](
        radius, direction, out_radius, out, n, HEADS=heads, WIDTH=width, num_warps=1, **size
    )
    return out_radius, out


@merge_op.register_fake
def _(radius: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    b, heads, width, n = direction.shape
    return new_output((b, n), radius), new_output((b, n, heads * width), radius)


@torch.library.custom_op("polarvit::merge_heads_backward", mutates_args=())
def merge_backward_op(radius: Tensor, direction: Tensor, grad_radius: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the heads' radius and direction."""
    b, heads, width, n = direction.shape
    to_radius, to_direction = new_output(tuple(radius.shape), radius), new_output(tuple(direction.shape), radius)
    size = tiles(heads, width)
    merge_backward_kernel[(b, triton.cdiv(n, size["BLOCK"]))](
        radius, direction, grad_radius.contiguous(), grad.contiguous(), to_radius, to_direction, n,
        HEADS=heads, WIDTH=width, num_warps=1, **size,
    )  # fmt: skip
    return to_radius, to_direction


@merge_backward_op.register_fake
def _(radius: Tensor, direction: Tensor, grad_radius: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return new_output(tuple(radius.shape), radius), new_output(tuple(direction.shape), radius)


def _save_merge(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _merge_gradients(ctx: Any, grad_radius: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return merge_backward_op(*ctx.saved_tensors, grad_radius, grad)


merge_op.register_autograd(_merge_gradients, setup_context=_save_merge)
