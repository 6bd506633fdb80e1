"""The kernels as PyTorch operators: launches, shapes for tracing, and the autograd formula.

`polarvit::boost_residual` and its backward are opaque to `torch.compile`, read nothing back from the device and
allocate only through `new_output`, so a step that uses them can be captured in a CUDA graph. Tensors are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from polarvit.kernels.outputs import new_output
from polarvit.kernels.pieces import lanes, pieces
from polarvit.kernels.residual.triton import residual_forward_kernel
from polarvit.kernels.residual.triton_backward import residual_backward_kernel
from polarvit.kernels.sums import sum_rows

LARGEST_HELD = 16384
"""Numbers of a sample's directions that one program keeps in registers."""


@dataclass(frozen=True)
class Launch:
    """Columns and rows of a tile, warps, and the number of programs that share a sample."""

    lanes: int
    rows: int
    warps: int
    split: int = 1


def forward_launch(count: int, width: int) -> Launch:
    """A whole sample where it fits; else a program walks over its sample twice."""
    rows = triton.next_power_of_2(count)
    if rows * width <= LARGEST_HELD:
        return Launch(lanes(width), rows, max(1, min(16, rows * lanes(width) // 128)))
    return Launch(lanes(width), max(1, min(rows, 1024 // lanes(width))), 8, 4)


def backward_launch(count: int, width: int) -> Launch:
    """Rows do not depend on each other: small tiles, many programs."""
    return Launch(lanes(width), max(1, min(triton.next_power_of_2(count), 1024 // lanes(width))), 8)


@torch.library.custom_op("polarvit::boost_residual", mutates_args=())
def residual_forward(
    a: Tensor, u: Tensor, b: Tensor, v: Tensor, size: Tensor, kept: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Radius [B, N] and direction [B, N, n] of the moved tokens, and their radius with its sign for backward."""
    samples, count, width = u.shape
    launch = forward_launch(count, width)
    radius, direction, signed = new_output((samples, count), u), new_output(tuple(u.shape), u), new_output(a.shape, u)
    residual_forward_kernel[(samples, launch.split)](
        a, u, b, v, size, size if kept is None else kept, radius, direction, signed, count,
        WIDTH=width, ROWS=launch.rows, SPLIT=launch.split, WHOLE=launch.split == 1 and launch.rows >= count,
        HAS_KEPT=kept is not None, num_warps=launch.warps, **pieces(width, launch.lanes),
    )  # fmt: skip
    return radius, direction, signed


@residual_forward.register_fake
def _(a: Tensor, u: Tensor, b: Tensor, v: Tensor, size: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    return new_output(a.shape, u), new_output(u.shape, u), new_output(a.shape, u)


@torch.library.custom_op("polarvit::boost_residual_backward", mutates_args=())
def residual_backward(
    grad_radius: Tensor,
    grad: Tensor,
    a: Tensor,
    u: Tensor,
    b: Tensor,
    v: Tensor,
    size: Tensor,
    kept: Tensor | None,
    signed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of a, u, b, v and size."""
    samples, count, width = u.shape
    launch = backward_launch(count, width)
    blocks = triton.cdiv(count, launch.rows)
    to_a, to_u, to_b, to_v = (new_output(tuple(x.shape), x) for x in (a, u, b, v))
    partials = new_output((samples * blocks, 1), u)
    residual_backward_kernel[(samples, blocks)](
        a, u, b, v, size, size if kept is None else kept, signed, grad_radius.contiguous(), grad.contiguous(),
        to_a, to_u, to_b, to_v, partials, count,
        WIDTH=width, ROWS=launch.rows, COUNT=triton.next_power_of_2(count), HAS_KEPT=kept is not None,
        num_warps=launch.warps, **pieces(width, launch.lanes),
    )  # fmt: skip
    # Summed here: how many blocks there are is the launch's business and must not show in the operator's shapes.
    return to_a, to_u, to_b, to_v, sum_rows(partials).view(())


@residual_backward.register_fake
def _(
    grad_radius: Tensor,
    grad: Tensor,
    a: Tensor,
    u: Tensor,
    b: Tensor,
    v: Tensor,
    size: Tensor,
    kept: Tensor | None,
    signed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return tuple(new_output(x.shape, x) for x in (a, u, b, v, size))  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(*inputs, output[2])


def _differentiate(
    ctx: Any, grad_radius: Tensor | None, grad: Tensor | None, _signed: Tensor | None
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    if grad_radius is None:
        grad_radius = torch.zeros_like(saved[0])
    if grad is None:
        grad = torch.zeros_like(saved[1])
    return (*residual_backward(grad_radius, grad, *saved), None)


residual_forward.register_autograd(_differentiate, setup_context=_save)
