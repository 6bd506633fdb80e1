"""The kernels as PyTorch operators: launches, shapes for tracing, and the autograd formula.

`polarvit::attention` and `polarvit::attention_backward` are opaque to `torch.compile` (no graph break), read nothing
back from the device and allocate only through `new_output`, so a step that uses them can be captured in a CUDA graph.
Curvature stays outside: the operators see rescaled radii a = r/sqrt(k) and one coefficient of D^2 for each head.
All their tensors are contiguous, and directions are [B, H, d, N], dimension first: neighbouring threads are
neighbouring points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from polarvit.kernels.attention.backward import attention_key_kernel, attention_query_kernel
from polarvit.kernels.attention.forward import attention_forward_kernel
from polarvit.kernels.attention.keys import ENTRIES, attention_pack_kernel
from polarvit.kernels.attention.tile_backward import tile_key_kernel, tile_query_kernel
from polarvit.kernels.attention.tile_forward import tile_forward_kernel

WIDEST_FORWARD, WIDEST_BACKWARD = 64, 32
"""Heads up to here give each query a thread of its own; its numbers would not fit into registers beyond."""


@dataclass(frozen=True)
class Launch:
    """Queries (or keys) of a program, its warps, and how many registers a thread may have at most."""

    block: int
    warps: int
    registers: int | None = None

    def options(self) -> dict[str, Any]:
        options = {"BLOCK": self.block, "num_warps": self.warps, "num_stages": 1}
        return options if self.registers is None else {**options, "maxnreg": self.registers}


@dataclass(frozen=True)
class Tile:
    """Block sizes, warps and unrolling of a launch over tiles of pairs, and how its products are taken."""

    rows: int
    columns: int
    warps: int = 4
    unroll: int = 4
    precision: str = ""


def forward_launch(width: int, n: int) -> Launch:
    """Two queries a thread share the loads of a key, where registers allow it."""
    return Launch(64, 1) if width <= 32 and n > 32 else Launch(32, 1)


def backward_launch(width: int, n: int) -> Launch:
    """One query, or key, a thread."""
    return Launch(64, 2) if n > 32 else Launch(32, 1)


def sharp_products() -> str:
    """How products of float32 tiles are taken: as sharp as float32, on the tensor cores.

    Both the centroid (measured against eps) and its gradient (differences of nearly equal sums) need all 24 bits.
    `bf16x6` splits each factor into three bfloat16 and keeps them; `tf32x3`, where a Triton lacks it, keeps 22;
    `ieee` would leave the tensor cores and spill. The interpreter computes in float32 whatever it is told.
    """
    if triton.knobs.runtime.interpret:
        return "ieee"
    from triton.backends.nvidia.compiler import CUDAOptions

    return "bf16x6" if "bf16x6" in CUDAOptions.allowed_dot_input_precisions else "tf32x3"


def fitting(length: int, largest: int) -> int:
    """The smallest block of 16, 32 or 64 that holds `length`, or the largest allowed."""
    return next((size for size in (16, 32) if length <= size and size <= largest), largest)


def forward_tile(n: int, m: int) -> Tile:
    """64 rows are one warp group of the tensor cores; few keys at a time fit into registers without spilling."""
    return Tile(fitting(n, 64), fitting(m, 32), unroll=8, precision=sharp_products())


def backward_tile(n: int, m: int) -> Tile:
    return Tile(fitting(n, 32), fitting(m, 64), precision=sharp_products())


def padded(width: int, least: int = 1) -> int:
    """The power of two that holds `width`; a product needs at least 16."""
    return max(least, triton.next_power_of_2(width))


def new_output(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Every tensor a kernel writes comes from here; the tests fill it with NaN first."""
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def packed_keys(key_radius: Tensor, key: Tensor, value_radius: Tensor, value: Tensor) -> Tensor:
    """A row for each key with all that queries ask of it."""
    (b, h, width, m), value_width = key.shape, value.shape[2]
    packed = new_output((b, h, m, width + value_width + ENTRIES.value), key)
    block = fitting(m, 64)
    attention_pack_kernel[(b * h, triton.cdiv(m, block))](
        key_radius, key, value_radius, value, packed, m,
        WIDTH=width, PAD=padded(width), VALUE_WIDTH=value_width, VALUE_PAD=padded(value_width), BLOCK=block,
        num_warps=2,
    )  # fmt: skip
    return packed


@torch.library.custom_op("polarvit::attention", mutates_args=())
def attention_forward(
    query_radius: Tensor,
    query: Tensor,
    key_radius: Tensor,
    key: Tensor,
    value_radius: Tensor,
    value: Tensor,
    scale: Tensor,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Radius [B, H, N] and direction [B, H, e, N] of the attended centroids, and four numbers a row for backward."""
    b, h, width, n = query.shape
    value_width, m = value.shape[-2:]
    widest = max(width, value_width)
    outputs = new_output((b, h, n), query), new_output((b, h, value_width, n), query), new_output((b, h, 4, n), query)
    attend = scale if mask is None else mask.view(torch.uint8)
    sizes: dict[str, Any] = {"WIDTH": width, "VALUE_WIDTH": value_width, "HAS_MASK": mask is not None}
    if widest <= WIDEST_FORWARD:
        launch = forward_launch(widest, n)
        attention_forward_kernel[(b * h, triton.cdiv(n, launch.block))](
            query_radius, query, packed_keys(key_radius, key, value_radius, value), attend, scale, *outputs,
            h, n, m, 0, PAD=padded(width), VALUE_PAD=padded(value_width), **launch.options(), **sizes,
        )  # fmt: skip
        return outputs
    tile = forward_tile(n, m)
    tile_forward_kernel[(b * h, triton.cdiv(n, tile.rows))](
        query_radius, query, key_radius, key, value_radius, value, attend, scale,
        *outputs, h, n, m, VALUE_PAD=padded(value_width, 16), BLOCK_N=tile.rows, BLOCK_M=tile.columns,
        PRECISION=tile.precision,
        UNROLL=tile.unroll, num_warps=tile.warps, num_stages=1, **sizes,
    )  # fmt: skip
    return outputs


@attention_forward.register_fake
def _(
    query_radius: Tensor,
    query: Tensor,
    key_radius: Tensor,
    key: Tensor,
    value_radius: Tensor,
    value: Tensor,
    scale: Tensor,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    b, h, n = query_radius.shape
    return tuple(new_output(shape, query) for shape in ((b, h, n), (b, h, value.shape[-2], n), (b, h, 4, n)))  # type: ignore[return-value]


@torch.library.custom_op("polarvit::attention_backward", mutates_args=())
def attention_backward(
    grad_radius: Tensor,
    grad: Tensor,
    query_radius: Tensor,
    query: Tensor,
    key_radius: Tensor,
    key: Tensor,
    value_radius: Tensor,
    value: Tensor,
    scale: Tensor,
    mask: Tensor | None,
    direction: Tensor,
    stats: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients in the order of the forward's first seven arguments, float32."""
    b, h, width, n = query.shape
    value_width, m = value.shape[-2:]
    widest = max(width, value_width)
    attend = scale if mask is None else mask.view(torch.uint8)
    sizes: dict[str, Any] = {"WIDTH": width, "VALUE_WIDTH": value_width, "HAS_MASK": mask is not None}
    to_query_radius, to_query = new_output((b, h, n), query), new_output((b, h, width, n), query)
    to_key_radius, to_key = new_output((b, h, m), query), new_output((b, h, width, m), query)
    to_value_radius, to_value = new_output((b, h, m), query), new_output((b, h, value_width, m), query)
    gradients = (to_query_radius, to_query, to_key_radius, to_key, to_value_radius, to_value)
    upstream = grad_radius.contiguous(), grad.contiguous()
    if widest <= WIDEST_BACKWARD:
        sizes |= {"PAD": padded(width), "VALUE_PAD": padded(value_width)}
        packed = new_output((b, h, n, width + 2 * value_width + ENTRIES.value), query)
        launch = backward_launch(widest, n)
        to_scale = new_output((b, h, triton.cdiv(n, launch.block)), scale)
        attention_query_kernel[(b * h, triton.cdiv(n, launch.block))](
            query_radius, query, packed_keys(key_radius, key, value_radius, value), attend, scale, direction, stats,
            *upstream, to_query_radius, to_query, to_scale, packed, h, n, m, 0,
            **launch.options(), **sizes,
        )  # fmt: skip
        launch = backward_launch(widest, m)
        attention_key_kernel[(b * h, triton.cdiv(m, launch.block))](
            key_radius, key, value_radius, value, attend, scale, packed,
            to_key_radius, to_key, to_value_radius, to_value, h, n, m, 0,
            **launch.options(), **sizes,
        )  # fmt: skip
    else:
        tile = backward_tile(n, m)
        to_scale = new_output((b, h, triton.cdiv(n, tile.rows)), scale)
        tensors = (
            query_radius, query, key_radius, key, value_radius, value, attend, scale,
            direction, stats, *upstream, *gradients, to_scale,
        )  # fmt: skip
        sizes |= {
            "PAD": padded(width, 16), "VALUE_PAD": padded(value_width, 16), "BLOCK_N": tile.rows,
            "BLOCK_M": tile.columns, "PRECISION": tile.precision, "UNROLL": tile.unroll,
        }  # fmt: skip
        tile_query_kernel[(b * h, triton.cdiv(n, tile.rows))](
            *tensors, h, n, m, num_warps=tile.warps, num_stages=1, **sizes
        )
        tile_key_kernel[(b * h, triton.cdiv(m, tile.columns))](
            *tensors, h, n, m, num_warps=tile.warps, num_stages=1, **sizes
        )
    # Summed here: how many blocks there are is the launch's business and must not show in the operator's shapes.
    return (*gradients, to_scale.sum((0, 2)))


@attention_backward.register_fake
def _(
    grad_radius: Tensor,
    grad: Tensor,
    query_radius: Tensor,
    query: Tensor,
    key_radius: Tensor,
    key: Tensor,
    value_radius: Tensor,
    value: Tensor,
    scale: Tensor,
    mask: Tensor | None,
    direction: Tensor,
    stats: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    points = (query_radius, query, key_radius, key, value_radius, value)
    return (*(new_output(tuple(x.shape), x) for x in points), new_output((query.shape[1],), scale))  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, direction, stats = output
    ctx.mark_non_differentiable(stats)
    ctx.save_for_backward(*inputs, direction, stats)


def _differentiate(
    ctx: Any, grad_radius: Tensor | None, grad: Tensor | None, _stats: Tensor | None
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    direction = saved[-2]
    if grad_radius is None:
        grad_radius = direction[:, :, 0].new_zeros(direction[:, :, 0].shape)
    if grad is None:
        grad = torch.zeros_like(direction)
    *gradients, to_scale = attention_backward(grad_radius, grad, *saved)
    return (*(g.to(x.dtype) for g, x in zip(gradients, saved, strict=False)), to_scale, None)


attention_forward.register_autograd(_differentiate, setup_context=_save)
