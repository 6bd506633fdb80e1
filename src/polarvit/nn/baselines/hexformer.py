"""The layers of HexFormer (Alyoussef et al., 2026), on ambient points and in its arithmetic.

Formulas from its published code: a layer whose time a sigmoid sets, attention by squared Lorentzian distance that joins
values in the tangent space at the origin, and a norm over the tokens of a sample.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.geometry.scaled import sqrt_k
from polarvit.nn.baselines.chen import Activation, LorentzBoundedLinear, activate, check_ambient
from polarvit.nn.baselines.lorentz import (
    FLOOR,
    TangentPoint,
    exp0,
    exp_map,
    inner_products,
    log0,
    log_map,
    merge_heads,
)
from polarvit.nn.precision import full, product, tensors_in_full_precision
from polarvit.parameters import NO_DECAY, Role

KEY_CLAMP = (0.05, 9.0)
"""The bounds of a curvature that HexFormer's optimizer puts on every key weight: its name contains `.k`."""


class HexLinear(LorentzBoundedLinear):
    """HexFormer's layer: t = sqrt(k) + 0.5 + e^2.3 sigmoid(h_0), space part phi(h_s) scaled to sqrt(t^2 - k), h = W x.

    With `heads` every head takes its slice of the space part and the **same** time, so each slice is scaled to it:
    [B, N, in + 1] -> [B, H, N, out/H + 1]. `k` of a call replaces the layer's own.
    """

    def __init__(
        self, in_features: int, out_features: int, activation: Activation | None = None, k: float = 1.0, heads: int = 1
    ) -> None:
        super().__init__(in_features, out_features, activation, k, margin=0.5, scale=2.3, learn_scale=False)
        self.heads = heads

    def forward(self, x: Tensor, *, k: float | Tensor | None = None) -> Tensor:
        check_ambient("HexLinear", x, self.in_features)
        return self.finish(product(full(x), self.weight), self.k if k is None else k)

    @tensors_in_full_precision
    def finish(self, h: Tensor, k: float | Tensor) -> Tensor:
        """Time by the sigmoid, space scaled to it."""
        time = sqrt_k(k, h) + self.margin + torch.exp(full(self.scale)) * torch.sigmoid(h[..., :1])
        space = activate(h[..., 1:], self.activation)
        if self.heads > 1:
            space = space.unflatten(-1, (self.heads, -1)).transpose(-2, -3)
            time = time.unsqueeze(-3).expand(*space.shape[:-1], 1)
        square = space.square().sum(-1, keepdim=True).clamp_min(FLOOR)
        return torch.cat([time, space * torch.sqrt((time.square() - k) / square)], -1)


class HexAttention(nn.Module):
    """softmax((2k + 2<q_i, k_j>) d^-1/2/tau), values joined as exp_0(sum_j p_ij log_0 v_j); [B, N, n+1] -> the same.

    tau is one learned number for the layer. `scale` (d^-1/2 for each head) is fixed, as published.
    """

    roles: ClassVar[dict[str, Role]] = {"temperature": NO_DECAY, "scale": NO_DECAY}

    def __init__(self, dim: int, heads: int, dropout: float = 0.0, k: float = 1.0) -> None:
        super().__init__()
        if heads < 1 or dim % heads:
            raise ValueError(f"HexAttention: dim {dim} is not divisible by {heads} heads")
        self.dim, self.heads, self.dropout, self.k = dim, heads, dropout, k
        self.query, self.key, self.value = (HexLinear(dim, dim, k=k, heads=heads) for _ in range(3))
        self.out = HexLinear(dim, dim, k=k)
        self.temperature = nn.Parameter(torch.ones(1))
        self.scale = nn.Parameter(torch.full((1, heads, 1, 1), (dim // heads) ** -0.5), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.dropout(self.attention_map(x), self.dropout, self.training)
        return self.out(self.join(weights, self._heads(self.value, x)))

    def attention_map(self, x: Tensor) -> Tensor:
        """Attention weights [B, H, N, N]."""
        return self.score(self._heads(self.query, x), self._heads(self.key, x)).softmax(-1)

    def _heads(self, layer: HexLinear, x: Tensor) -> Tensor:
        y = layer(x)
        return y if self.heads > 1 else y.unsqueeze(-3)

    @torch.no_grad()
    def clamp_keys(self) -> None:
        """What the published optimizer does to the key projection after every step."""
        self.key.weight.clamp_(*KEY_CLAMP)

    @tensors_in_full_precision
    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores [B, H, N, N] of heads [B, H, N, d + 1]."""
        squared = (-2 * self.k - 2 * inner_products(query, key)).clamp_min(0)
        return -squared * full(self.scale) / full(self.temperature)

    @tensors_in_full_precision
    def join(self, weights: Tensor, value: Tensor) -> Tensor:
        """Weighted means in the tangent space at the origin, heads concatenated."""
        return merge_heads(exp0(weights @ log0(value, k=self.k), k=self.k), k=self.k)

    def extra_repr(self) -> str:
        return f"{self.dim}, heads={self.heads}, dropout={self.dropout}"


class HexNorm(nn.Module):
    """exp_beta(PT_{o -> beta} gamma v_i/(mean_i |v_i| + eps)), v_i = PT_{mu -> o} log_mu x_i, mu the centroid.

    Over the tokens of a sample, [B, N, n+1] -> the same; the mean is of distances, not of squares. The published code
    gives the final norm the class tokens of the batch as [B, n+1]: mu is then the centroid **of the batch** and every
    |v_i| is divided by itself, so all outputs lie at distance gamma of beta. `by_itself=True` is that norm.
    """

    roles: ClassVar[dict[str, Role]] = {"gain": NO_DECAY}

    def __init__(self, dim: int, eps: float = 1e-5, k: float = 1.0, by_itself: bool = False) -> None:
        super().__init__()
        self.dim, self.eps, self.k, self.by_itself = dim, eps, k, by_itself
        self.gain = nn.Parameter(torch.ones(1))
        self.bias = TangentPoint(torch.zeros(dim), k)

    @tensors_in_full_precision
    def forward(self, x: Tensor) -> Tensor:
        k, bias = self.k, self.bias()
        mean = ambient.centroid(x, k=k).unsqueeze(-2).expand_as(x)
        start = ambient.origin(self.dim, k=k, like=x).expand_as(x)
        v = ambient.transport(mean, start, log_map(mean, x, k=k), k=k)
        length = torch.sqrt(v.square().sum(-1, keepdim=True).clamp_min(FLOOR))
        spread = length if self.by_itself else length.mean(-2, keepdim=True)
        v = v * (full(self.gain) / (spread + self.eps))
        return exp_map(bias.expand_as(x), ambient.transport(start, bias.expand_as(x), v, k=k), k=k)

    @torch.no_grad()
    def stretch(self, delta: float) -> None:
        """Multiply the gain by e^delta."""
        self.gain.mul_(math.exp(delta))

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}, by_itself={self.by_itself}"
