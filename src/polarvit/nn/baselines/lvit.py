"""The layers of LViT (He et al., 2025, HyperCore), on ambient points and in its arithmetic."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.nn.baselines.chen import LorentzLinear
from polarvit.nn.baselines.lorentz import inner_products, kept_samples, split_heads
from polarvit.nn.precision import full, tensors_in_full_precision
from polarvit.parameters import NO_DECAY, Role


@torch.no_grad()
def draw_evenly(layer: LorentzLinear, bound: float) -> None:
    """Weight and bias from U(-bound, bound)."""
    for parameter in layer.parameters():
        parameter.uniform_(-bound, bound)


class LorentzSum(nn.Module):
    """LResNet: z = x + w y, brought back to the hyperboloid as sqrt(k) z/|z|_L, its space part times a fixed `scale`.

    w is one learned number, 1 at the start. Time is recomputed after the scaling, which moves every point outward by
    about ln(scale).
    """

    roles: ClassVar[dict[str, Role]] = {"weight": NO_DECAY}
    FLOOR = 1e-4

    def __init__(self, scale: float, drop_path: float = 0.0, k: float = 1.0) -> None:
        super().__init__()
        self.scale, self.drop_path, self.k = scale, drop_path, k
        self.weight = nn.Parameter(torch.ones(()))

    @tensors_in_full_precision
    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        z = x + full(self.weight) * kept_samples(x, self.drop_path, self.training) * step
        size = ambient.inner(z, z).abs().clamp_min(self.FLOOR).sqrt().unsqueeze(-1)
        return ambient.from_space(self.scale * math.sqrt(self.k) * z[..., 1:] / size, k=self.k)

    def stretch(self, delta: float) -> None:
        """Multiply the scale by e^delta, to start farther out."""
        self.scale *= math.exp(delta)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, drop_path={self.drop_path}"


class LViTAttention(nn.Module):
    """softmax((2k + 2<q_i, k_j>)/scale + bias), values joined by the ambient centroid; [B, N, n+1] -> the same.

    Each head has `head_dim` space coordinates and a time of its own. The output map takes all coordinates of all heads,
    times included, so n = heads (head_dim + 1) - 1. `scale` is learned and starts at sqrt(n + 1). The four maps are
    drawn as a Euclidean linear layer is by default, weights and biases from U(-1/sqrt(n + 1), 1/sqrt(n + 1)).
    """

    roles: ClassVar[dict[str, Role]] = {"scale": NO_DECAY, "bias": NO_DECAY}

    def __init__(self, heads: int, head_dim: int, k: float = 1.0) -> None:
        super().__init__()
        self.heads, self.k = heads, k
        whole = heads * (head_dim + 1)
        self.query, self.key, self.value = (
            LorentzLinear(whole - 1, heads * head_dim, k=k, bias=True) for _ in range(3)
        )
        self.out = LorentzLinear(whole - 1, whole - 1, k=k, bias=True)
        for layer in (self.query, self.key, self.value, self.out):
            draw_evenly(layer, 1 / math.sqrt(whole))
        self.scale = nn.Parameter(torch.tensor([math.sqrt(whole)]))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.join(self.attention_map(x), self.value(x)))

    def attention_map(self, x: Tensor) -> Tensor:
        """Attention weights [B, H, N, N]."""
        return self.score(self.query(x), self.key(x)).softmax(-1)

    @tensors_in_full_precision
    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores [B, H, N, N]."""
        q, key = (split_heads(x, self.heads, k=self.k) for x in (query, key))
        return (2 * self.k + 2 * inner_products(q, key)) / full(self.scale) + full(self.bias)

    @tensors_in_full_precision
    def join(self, weights: Tensor, value: Tensor) -> Tensor:
        """Centroids of the heads, side by side with their times: no point, but what the output map takes."""
        heads = ambient.centroid(split_heads(value, self.heads, k=self.k), weights, k=self.k)
        return heads.transpose(-2, -3).flatten(-2)

    def extra_repr(self) -> str:
        return f"heads={self.heads}"
