"""Gyro layer normalisation."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint
from polarvit.geometry.scaled import rescale, restore
from polarvit.kernels.norm import gyro_layer_norm
from polarvit.nn.precision import full, halved, in_full_precision
from polarvit.parameters import MANIFOLD, NO_DECAY, Role


class GyroLayerNorm(nn.Module):
    """Centre, scale and shift the tokens of each sample: bias (+) (gain/sqrt(sigma^2 + eps) (x) ((-mean) (+) x)).

    `mean` is the Lorentz centroid of the tokens [..., N] and sigma^2 their mean squared distance to it. Centring is an
    isometry, so a centred token's radius is its distance to the mean and sigma^2 costs nothing more. What holds
    exactly: the centroid is the origin before the gain, and the mean squared distance to the bias point is
    gain^2 sigma^2/(sigma^2 + eps) after it.

    The gain starts at sqrt(k) asinh(sqrt(n/k)), the radius of a Euclidean layer norm's output in space coordinates; the
    bias is a point stored as v = r u, starts at the origin and leaves it.

    `before_product` says that only a matrix product reads the result: under bf16 autocast, which would round directions
    for it, they are made so at once.
    """

    roles: ClassVar[dict[str, Role]] = {"log_gain": NO_DECAY, "bias": MANIFOLD}

    def __init__(self, dim: int, eps: float = 1e-5, k: float = 1.0, *, before_product: bool = False) -> None:
        super().__init__()
        if not eps >= 0:
            raise ValueError(f"GyroLayerNorm: eps must be 0 or more, got {eps}")
        self.dim, self.eps, self.before_product = dim, eps, before_product
        self.log_gain = nn.Parameter(torch.tensor(math.log(math.sqrt(k) * math.asinh(math.sqrt(dim / k)))))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        return self.normalise(x, k=k, half=self.before_product and halved(x))

    @in_full_precision
    def normalise(self, x: PolarPoint, *, k: float | Tensor = 1.0, half: bool = False) -> PolarPoint:
        if x.dim != self.dim or x.radius.ndim == 0:
            raise ValueError(
                f"GyroLayerNorm: expected tokens [..., N] of dimension {self.dim}, got {list(x.direction.shape)}"
            )
        radius, direction = gyro_layer_norm(
            rescale(x.radius, k),
            x.direction,
            rescale(torch.exp(full(self.log_gain)), k),
            rescale(full(self.bias), k),
            self.eps / (k.to(x.radius) if isinstance(k, Tensor) else k),
            half=half,
        )
        return PolarPoint(restore(radius, k), direction)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}"
