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

from polarvit.kernels.norm.triton import norm_forward_kernel
from polarvit.kernels.norm.triton_backward import norm_backward_kernel
from polarvit.kernels.pieces import pieces
from polarvit.kernels.sums import row_length, sum_rows

LARGEST_HELD = 16384
"""Numbers of a sample's directions that one program keeps in registers."""


@dataclass(frozen=True)
class Launch:
    """Columns of a tile (it has all rows), warps, and whether the directions stay in registers."""

    lanes: int
    warps: int
    held: bool = False


def forward_launch(count: int, width: int) -> Launch:
    """Held: eight numbers of a row to a thread. Else tiles of 4,096 to 8,192 numbers, which do not spill."""
    rows = triton.next_power_of_2(count)
    if rows * width <= LARGEST_HELD:
        return held_launch(rows, width)
    return Launch(tile_columns(rows, width, 4096 if rows <= 128 else 8192), 8 if rows <= 64 else 16)


def backward_launch(count: int, width: int) -> Launch:
    """Five accumulators: half as many."""
    rows = triton.next_power_of_2(count)
    if rows * width <= LARGEST_HELD:
        return held_launch(rows, width)
    return Launch(tile_columns(rows, width, 2048 if rows <= 128 else 4096), 8 if rows <= 256 else 16)


def held_launch(rows: int, width: int) -> Launch:
    """10.4 us forward and 15.2 backward at 128 x 64 x 192 (H200); twice the warps take 12.6 and 21.1."""
    lanes = min(32, triton.next_power_of_2(width))
    return Launch(lanes, max(1, min(8, rows * lanes // 256)), held=True)


def tile_columns(rows: int, width: int, numbers: int) -> int:
    """The power of two of columns, at least 8, for a tile of about so many numbers."""
    return min(max(8, numbers // rows), triton.next_power_of_2(width))


def new_output(shape: tuple[int, ...], like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Every tensor a kernel writes comes from here; the tests fill it with NaN first."""
    return torch.empty(shape, dtype=dtype, device=like.device)


def options(u: Tensor, eps: Tensor | None, launch: Launch) -> dict[str, Any]:
    count, width = u.shape[1:]
    return {
        "WIDTH": width,
        "COUNT": triton.next_power_of_2(count),
        "HAS_EPS": eps is not None,
        "num_warps": launch.warps,
        "num_stages": 1,
        **(pieces(width, launch.lanes) if launch.held else {"LANES": launch.lanes, "HEIGHT": 1, "PIECES": 1}),
    }


def forward_outputs(u: Tensor, half: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    samples, count, width = u.shape
    radius, direction = new_output((samples, count), u), new_output(u.shape, u, torch.bfloat16 if half else u.dtype)
    mean, tokens, stats = (new_output(shape, u) for shape in ((samples, width), (samples, count, 4), (samples, 8)))
    return radius, direction, mean, tokens, stats


@torch.library.custom_op("polarvit::gyro_layer_norm", mutates_args=())
def norm_forward(
    a: Tensor, u: Tensor, gain: Tensor, bias: Tensor, eps: Tensor | None, eps_value: float, half: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Radius [B, N] and direction [B, N, n]; for backward ubar [B, n], four numbers a token and seven a sample.

    `eps`, where it is given, stands for `eps_value` and receives a gradient. With `half` the direction is bfloat16.
    """
    samples, count, width = u.shape
    outputs = forward_outputs(u, half)
    norm_forward_kernel[(samples,)](
        a, u, gain, bias, gain if eps is None else eps, *outputs, count, eps_value,
        **options(u, eps, forward_launch(count, width)),
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
    eps: Tensor | None,
    mean: Tensor,
    token_stats: Tensor,
    stats: Tensor,
    eps_value: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a and u, and in one vector those of the bias, gain and eps."""
    samples, count, width = u.shape
    columns = row_length(width + 2)
    to_a, to_u, partials = (new_output(shape, u) for shape in ((samples, count), tuple(u.shape), (samples, columns)))
    norm_backward_kernel[(samples,)](
        a, u, gain, bias, gain if eps is None else eps, mean, token_stats, stats,
        grad_radius.contiguous(), grad.contiguous(), to_a, to_u, partials, count, eps_value, columns,
        **options(u, eps, backward_launch(count, width)),
    )  # fmt: skip
    return to_a, to_u, sum_rows(partials, width + 2)


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
) -> tuple[Tensor, Tensor, Tensor]:
    return new_output(a.shape, u), new_output(u.shape, u), new_output((u.shape[2] + 2,), u)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    a, u, gain, bias, eps, ctx.eps_value, _ = inputs
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
    to_a, to_u, parameters = norm_backward(grad_radius, grad, *saved, ctx.eps_value)
    width = saved[1].shape[2]
    to_gain, to_eps = parameters[width:].unbind()
    return to_a, to_u, to_gain, parameters[:width], None if saved[4] is None else to_eps, None, None


norm_forward.register_autograd(_differentiate, setup_context=_save)
