"""Read-outs: centroid pooling and hyperbolic multinomial logistic regression."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, centroid
from polarvit.geometry.directions import norm_and_direction, squared_differences, wide, wide_product
from polarvit.geometry.once import differentiable_once
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

    For a class with offset a_c and normal z, A = a_c/sqrt(k), z' = z/|z|, and a point (b, u), with s = sign(u.z'),

        logit = sqrt(k)|z| s asinh(sinh(b - s A) - cosh A sinh b 1/2|u - s z'|^2):

    of the two ways to write it the one that does not cancel; e^(b+|A|) is taken out of both terms, so any radius will
    do.
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
        gap, side = (pairs.reshape(*x.shape, -1) for pairs in _NearChord.apply(flat, normal))
        growth = b + shift.abs()
        rise = side * (_scaled_sinh(b - side * shift, growth) - ch(shift.abs()) * sh(b) * gap)
        sign = torch.where(rise < 0, -torch.ones_like(rise), torch.ones_like(rise))
        return restore(size * sign * scaled_asinh(sign * rise, growth), k)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.num_classes}"


class _NearChord(torch.autograd.Function):
    """For unit vectors u [B, n] and z [C, n] the side s = sign(u.z) and 1/2|u - s z|^2, [B, C], from differences."""

    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        near, far = squared_differences(u, z), squared_differences(u, -z)
        return 0.5 * torch.minimum(near, far), torch.where(near <= far, 1.0, -1.0).to(u.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        """sum g (u - s z) over classes, sum g (z - s u) over points."""
        u, z, side = ctx.saved_tensors
        turned, grad = grad * side, wide(grad)
        to_u = grad.sum(1, keepdim=True) * wide(u) - wide_product(turned, z)
        to_z = grad.sum(0).unsqueeze(-1) * wide(z) - wide_product(turned.mT, u)
        return to_u.to(u.dtype), to_z.to(z.dtype)


def _scaled_sinh(x: Tensor, scale: Tensor) -> Tensor:
    """sinh(x) e^-scale for |x| <= scale."""
    size = x.abs()
    return torch.where(x < 0, -1.0, 1.0) * sh(size) * torch.exp(size - scale)
