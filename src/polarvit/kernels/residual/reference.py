"""The boost residual in plain PyTorch: the definition, and the ground truth of the kernel's tests."""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry.directions import across, norm_and_direction


def sinhc(square: Tensor, scale: Tensor) -> Tensor:
    """sinh(x)/x e^-scale as a smooth function of x^2."""
    x = torch.sqrt(torch.where(square > 1e-2, square, torch.ones_like(square)))
    large = 0.5 * (torch.exp(x - scale) - torch.exp(-x - scale)) / x
    series = 1 + square / 6 * (1 + square / 20 * (1 + square / 42 * (1 + square / 72)))
    return torch.where(square > 1e-2, large, series * torch.exp(-scale))


def reference_boost_residual(
    a: Tensor, u: Tensor, b: Tensor, v: Tensor, size: Tensor, kept: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Radius [..., N] and direction [..., N, n] of (a, u) boosted by the step (b, v); shapes as `boost_residual`."""
    size = size if kept is None else size * kept
    along = b * (u * v).sum(-1)
    radius = a + size * (along - along.mean(-1, keepdim=True))
    t = across(u, v)
    stride = size * b
    square = stride.square() * t.square().sum(-1)
    scale = square.detach().sqrt()
    tilt = (torch.tanh(a) * torch.exp(-scale)).unsqueeze(-1) * u + (stride * sinhc(square, scale)).unsqueeze(-1) * t
    _, direction = norm_and_direction(tilt)
    sign = torch.where(radius < 0, -torch.ones_like(radius), torch.ones_like(radius))
    return radius * sign, direction * sign.unsqueeze(-1)
