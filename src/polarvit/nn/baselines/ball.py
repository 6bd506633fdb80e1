"""The Poincare ball of curvature -1 as published models compute in it: points x [..., n] with |x| < 1.

Formulas are the textbook ones (Ganea et al., 2018). Points are kept off the boundary by the margin geoopt has in
float32, 4e-3, here in every dtype so that a model computes one function: the largest radius is 2 artanh(0.996) = 6.2,
whatever a layer asks for.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 1 - 4e-3
"""The largest norm of a point."""


def project(x: Tensor) -> Tensor:
    """Back inside: |x| is at most `LARGEST`, up to rounding.

    A point on the edge stays as it is and hands its whole gradient on. One that was brought there by an earlier step
    is off by a few roundings, and must not lose or keep the radial part of its gradient by their signs.
    """
    size = torch.sqrt(x.square().sum(-1, keepdim=True).clamp_min(1e-30))
    outside = size > LARGEST * (1 + 16 * torch.finfo(x.dtype).eps)
    return torch.where(outside, x * (LARGEST / size), x)


def exp0(v: Tensor) -> Tensor:
    """tanh(|v|) v/|v|, brought inside; smooth at v = 0."""
    square = v.square().sum(-1, keepdim=True)
    small = square < 1e-6
    size = torch.sqrt(torch.where(small, 1.0, square))
    return project(torch.where(small, 1 - square / 3, torch.tanh(size) / size) * v)


def log0(x: Tensor) -> Tensor:
    """artanh(|x|) x/|x|; smooth at x = 0."""
    square = x.square().sum(-1, keepdim=True)
    small = square < 1e-6
    size = torch.sqrt(torch.where(small, 0.25, square)).clamp_max(0.5 * (1 + LARGEST))
    return torch.where(small, 1 + square / 3, torch.atanh(size) / size) * x


def mobius_add(x: Tensor, y: Tensor) -> Tensor:
    """((1 + 2 x.y + |y|^2) x + (1 - |x|^2) y)/(1 + 2 x.y + |x|^2 |y|^2), brought inside."""
    dot = (x * y).sum(-1, keepdim=True)
    xx, yy = x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
    top = (1 + 2 * dot + yy) * x + (1 - xx) * y
    return project(top / (1 + 2 * dot + xx * yy).clamp_min(1e-15))


def mobius_scale(t: Tensor | float, x: Tensor) -> Tensor:
    """t (x) x = exp_0(t log_0 x)."""
    return exp0(t * log0(x))
