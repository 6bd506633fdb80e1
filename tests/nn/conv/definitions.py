"""Layers over images of points by their definitions, from the geometry's own functions: unfolded, slow and plain."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from polarvit.geometry import PolarPoint, centroid, concat, from_tangent0, gyroadd, gyroneg, gyroscale
from polarvit.nn import PolarConv2d, PolarLinear


def image(
    shape: tuple[int, int, int], n: int, radius: float, seed: int = 0, cluster: float | None = None
) -> PolarPoint:
    """Points [B, H, W] of float64 with radii from half of `radius` to 1.5 times it; `cluster` gathers directions."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(*shape, n, dtype=torch.float64, generator=generator)
    if cluster is not None:
        u = torch.randn(n, dtype=torch.float64, generator=generator) + cluster * u
    r = radius * (0.5 + torch.rand(*shape, dtype=torch.float64, generator=generator))
    return PolarPoint(r, F.normalize(u, dim=-1))


def leaves(x: PolarPoint) -> PolarPoint:
    return x.map(lambda y: y.detach().clone().requires_grad_())


def tangential(x: PolarPoint, gradient: Tensor) -> Tensor:
    """The part of a gradient of directions that turns them."""
    return gradient - (gradient * x.direction).sum(-1, keepdim=True) * x.direction


def convolution(layer: PolarConv2d, x: PolarPoint, k: float = 1.0) -> PolarPoint:
    """Receptive fields cut out, joined by `concat`, and put through a `PolarLinear` with the same weights."""
    (kh, kw), stride, padding, dilation = layer.field
    sides = (padding[1], padding[1], padding[0], padding[0])
    radius, direction = F.pad(x.radius, sides), F.pad(x.direction, (0, 0, *sides))
    axis = F.one_hot(torch.zeros(1, dtype=torch.long), x.dim).to(direction)
    direction = torch.where((direction == 0).all(-1, keepdim=True), axis, direction)  # the origin has some direction
    height = (radius.shape[1] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    width = (radius.shape[2] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    parts = []
    for i in range(kh):
        for j in range(kw):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + stride[0] * (height - 1) + 1, stride[0])
            columns = slice(left, left + stride[1] * (width - 1) + 1, stride[1])
            parts.append(PolarPoint(radius[:, rows, columns], direction[:, rows, columns]))
    flat = PolarLinear(layer.in_channels * kh * kw, layer.out_channels).to(radius.dtype)
    values = {
        "weight": layer.weight.permute(0, 2, 3, 1).flatten(1),
        "time_weight": layer.time_weight,
        "rule.beta": layer.rule.beta,
        "rule.slope": layer.rule.slope,
        "rule.phi0": layer.rule.phi0,
        "rule.phi": layer.rule.phi.view(layer.in_channels, kh, kw).permute(1, 2, 0).flatten(),
    }
    return torch.func.functional_call(flat, values, (concat(parts, k=k),), {"k": k})


def batch_norm(
    x: PolarPoint, gain: Tensor, bias: Tensor, eps: float, k: float = 1.0
) -> tuple[PolarPoint, PolarPoint, Tensor]:
    """bias (+) (gain/(s + eps) (x) ((-mean) (+) x)), the mean and s."""
    mean = centroid(x.reshape(-1), k=k)
    centred = gyroadd(gyroneg(mean), x, k=k)
    spread = centred.radius.mean()
    return gyroadd(from_tangent0(bias), gyroscale(centred, gain / (spread + eps)), k=k), mean, spread


def upsampling(x: PolarPoint, k: float = 1.0) -> PolarPoint:
    """Centroids with the weights that bilinear interpolation gives the pixels."""
    b, h, w = x.shape
    weights = F.interpolate(
        torch.eye(h * w, dtype=x.radius.dtype).view(h * w, 1, h, w), scale_factor=2, mode="bilinear"
    )
    return centroid(x.reshape(b, h * w), weights.view(h * w, -1).T.expand(b, -1, -1), k=k).reshape(b, 2 * h, 2 * w)
