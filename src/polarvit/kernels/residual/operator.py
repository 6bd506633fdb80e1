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

from polarvit.kernels.residual.triton import forward_kernel
from polarvit.kernels.residual.triton_backward import backward_kernel


@dataclass(frozen=True)
class Launch:
    """Rows of a tile, warps, and the number of programs that share a sample."""

    rows: int
    warps: int
    split: int = 1


def forward_launch(count: int, width: int) -> Launch:
    """A program walks over its sample twice: wide tiles keep many loads in flight."""
    return Launch(tile_rows(count, width, 8192), 8)


def backward_launch(count: int, width: int) -> Launch:
    """Rows do not depend on each other: small tiles, many programs."""
    return Launch(tile_rows(count, width, 1024), 4)


def tile_rows(count: int, width: int, numbers: int) -> int:
    """The power of two of rows for a tile of about so many numbers, no more than there are rows."""
    return max(1, min(numbers // triton.next_power_of_2(width), triton.next_power_of_2(count)))


def new_output(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Every tensor a kernel writes comes from here; the tests fill it with NaN first."""
    return torch.empty(shape, dtype=torch.float32, device=like.device)


@torch.library.custom_op("polarvit::boost_residual", mutates_args=())
def residual_forward(a: Tensor, u: Tensor, b: Tensor, v: Tensor, size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Radius [B, N] and direction [B, N, n] of the moved tokens, and their radius with its sign for backward."""
    samples, count, width = u.shape
    launch = forward_launch(count, width)
    radius, direction, signed = new_output((samples, count), u), new_output(tuple(u.shape), u), new_output(a.shape, u)
    forward_kernel[(samples, launch.split)](
        a, u, b, v, size, radius, direction, signed, count, min(size.ndim, 1),
        WIDTH=width, PAD=triton.next_power_of_2(width), ROWS=launch.rows, SPLIT=launch.split, num_warps=launch.warps,
    )  # fmt: skip
    return radius, direction, signed


@residual_forward.register_fake
def _(a: Tensor, u: Tensor, b: Tensor, v: Tensor, size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return new_output(a.shape, u), new_output(u.shape, u), new_output(a.shape, u)


@torch.library.custom_op("polarvit::boost_residual_backward", mutates_args=())
def residual_backward(
    grad_radius: Tensor, grad: Tensor, a: Tensor, u: Tensor, b: Tensor, v: Tensor, size: Tensor, signed: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients in the order of the forward's arguments; that of size for each sample [B]."""
    samples, count, width = u.shape
    launch = backward_launch(count, width)
    blocks = triton.cdiv(count, launch.rows)
    to_a, to_u, to_b, to_v = (new_output(tuple(x.shape), x) for x in (a, u, b, v))
    to_size = new_output((samples, blocks), u)
    backward_kernel[(samples, blocks)](
        a, u, b, v, size, signed, grad_radius.contiguous(), grad.contiguous(), to_a, to_u, to_b, to_v, to_size,
        count, min(size.ndim, 1),
        WIDTH=width, PAD=triton.next_power_of_2(width), ROWS=launch.rows, COUNT=triton.next_power_of_2(count),
        num_warps=launch.warps,
    )  # fmt: skip
    # Summed here: how many blocks there are is the launch's business and must not show in the operator's shapes.
    return to_a, to_u, to_b, to_v, to_size.sum(1)


@residual_backward.register_fake
def _(
    grad_radius: Tensor, grad: Tensor, a: Tensor, u: Tensor, b: Tensor, v: Tensor, size: Tensor, signed: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (*(new_output(x.shape, x) for x in (a, u, b, v)), new_output((u.shape[0],), u))  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(*inputs, output[2])


def _differentiate(
    ctx: Any, grad_radius: Tensor | None, grad: Tensor | None, _signed: Tensor | None
) -> tuple[Tensor, ...]:
    saved = ctx.saved_tensors
    if grad_radius is None:
        grad_radius = torch.zeros_like(saved[0])
    if grad is None:
        grad = torch.zeros_like(saved[1])
    *gradients, to_size = residual_backward(grad_radius, grad, *saved)
    return (*gradients, to_size.sum() if saved[4].ndim == 0 else to_size)


residual_forward.register_autograd(_differentiate, setup_context=_save)
