"""From the joint product to placed heads, and from heads to tokens, in plain PyTorch: the definitions."""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry import PolarPoint, concat, horoshift, split_heads
from polarvit.kernels.linear.reference import reference_linear_epilogue


def reference_project_heads(
    product: Tensor,
    a: Tensor,
    weight: Tensor,
    scalars: Tensor,
    log_gain: Tensor,
    rate: Tensor | None,
    place: Tensor | None,
    mode: str = "none",
) -> list[PolarPoint]:
    """Shapes and meanings as in `project_heads`."""
    width, heads = weight.shape[1], log_gain.shape[1]
    product = product.mT.unflatten(0, a.shape)
    points = []
    for j in range(3):
        columns = torch.cat([product[..., j * width : (j + 1) * width], product[..., 3 * width + j, None]], -1)
        radius, direction = reference_linear_epilogue(columns, a, weight[j], *scalars[j].unbind(), out_features=width)
        split = split_heads(PolarPoint(radius, direction), heads)
        point = PolarPoint((split.radius * torch.exp(log_gain[j])).transpose(1, 2), split.direction.transpose(1, 2))
        points.append(point if j == 2 or mode == "none" else _place(point, rate, place, mode))
    return points


def _place(point: PolarPoint, rate: Tensor | None, place: Tensor | None, mode: str) -> PolarPoint:
    assert rate is not None
    assert place is not None
    t = rate.unsqueeze(1) * place.unsqueeze(0)
    if mode == "joint":
        return horoshift(point, t, axes=(0, 1, 2))
    return horoshift(horoshift(point, t[..., 0], axes=(0, 1)), t[..., 1], axes=(2, 3))


def reference_merge_heads(heads: PolarPoint) -> PolarPoint:
    """Direct concatenation of heads [B, H, N] into tokens [B, N]."""
    return concat(PolarPoint(heads.radius.transpose(1, 2), heads.direction.transpose(1, 2)))  # type: ignore[arg-type]
