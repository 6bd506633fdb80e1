"""The kernels as PyTorch operators: launches, shapes for tracing, and the autograd formula.

`polarvit::attention` and `polarvit::attention_backward` are opaque to `torch.compile` (no graph break), read nothing
back from the device and allocate only through `new_output`, so a step that uses them can be captured in a CUDA graph.
Curvature stays outside: the operators see rescaled radii a = r/sqrt(k) and one coefficient of D^2 for each head.
All their tensors are contiguous, and directions are [B, H, d, N], dimension first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from polarvit.kernels.attention.triton import forward_kernel
from polarvit.kernels.attention.triton_backward import key_kernel, query_kernel


@dataclass(frozen=True)
class Launch:
    """Block sizes, warps and unrolling of one kernel launch, and how its products are taken."""

    rows: int
    columns: int
    warps: int = 4
    unroll: int = 4
    precision: str = ""


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


def block(length: int, largest: int) -> int:
    """The smallest block of 16, 32 or 64 that holds `length`, or the largest allowed."""
    return next((size for size in (16, 32) if length <= size and size <= largest), largest)


def forward_launch(width: int, n: int, m: int) -> Launch:
    """64 rows are one warp group of the tensor cores; few keys at a time fit into registers without spilling.

    On an H200 (`benchmarks/attention_core.py --tune`): 95 us at (128, 12, 64, 16), 1.06 ms at (64, 6, 196, 64).
    """
    columns, unroll = (16, 4) if width <= 32 else (32, 8)
    return Launch(block(n, 64), block(m, columns), unroll=unroll, precision=sharp_products())


def backward_launch(width: int, n: int, m: int) -> Launch:
    """Up to 64 queries are held by one program, which then writes all gradients of its head.

    Measured on an H200: 218 us at (128, 12, 64, 16), 5.5 ms at (64, 6, 196, 64).
    """
    if width <= 32:
        return Launch(block(n, 64), block(m, 32), unroll=8, precision=sharp_products())
    return Launch(block(n, 32), block(m, 64), precision=sharp_products())


def padded(width: int) -> int:
    """The power of two, at least 16, that a product needs."""
    return max(16, triton.next_power_of_2(width))


def new_output(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Every tensor a kernel writes comes from here; the tests fill it with NaN first."""
    return torch.empty(shape, dtype=torch.float32, device=like.device)


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
    launch = forward_launch(max(width, value_width), n, m)
    radius, direction = new_output((b, h, n), query), new_output((b, h, value_width, n), query)
    stats = new_output((b, h, 4, n), query)
    points = (query_radius, query, key_radius, key, value_radius, value)
    forward_kernel[(b * h, triton.cdiv(n, launch.rows))](
        *points,
        scale if mask is None else mask.view(torch.uint8),
        scale,
        radius,
        direction,
        stats,
        h,
        n,
        m,
        WIDTH=width,
        VALUE_WIDTH=value_width,
        VALUE_PAD=padded(value_width),
        BLOCK_N=launch.rows,
        BLOCK_M=launch.columns,
        HAS_MASK=mask is not None,
        PRECISION=launch.precision,
        UNROLL=launch.unroll,
        num_warps=launch.warps,
        num_stages=1,
    )
    return radius, direction, stats


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
    launch = backward_launch(max(width, value_width), n, m)
    whole = n <= launch.rows
    points = (query_radius, query, key_radius, key, value_radius, value)
    gradients = [new_output(tuple(x.shape), x) for x in points]
    to_scale = new_output((b, h, triton.cdiv(n, launch.rows)), scale)
    tensors = (
        *points,
        scale if mask is None else mask.view(torch.uint8),
        scale,
        direction,
        stats,
        grad_radius.contiguous(),
        grad.contiguous(),
        *gradients,
        to_scale,
    )
    shapes = (h, n, m)
    options: dict[str, Any] = {
        "WIDTH": width,
        "PAD": padded(width),
        "VALUE_WIDTH": value_width,
        "VALUE_PAD": padded(value_width),
        "BLOCK_N": launch.rows,
        "BLOCK_M": launch.columns,
        "HAS_MASK": mask is not None,
        "PRECISION": launch.precision,
        "UNROLL": launch.unroll,
        "num_warps": launch.warps,
        "num_stages": 1,
    }
    query_kernel[(b * h, triton.cdiv(n, launch.rows))](*tensors, *shapes, WHOLE=whole, **options)
    if not whole:
        key_kernel[(b * h, triton.cdiv(m, launch.columns))](*tensors, *shapes, **options)
    # Summed here: how many blocks there are is the launch's business and must not show in the operator's shapes.
    return (*gradients, to_scale.sum((0, 2)))  # type: ignore[return-value]


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
