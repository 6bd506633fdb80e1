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

from polarvit.kernels.norm.triton import forward_kernel
from polarvit.kernels.norm.triton_backward import backward_kernel


@dataclass(frozen=True)
class Launch:
    """Columns of a tile (it has all rows) and warps."""

    columns: int
    warps: int


def forward_launch(count: int, width: int) -> Launch:
    """Tiles of 4,096 to 8,192 numbers: the three or four a thread holds at a time do not spill."""
    rows = triton.next_power_of_2(count)
    return Launch(tile_columns(rows, width, 4096 if rows <= 128 else 8192), 8 if rows <= 64 else 16)


def backward_launch(count: int, width: int) -> Launch:
    """Five accumulators: half as many."""
    rows = triton.next_power_of_2(count)
    return Launch(tile_columns(rows, width, 2048 if rows <= 128 else 4096), 8 if rows <= 256 else 16)


def tile_columns(rows: int, width: int, numbers: int) -> int:
    """The power of two of columns, at least 8, for a tile of about so many numbers."""
    return min(max(8, numbers // rows), triton.next_power_of_2(width))


def new_output(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Every tensor a kernel writes comes from here; the tests fill it with NaN first."""
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def options(u: Tensor, eps: Tensor | None, launch: Launch) -> dict[str, Any]:
    count, width = u.shape[1:]
    return {
        "WIDTH": width,
        "PAD": triton.next_power_of_2(width),
        "COUNT": triton.next_power_of_2(count),
        "CHUNK": launch.columns,
        "HAS_EPS": eps is not None,
        "num_warps": launch.warps,
        "num_stages": 1,
    }


@torch.library.custom_op("polarvit::gyro_layer_norm", mutates_args=())
def norm_forward(
    a: Tensor, u: Tensor, gain: Tensor, bias: Tensor, eps: Tensor | None, eps_value: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Radius [B, N] and direction [B, N, n]; for backward ubar [B, n], four numbers a token and five a sample.

    `eps`, where it is given, stands for `eps_value` and receives a gradient.
    """
    samples, count, width = u.shape
    shapes = ((samples, count), (samples, count, width), (samples, width), (samples, 4, count), (samples, 5))
    outputs = tuple(new_output(shape, u) for shape in shapes)
    forward_kernel[(samples,)](
        a, u, gain, bias, gain if eps is None else eps, *outputs, count, eps_value,
        **options(u, eps, forward_launch(count, width)),
    )  # fmt: skip
    return outputs  # type: ignore[return-value]


@norm_forward.register_fake
def _(
    a: Tensor, u: Tensor, gain: Tensor, bias: Tensor, eps: Tensor | None, eps_value: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    samples, count, width = u.shape
    shapes = ((samples, count), (samples, count, width), (samples, width), (samples, 4, count), (samples, 5))
    return tuple(new_output(shape, u) for shape in shapes)  # type: ignore[return-value]


@torch.library.custom_op("polarvit::gyro_layer_norm_backward", mutates_args=())
def norm_backward(
    grad_radius: Tensor,
    grad: Tensor,
    a: Tensor,
    u: Tensor,
    gain: Tensor,
    bias: Tensor,
    eps: Tensor | None,
    mean: Tensor,
    token_stats: Tensor,
    stats: Tensor,
    eps_value: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of a and u, and for each sample those of the bias [B, n] and of gain and eps [B, 2]."""
    samples, count, width = u.shape
    shapes = ((samples, count), (samples, count, width), (samples, width), (samples, 2))
    outputs = tuple(new_output(shape, u) for shape in shapes)
    backward_kernel[(samples,)](
        a, u, gain, bias, gain if eps is None else eps, mean, token_stats, stats,
        grad_radius.contiguous(), grad.contiguous(), *outputs, count, eps_value,
        **options(u, eps, backward_launch(count, width)),
    )  # fmt: skip
    return outputs  # type: ignore[return-value]


@norm_backward.register_fake
def _(
    grad_radius: Tensor,
    grad: Tensor,
    a: Tensor,
    u: Tensor,
    gain: Tensor,
    bias: Tensor,
    eps: Tensor | None,
    mean: Tensor,
    token_stats: Tensor,
    stats: Tensor,
    eps_value: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    samples, count, width = u.shape
    shapes = ((samples, count), (samples, count, width), (samples, width), (samples, 2))
    return tuple(new_output(shape, u) for shape in shapes)  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    a, u, gain, bias, eps, ctx.eps_value = inputs
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(a, u, gain, bias, eps, *output[2:])


def _differentiate(
    ctx: Any, grad_radius: Tensor | None, grad: Tensor | None, *_: Tensor | None
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    if grad_radius is None:
        grad_radius = torch.zeros_like(saved[0])
    if grad is None:
        grad = torch.zeros_like(saved[1])
    to_a, to_u, to_bias, to_scalars = norm_backward(grad_radius, grad, *saved, ctx.eps_value)
    to_gain, to_eps = to_scalars.sum(0).unbind()
    return to_a, to_u, to_gain, to_bias.sum(0), None if saved[4] is None else to_eps, None


norm_forward.register_autograd(_differentiate, setup_context=_save)
