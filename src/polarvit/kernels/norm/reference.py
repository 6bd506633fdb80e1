"""Gyro layer normalisation in plain PyTorch: the definition, and the ground truth of the kernel's tests."""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry import PolarPoint, centroid, from_tangent0, gyroadd, gyroneg, gyroscale


def reference_gyro_layer_norm(
    a: Tensor, u: Tensor, gain: Tensor, bias: Tensor, eps: float | Tensor
) -> tuple[Tensor, Tensor]:
    """bias (+) (gain/sqrt(sigma^2 + eps) (x) ((-mean) (+) x)); shapes as in `gyro_layer_norm`."""
    x = PolarPoint(a, u)
    mean = centroid(x).map(lambda y: y.unsqueeze(a.ndim - 1))
    centred = gyroadd(gyroneg(mean), x)
    variance = centred.radius.square().mean(-1, keepdim=True)
    scaled = gyroscale(centred, gain * torch.rsqrt(variance + eps))
    radius, direction = gyroadd(from_tangent0(bias), scaled)
    return radius, direction
