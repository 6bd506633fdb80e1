"""Polar attention in plain PyTorch: the definition, and the ground truth of the kernel's tests."""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry import PolarPoint, centroid, pairwise_distance


def reference_attention(
    query: PolarPoint,
    key: PolarPoint,
    value: PolarPoint,
    scale: float | Tensor,
    *,
    k: float | Tensor = 1.0,
    mask: Tensor | None = None,
) -> PolarPoint:
    """softmax_j(-scale d(q_i, k_j)^2), then the polar centroid of the values with these weights.

    Shapes as in `polar_attention`. Stores N x M matrices; in float64 it is what the kernel is tested against.
    """
    if isinstance(scale, Tensor):
        scale = scale.view(-1, 1, 1)
    scores = -scale * pairwise_distance(query, key, k=k).square()
    if mask is None:
        return centroid(value, scores.softmax(-1), k=k)
    attend = mask[:, None, None, :]
    weights = scores.masked_fill(~attend, torch.finfo(scores.dtype).min).softmax(-1) * attend
    return centroid(value, weights, k=k)  # a row of zeros gives the origin
