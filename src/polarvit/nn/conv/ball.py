"""Poincare convolution and batch norm (HNN++ and HypLL) on images of points [B, H, W, n] of the unit ball.

A ball of curvature -c = -1/k is the unit ball seen in units of sqrt(k), so c enters only where lengths do: in the
offsets of hyperplanes and in the variance. Points are kept off the boundary as published (`baselines.ball`).
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.geometry.scaled import sqrt_k
from polarvit.kernels.images.sync import gather
from polarvit.nn.baselines.ball import LARGEST, exp0, log0, mobius_add, mobius_scale, project
from polarvit.nn.conv.space import as_image, as_rows
from polarvit.nn.conv.window import Field, Pair, window_sum
from polarvit.nn.precision import full, tensors_in_full_precision
from polarvit.parameters import MANIFOLD, NO_DECAY, ORDINARY, Role


def log_beta(n: int) -> float:
    """ln B(n/2, 1/2), whose ratio keeps the mean size of vectors that are concatenated (HNN++)."""
    return math.lgamma(n / 2) + math.lgamma(0.5) - math.lgamma((n + 1) / 2)


def concatenated(*points: Tensor) -> Tensor:
    """Beta concatenation of points of the ball [..., n_i]: tangent vectors side by side, each scaled."""
    total = sum(x.shape[-1] for x in points)
    parts = [math.exp(log_beta(total) - log_beta(x.shape[-1])) * log0(x) for x in points]
    return exp0(torch.cat(parts, -1))


class PoincareConv2d(nn.Module):
    """Beta concatenation of each receptive field, then the Poincare layer: signed distances to hyperplanes.

    With the tangent vector T of the joined point, A = 2|T| and unit normals z': the signed distances are
    asinh(sinh(A) <T/|T|, z'> cosh R - cosh(A) sinh R), R = 2 r/sqrt(k), so no unfolding is needed.
    `rise` makes it a transposed convolution with kernel and stride 2: every pixel becomes 2 x 2.
    Parameters: out (in kh kw + 1), or out (4 in + 1) with `rise`.
    """

    roles: ClassVar[dict[str, Role]] = {"weight": ORDINARY, "bias": NO_DECAY}

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        rise: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.rise = in_channels, out_channels, rise
        self.field = Field.of("PoincareConv2d", kernel_size, stride, padding, dilation)
        outputs = 4 * out_channels if rise else out_channels
        fan_in = in_channels * self.field.size
        self.weight = nn.Parameter((2 * fan_in * out_channels) ** -0.5 * torch.randn(outputs, fan_in))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
        if x.ndim != 4 or x.shape[-1] != self.in_channels:
            raise ValueError(f"PoincareConv2d: expected [B, H, W, {self.in_channels}], got {list(x.shape)}")
        size = self.field.size
        ratio = math.exp(log_beta(size * self.in_channels) - log_beta(self.in_channels))
        tangent = ratio * log0(full(x))
        weight = F.normalize(full(self.weight), dim=-1).view(-1, self.in_channels, *self.field.kernel)
        y = self.field.convolve(as_image(tangent), weight.to(self.weight.dtype).to(tangent.dtype))
        return self.finish(tangent, full(as_rows(y)), k=k)

    @tensors_in_full_precision
    def finish(self, tangent: Tensor, y: Tensor, *, k: float | Tensor) -> Tensor:
        """From tangent vectors and their products with unit normals to points."""
        length = torch.sqrt(window_sum(tangent.square().sum(-1), self.field).clamp_min(1e-30)).unsqueeze(-1)
        a = 2 * length.clamp_max(math.atanh(LARGEST))
        bias = full(self.bias).repeat(4 if self.rise else 1)
        shift = 2 * bias / sqrt_k(k, y)
        inside = torch.sinh(a) * y / length * torch.cosh(shift) - torch.cosh(a) * torch.sinh(shift)
        w = 2 * full(self.weight).norm(dim=-1) * torch.asinh(inside)
        if self.rise:
            b, h, width, _ = w.shape
            w = w.view(b, h, width, 2, 2, -1).transpose(2, 3).reshape(b, 2 * h, 2 * width, -1)
        w = torch.sinh(w.clamp(-40.0, 40.0))
        return project(w / (1 + torch.sqrt(1 + w.square().sum(-1, keepdim=True))))

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, {self.field.describe()}, rise={self.rise}"


class PoincareBatchNorm2d(nn.Module):
    """bias (+) (sqrt(gain/(variance + eps)) (x) ((-mean) (+) x)), mean the gyromidpoint of all pixels.

    The variance is the mean squared distance to it, in units of length; running values as in `PolarBatchNorm2d`, the
    mean moving along the geodesic. The bias point is stored as v [n]. `activation="relu"` applies ReLU behind it, in
    the tangent space at the origin.
    """

    roles: ClassVar[dict[str, Role]] = {"gain": NO_DECAY, "bias": MANIFOLD}

    def __init__(
        self, dim: int, eps: float = 1e-5, momentum: float = 0.1, activation: Literal["relu"] | None = None
    ) -> None:
        super().__init__()
        self.dim, self.eps, self.momentum, self.activation = dim, eps, momentum, activation
        self.gain = nn.Parameter(torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_variance", torch.ones(()))
        self.running_mean: Tensor
        self.running_variance: Tensor

    @tensors_in_full_precision
    def forward(self, x: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
        mean = self.midpoint(x) if self.training else full(self.running_mean)
        v = log0(mobius_add(-mean, x))
        if self.training:
            variance = gather((4 * v.square().sum(-1)).mean().reshape(1)).mean() * k
            self.remember(mean, variance)
        else:
            variance = full(self.running_variance)
        scaled = exp0(v * torch.sqrt(full(self.gain).clamp_min(0.0) / (variance + self.eps)))
        out = mobius_add(exp0(0.5 * full(self.bias) / sqrt_k(k, x)), scaled)
        return out if self.activation is None else exp0(torch.relu(log0(out)))

    def midpoint(self, x: Tensor) -> Tensor:
        """1/2 (x) (sum lambda x / sum (lambda - 1)) over all pixels of all processes."""
        factor = 2 / (1 - x.square().sum(-1, keepdim=True))
        sums = torch.cat([(factor * x).mean((0, 1, 2)), (factor - 1).mean().reshape(1)])
        sums = gather(sums.unsqueeze(0)).mean(0)
        return mobius_scale(0.5, project(sums[:-1] / sums[-1:]))

    @torch.no_grad()
    def remember(self, mean: Tensor, variance: Tensor) -> None:
        """Let the batch into the running statistics."""
        old = full(self.running_mean)
        step = mobius_scale(self.momentum, mobius_add(-old, mean))
        self.running_mean.copy_(mobius_add(old, step))
        self.running_variance.lerp_(variance.to(self.running_variance.dtype), self.momentum)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}, momentum={self.momentum}, activation={self.activation}"
