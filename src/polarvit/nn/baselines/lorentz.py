"""Parts that Lorentz transformers share, in ambient coordinates and the arithmetic they were published with.

Points are [..., n+1], time first. What published code clamps is clamped here at the same place, because a baseline
without its clamps is not the baseline: the argument of arcosh at 1, norms under a division at 1e-8.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.nn.precision import full, tensors_in_full_precision
from polarvit.parameters import MANIFOLD, NO_DECAY, ORDINARY, Role

FLOOR = 1e-8
"""Smallest square under a root that divides, as in geoopt and its descendants."""


def arcosh(x: Tensor) -> Tensor:
    """ln(x + sqrt(x^2 - 1)) with the square kept above 1e-15: 0, not NaN, where rounding made x less than 1."""
    x = x.clamp_min(1.0)
    return torch.log(x + torch.sqrt((x.square() - 1).clamp_min(1e-15)))


def inner_products(x: Tensor, y: Tensor) -> Tensor:
    """<x_i, y_j> of all pairs [..., N, n+1] x [..., M, n+1] -> [..., N, M], as one product."""
    return x @ torch.cat([-y[..., :1], y[..., 1:]], -1).mT


def squared_distances(x: Tensor, y: Tensor, *, k: float = 1.0) -> Tensor:
    """d^2 of all pairs, k arcosh(-<x, y>/k)^2; the argument starts at 1 + 1e-7, where the gradient is still finite."""
    cosh = (-inner_products(x, y) / k).clamp_min(1 + 1e-7)
    return k * torch.acosh(cosh).square()


def exp0(v: Tensor, *, k: float = 1.0) -> Tensor:
    """Exponential map at the origin of v [..., n], smooth at v = 0, so that a point which starts there can leave."""
    square = v.square().sum(-1, keepdim=True) / k
    small = square < 1e-6
    a = torch.sqrt(torch.where(small, 1.0, square))
    stretch = torch.where(small, 1 + square / 6, torch.sinh(a) / a)
    return ambient.from_space(stretch * v, k=k)


def log0(x: Tensor, *, k: float = 1.0) -> Tensor:
    """Logarithmic map at the origin, [..., n], by arcosh of the time coordinate."""
    root, space = math.sqrt(k), x[..., 1:]
    norm = torch.sqrt(space.square().sum(-1, keepdim=True).clamp_min(FLOOR))
    return root * arcosh(x[..., :1] / root) * space / norm


def log_map(x: Tensor, y: Tensor, *, k: float = 1.0) -> Tensor:
    """d(x, y) (y + <x, y> x/k)/|.| in ambient components, floors as published."""
    product = ambient.inner(x, y).unsqueeze(-1)
    towards = y + product * x / k
    norm = torch.sqrt(ambient.inner(towards, towards).clamp_min(FLOOR)).unsqueeze(-1)
    return math.sqrt(k) * arcosh(-product / k) * towards / norm


def exp_map(x: Tensor, xi: Tensor, *, k: float = 1.0) -> Tensor:
    """cosh(w) x + sqrt(k) sinh(w) xi/|xi| with w = |xi|/sqrt(k), floors as published."""
    root = math.sqrt(k)
    norm = torch.sqrt(ambient.inner(xi, xi).clamp_min(FLOOR)).unsqueeze(-1)
    return torch.cosh(norm / root) * x + root * torch.sinh(norm / root) * xi / norm


def soft_radius_cap(x: Tensor, *, k: float = 1.0) -> Tensor:
    """The soft cap of Bdeir et al. (2025): a radius r becomes r_max tanh(f r).

    r_max = sqrt(k) arcosh(2000/k), which is 8.294 at k = 1, and f = artanh(0.99)/(2 r_max). The slope at 0 is 1.32, so
    radii below 6.38 grow and those above it shrink.
    """
    root = math.sqrt(k)
    largest = root * math.acosh(2000 / k)
    factor = math.atanh(0.99) / (2 * largest)
    v = log0(x, k=k)
    r = torch.sqrt(v.square().sum(-1, keepdim=True).clamp_min(FLOOR))
    return exp0(largest * torch.tanh(factor * r) * v / r, k=k)


def split_heads(x: Tensor, heads: int, *, k: float = 1.0) -> Tensor:
    """[B, N, n+1] -> [B, H, N, n/H + 1]: slices of the space part, each with a time of its own."""
    return ambient.from_space(x[..., 1:].unflatten(-1, (heads, -1)).transpose(-2, -3), k=k)


def merge_heads(x: Tensor, *, k: float = 1.0) -> Tensor:
    """[B, H, N, d+1] -> [B, N, H d + 1] by direct concatenation, t = sqrt(sum t_h^2 - (H-1) k)."""
    time = x[..., 0].square().sum(-2) - (x.shape[-3] - 1) * k
    return torch.cat([time.sqrt().unsqueeze(-1), x[..., 1:].transpose(-2, -3).flatten(-2)], -1)


def kept_samples(x: Tensor, drop_path: float, training: bool) -> Tensor | float:
    """Factor of a residual step: 1, or for each sample 0 or 1/(1 - drop_path) while training."""
    if not training or drop_path == 0:
        return 1.0
    shape = (x.shape[0], *(1,) * (x.ndim - 1))
    return x.new_empty(shape).bernoulli_(1 - drop_path) / (1 - drop_path)


class SpaceResidual(nn.Module):
    """(x, y) -> the point with space part x_s + y_s: time is recomputed. `cap` puts the soft radius cap behind it."""

    def __init__(self, drop_path: float = 0.0, cap: bool = False, k: float = 1.0) -> None:
        super().__init__()
        self.drop_path, self.cap, self.k = drop_path, cap, k

    @tensors_in_full_precision
    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        kept = kept_samples(x, self.drop_path, self.training)
        x = ambient.from_space(x[..., 1:] + kept * step[..., 1:], k=self.k)
        return soft_radius_cap(x, k=self.k) if self.cap else x

    def extra_repr(self) -> str:
        return f"drop_path={self.drop_path}, cap={self.cap}"


class SpaceLayerNorm(nn.Module):
    """Euclidean layer norm of the space coordinates, time recomputed (Hypformer, LViT)."""

    roles: ClassVar[dict[str, Role]] = {"weight": NO_DECAY, "bias": NO_DECAY}

    def __init__(self, dim: int, eps: float = 1e-5, k: float = 1.0) -> None:
        super().__init__()
        self.dim, self.eps, self.k = dim, eps, k
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    @tensors_in_full_precision
    def forward(self, x: Tensor) -> Tensor:
        space = F.layer_norm(x[..., 1:], (self.dim,), full(self.weight), full(self.bias), self.eps)
        return ambient.from_space(space, k=self.k)

    @torch.no_grad()
    def stretch(self, delta: float) -> None:
        """Multiply the gain by e^delta."""
        self.weight.mul_(math.exp(delta))

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}"


class LorentzMLR(nn.Module):
    """Lorentz multinomial logistic regression (HCNN) on ambient points, [..., n+1] -> [..., classes].

    For a class with offset a and normal z, w_t = sinh(a/sqrt k)|z|, w_s = cosh(a/sqrt k) z:
    alpha = -w_t x_0 + <w_s, x_s>, logit = sqrt(k) |z| asinh(alpha/(sqrt(k) |z|)).
    Published code takes |z| as sqrt(|w_s|^2 - w_t^2), which cancels for a large offset; the value is the same.
    """

    roles: ClassVar[dict[str, Role]] = {"offset": NO_DECAY, "normal": ORDINARY}

    def __init__(self, in_features: int, num_classes: int, k: float = 1.0, uniform: bool = False) -> None:
        super().__init__()
        self.in_features, self.num_classes, self.k = in_features, num_classes, k
        bound = 1 / math.sqrt(in_features)
        draw = (lambda *s: bound * (2 * torch.rand(*s) - 1)) if uniform else (lambda *s: bound * torch.randn(*s))
        self.offset = nn.Parameter(draw(num_classes))
        self.normal = nn.Parameter(draw(num_classes, in_features))

    @tensors_in_full_precision
    def forward(self, x: Tensor) -> Tensor:
        root = math.sqrt(self.k)
        offset, normal = full(self.offset) / root, full(self.normal)
        size = normal.norm(dim=-1)
        alpha = F.linear(x[..., 1:], torch.cosh(offset).unsqueeze(-1) * normal) - x[..., :1] * torch.sinh(offset) * size
        return root * size * torch.asinh(alpha / (root * size))

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.num_classes}"


class TangentPoint(nn.Module):
    """A learned point, kept as its ambient tangent vector at the origin (0, v): n + 1 numbers, of which the first is 0.

    Published models keep the n + 1 coordinates of the point itself. This keeps as many, and the Riemannian optimizer's
    smooth form at the origin: the first number has no gradient, and steps of points with v_0 = 0 leave it at rounding.
    """

    roles: ClassVar[dict[str, Role]] = {"vector": MANIFOLD}

    def __init__(self, v: Tensor, k: float = 1.0) -> None:
        super().__init__()
        self.k = k
        self.vector = nn.Parameter(F.pad(v, (1, 0)))

    def forward(self) -> Tensor:
        """The point(s), [..., n+1]."""
        return exp0(full(self.vector)[..., 1:], k=self.k)
