"""The polar linear layer after its matrix product, in plain PyTorch: the definition."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polarvit.geometry.directions import norm_and_direction


def log_cosh(a: Tensor) -> Tensor:
    """ln cosh a for a >= 0 of any size."""
    return a + torch.log1p(torch.exp(-2 * a)) - math.log(2)


def radius_of_log_sinh(l: Tensor) -> Tensor:
    """asinh(e^l) for any l."""
    small = torch.asinh(torch.exp(l.clamp_max(0.0)))
    large = l + torch.log1p(torch.sqrt(1 + torch.exp(-2 * l.clamp_min(0.0))))
    return torch.where(l > 0, large, small)


def preactivation(y: Tensor, a: Tensor, activation: str | None, root_k: float | Tensor) -> Tensor:
    """phi(c y)/c with c = sqrt(k) cosh a, for the activations that allow it: none, ReLU, GELU.

    GELU(c y)/c = y Phi(c y); Phi has saturated long before the cap on a matters.
    """
    if activation == "relu":
        return torch.relu(y)
    if activation == "gelu":
        c = (torch.cosh(a.clamp_max(40.0)) * root_k).unsqueeze(-1)
        return 0.5 * y * torch.erfc(-c * y * math.sqrt(0.5))
    return y


def reference_linear_epilogue(
    product: Tensor,
    a: Tensor,
    time_weight: Tensor,
    beta: Tensor,
    slope: Tensor,
    phi0: Tensor,
    *,
    out_features: int,
    activation: str | None = None,
    root_k: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor]:
    """Shapes and meanings as in `linear_epilogue`."""
    klein = torch.tanh(a)
    y = klein.unsqueeze(-1) * product[..., :out_features] + time_weight
    norm, direction = norm_and_direction(preactivation(y, a, activation, root_k))
    l = beta * (torch.log(norm) + log_cosh(a)) + slope * a + klein * product[..., out_features] + phi0
    return radius_of_log_sinh(l), direction
