"""The split-head attention of Lorentz transformers, in ambient coordinates."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.nn.baselines.chen import LorentzLinear
from polarvit.nn.baselines.lorentz import merge_heads, split_heads, squared_distances
from polarvit.nn.precision import full, tensors_in_full_precision
from polarvit.parameters import NO_DECAY, Role


class LorentzAttention(nn.Module):
    """Score -(gamma/tau_h) d^2(q_i, k_j), gamma = (dim/heads)^-1/2; values joined by the ambient centroid.

    Queries, keys, values and output are Chen's general layers. Heads are slices of the space coordinates with times of
    their own, joined again by direct concatenation. Shapes: [B, N, dim + 1] -> [B, N, dim + 1].
    """

    roles: ClassVar[dict[str, Role]] = {"log_temperature": NO_DECAY}

    def __init__(self, dim: int, heads: int, dropout: float = 0.0, temperature: float = 1.0, k: float = 1.0) -> None:
        super().__init__()
        if heads < 1 or dim % heads:
            raise ValueError(f"LorentzAttention: dim {dim} is not divisible by {heads} heads")
        self.dim, self.heads, self.dropout, self.k = dim, heads, dropout, k
        self.query, self.key, self.value, self.out = (LorentzLinear(dim, dim, k=k) for _ in range(4))
        for layer in (self.query, self.key, self.value, self.out):
            nn.init.orthogonal_(layer.weight)
        self.log_temperature = nn.Parameter(torch.full((heads,), math.log(temperature)))

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.dropout(self.attention_map(x), self.dropout, self.training)
        return self.out(self.join(weights, self.value(x)))

    def attention_map(self, x: Tensor) -> Tensor:
        """Attention weights [B, H, N, N]."""
        return self.score(self.query(x), self.key(x)).softmax(-1)

    @tensors_in_full_precision
    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores [B, H, N, N] of queries and keys [B, N, dim + 1]."""
        q, key = (split_heads(x, self.heads, k=self.k) for x in (query, key))
        scale = (self.dim // self.heads) ** -0.5 * torch.exp(-full(self.log_temperature))
        return -scale.view(-1, 1, 1) * squared_distances(q, key, k=self.k)

    @tensors_in_full_precision
    def join(self, weights: Tensor, value: Tensor) -> Tensor:
        """Centroids of the value heads, concatenated."""
        return merge_heads(ambient.centroid(split_heads(value, self.heads, k=self.k), weights, k=self.k), k=self.k)

    def extra_repr(self) -> str:
        return f"{self.dim}, heads={self.heads}, dropout={self.dropout}"
