"""Activation and max pooling: what acts on space parts alone."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.geometry import PolarPoint
from polarvit.geometry.directions import scaled_polar
from polarvit.geometry.scaled import rescale, restore, sh, sqrt_k
from polarvit.nn.conv.space import as_image, as_rows, from_space_part, space_part
from polarvit.nn.conv.window import Pair
from polarvit.nn.precision import in_full_precision


class PolarActivation(nn.Module):
    """An activation on the space part sqrt(k) sinh(a) u; the time follows. Any batch shape.

    ReLU of c u is c ReLU(u) and GELU of it c u Phi(c u), so the growth c stays out and any radius will do.
    """

    def __init__(self, activation: Literal["relu", "gelu"] = "relu") -> None:
        super().__init__()
        if activation not in ("relu", "gelu"):
            raise ValueError(f"PolarActivation: activation must be 'relu' or 'gelu', got {activation!r}")
        self.activation = activation

    @in_full_precision
    def forward(self, x: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        a, u = rescale(x.radius, k), x.direction
        if self.activation == "relu":
            u = torch.relu(u)
        else:
            c = torch.sinh(a.clamp_max(40.0)) * sqrt_k(k, a)  # beyond, Phi has saturated
            u = 0.5 * u * torch.erfc(-math.sqrt(0.5) * c.unsqueeze(-1) * u)
        a, u = scaled_polar(sh(a).unsqueeze(-1) * u, a)
        return PolarPoint(restore(a, k), u)

    def extra_repr(self) -> str:
        return self.activation


class PolarMaxPool2d(nn.Module):
    """The largest value of every space coordinate in each window; the time follows. Images of points [B, H, W]."""

    def __init__(self, kernel_size: Pair = 2, stride: Pair | None = None) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride

    @in_full_precision
    def forward(self, x: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        space, t = space_part(x, k=k)
        return from_space_part(as_rows(F.max_pool2d(as_image(space), self.kernel_size, self.stride)), t, k=k)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}"
