"""Read-outs: centroid pooling and hyperbolic multinomial logistic regression."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, centroid
from polarvit.geometry.directions import norm_and_direction, squared_differences
from polarvit.geometry.scaled import ch, rescale, restore, scaled_asinh, sh
from polarvit.nn.precision import full, in_full_precision
from polarvit.parameters import NO_DECAY, ORDINARY, Role


class CentroidPool(nn.Module):
    """The centroid of the tokens, [B, N] -> [B]."""

    @in_full_precision
    def forward(self, x: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        return centroid(x, k=k)


class ClassTokenPool(nn.Module):
    """The first token, [B, N] -> [B]."""

    @in_full_precision
    def forward(self, x: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        return PolarPoint(x.radius[..., 0], x.direction[..., 0, :])


class PolarMLR(nn.Module):
    """Lorentz multinomial logistic regression (HCNN) in polar form: signed distances to learned hyperplanes.

    For a class with offset a_c and normal z, A = a_c/sqrt(k), z' = z/|z|, and a point (b, u),

        logit = sqrt(k)|z| asinh(sinh(b-A) - cosh A sinh b 1/2|u-z'|^2)      where u.z' >= 0
        logit = sqrt(k)|z| asinh(-sinh(b+A) + cosh A sinh b 1/2|u+z'|^2)     elsewhere

    the branch that does not cancel; e^(b+|A|) is taken out of both terms, so any radius will do.
    """

    roles: ClassVar[dict[str, Role]] = {"offset": NO_DECAY, "normal": ORDINARY}

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"PolarMLR: num_classes must be positive, got {num_classes}")
        self.in_features, self.num_classes = in_features, num_classes
        std = 1 / math.sqrt(in_features)
        self.offset = nn.Parameter(std * torch.randn(num_classes))
        self.normal = nn.Parameter(std * torch.randn(num_classes, in_features))

    @in_full_precision
    def forward(self, x: PolarPoint, *, k: float | Tensor = 1.0) -> Tensor:
        if x.dim != self.in_features:
            raise ValueError(f"PolarMLR: expected points of dimension {self.in_features}, got {x.dim}")
        size, normal = norm_and_direction(full(self.normal))
        shift = rescale(full(self.offset), k)
        b, flat = rescale(x.radius, k).unsqueeze(-1), x.direction.reshape(-1, x.dim)
        near, far = (0.5 * squared_differences(flat, z).reshape(*x.shape, -1) for z in (normal, -normal))
        growth = b + shift.abs()
        steep = ch(shift.abs()) * sh(b)
        aligned = _scaled_sinh(b - shift, growth) - steep * near
        opposed = -_scaled_sinh(b + shift, growth) + steep * far
        rise = torch.where(near <= far, aligned, opposed)
        sign = torch.where(rise < 0, -torch.ones_like(rise), torch.ones_like(rise))
        return restore(size * sign * scaled_asinh(sign * rise, growth), k)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.num_classes}"


def _scaled_sinh(x: Tensor, scale: Tensor) -> Tensor:
    """sinh(x) e^-scale for |x| <= scale."""
    size = x.abs()
    return torch.where(x < 0, -1.0, 1.0) * sh(size) * torch.exp(size - scale)
