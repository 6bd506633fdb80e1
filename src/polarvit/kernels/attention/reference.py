"""Polar attention in plain PyTorch: the definition, and the ground truth of the kernel's tests."""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry import PolarPoint, centroid, pairwise_distance


def attention_weights(
    query: PolarPoint,
    key: PolarPoint,
    scale: float | Tensor,
    *,
    k: float | Tensor = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    """softmax_j(-scale d(q_i, k_j)^2), [B, H, N, M]; a row that may attend to nothing is zero."""
    if isinstance(scale, Tensor):
        scale = scale.view(-1, 1, 1)
    scores = -scale * pairwise_distance(query, key, k=k).square()
    if mask is None:
        return scores.softmax(-1)
    attend = mask[:, None, None, :]
    return scores.masked_fill(~attend, torch.finfo(scores.dtype).min).softmax(-1) * attend


def reference_attention(
    query: PolarPoint,
    key: PolarPoint,
    value: PolarPoint,
    scale: float | Tensor,
    *,
    k: float | Tensor = 1.0,
    mask: Tensor | None = None,
) -> PolarPoint:
    """The polar centroid of the values with `attention_weights`; a row of zeros gives the origin.

    Shapes as in `polar_attention`. Stores N x M matrices; in float64 it is what the kernel is tested against.
    """
    return centroid(value, attention_weights(query, key, scale, k=k, mask=mask), k=k)
