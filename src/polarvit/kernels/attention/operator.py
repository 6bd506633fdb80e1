"""The kernels as PyTorch operators: shapes for tracing, and the autograd formula.

`polarvit::attend` and `polarvit::attend_backward` are opaque to `torch.compile` (no graph break), read nothing
back from the device and allocate only through `launches.new_output`, so a step that uses them can be captured in a CUDA
graph.
Curvature stays outside: the operators see rescaled radii a = r/sqrt(k) and one coefficient of D^2 for each head.
All their tensors are contiguous, and directions are [B, H, d, N], dimension first: neighbouring threads are
neighbouring points.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polarvit.kernels.attention.launches import backward, forward
from polarvit.kernels.outputs import new_output


@torch.library.custom_op("polarvit::attend", mutates_args=())
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
    """Radius [B, H, N] and direction [B, H, e, N] of the attended centroids, and the exponent of T+|V| [B, H, N]."""
    (b, h, _, n), value_width = query.shape, value.shape[2]
    outputs = new_output((b, h, n), query), new_output((b, h, value_width, n), query), new_output((b, h, n), query)
    forward((query_radius, query, key_radius, key, value_radius, value), scale, mask, outputs)
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
    return tuple(new_output(shape, query) for shape in ((b, h, n), (b, h, value.shape[-2], n), (b, h, n)))  # type: ignore[return-value]


@torch.library.custom_op("polarvit::attend_backward", mutates_args=())
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
    radius: Tensor,
    direction: Tensor,
    exponents: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients in the order of the forward's first seven arguments, float32."""
    points = query_radius, query, key_radius, key, value_radius, value
    return backward(points, scale, mask, (grad_radius, grad), (radius, direction, exponents))  # type: ignore[return-value]


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
    radius: Tensor,
    direction: Tensor,
    exponents: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    points = (query_radius, query, key_radius, key, value_radius, value)
    return (*(new_output(tuple(x.shape), x) for x in points), new_output((query.shape[1],), scale))  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(*inputs, *output)


def _differentiate(
    ctx: Any, grad_radius: Tensor | None, grad: Tensor | None, _exponents: Tensor | None
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    radius, direction = saved[-3:-1]
    if grad_radius is None:
        grad_radius = torch.zeros_like(radius)
    if grad is None:
        grad = torch.zeros_like(direction)
    *gradients, to_scale = attention_backward(grad_radius, grad, *saved)
    return (*(g.to(x.dtype) for g, x in zip(gradients, saved, strict=False)), to_scale, None)


attention_forward.register_autograd(_differentiate, setup_context=_save)
