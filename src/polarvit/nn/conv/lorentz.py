"""The convolution and batch norm of HCNN (Bdeir et al., 2024) on ambient points [B, H, W, n+1], in its arithmetic.

They are here to be compared with the polar layers. What published code clamps is clamped here.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.kernels.images.sync import gather
from polarvit.nn.baselines.lorentz import FLOOR, arcosh, exp0, exp_map, log0, log_map, soft_radius_cap
from polarvit.nn.conv.space import as_image, as_rows
from polarvit.nn.conv.window import Field, Pair, window_sum
from polarvit.nn.precision import full, tensors_in_full_precision
from polarvit.parameters import MANIFOLD, NO_DECAY, ORDINARY, Role


class LorentzConv2d(nn.Module):
    """Direct concatenation of each receptive field, t = sqrt(sum t_i^2 - (N-1) k), the soft radius cap of Bdeir et al.
    (2025) on it, then the general Lorentz layer: space part W x + b, time recomputed.

    Padding is the origin. W has out + 1 rows, the first for a time coordinate, as published; the general layer never
    reads it. Parameters: (out + 1)(in kh kw + 2).
    """

    roles: ClassVar[dict[str, Role]] = {"weight": ORDINARY, "time_weight": ORDINARY, "bias": NO_DECAY}

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        k: float = 1.0,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.k = in_channels, out_channels, k
        self.field = Field.of("LorentzConv2d", kernel_size, stride, padding, dilation)
        self.weight = nn.Parameter(torch.empty(out_channels + 1, in_channels, *self.field.kernel))
        self.time_weight = nn.Parameter(torch.empty(out_channels + 1))
        self.bias = nn.Parameter(torch.empty(out_channels + 1))
        bound = math.sqrt(2 / (in_channels * self.field.size))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[-1] != self.in_channels + 1:
            raise ValueError(f"LorentzConv2d: expected [B, H, W, {self.in_channels + 1}], got {list(x.shape)}")
        space, weight = full(x)[..., 1:], self.weight[1:]
        y = self.field.convolve(as_image(space.to(weight.dtype)), weight)
        return self.finish(full(x), full(as_rows(y)))

    @tensors_in_full_precision
    def finish(self, x: Tensor, y: Tensor) -> Tensor:
        """The joined time, the cap, and the rest of W x + b."""
        root, size = math.sqrt(self.k), self.field.size
        pad = (self.field.padding[1],) * 2 + (self.field.padding[0],) * 2
        times = F.pad(x[..., 0], pad, value=root).square()
        time = torch.sqrt(window_sum(times, self.field._replace(padding=(0, 0))) - (size - 1) * self.k)
        norm = torch.sqrt(window_sum(x[..., 1:].square().sum(-1), self.field).clamp_min(FLOOR))
        radius = root * arcosh(time / root)
        shrink = root * torch.sinh(capped(radius, self.k) / root) / norm
        time = torch.sqrt(self.k + (shrink * norm).square()).unsqueeze(-1)
        h = shrink.unsqueeze(-1) * y + time * full(self.time_weight)[1:] + full(self.bias)[1:]
        return ambient.from_space(h, k=self.k)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, {self.field.describe()}"


def capped(radius: Tensor, k: float) -> Tensor:
    """r_max tanh(f r) with r_max = sqrt(k) arcosh(2000/k), f = artanh(0.99)/(2 r_max): `soft_radius_cap` on radii."""
    largest = math.sqrt(k) * math.acosh(2000 / k)
    return largest * torch.tanh(math.atanh(0.99) / (2 * largest) * radius)


class LorentzBatchNorm2d(nn.Module):
    """exp_b PT_o->b (gain/(s + eps) PT_mean->o log_mean x), then the soft radius cap: [B, H, W, n+1] -> the same.

    `mean` is the centroid of the images' centroids, s the mean length of the logarithms; running values as in
    `PolarBatchNorm2d`. The bias point is stored as v [n]. `activation="relu"` applies ReLU to the space part behind it.
    """

    roles: ClassVar[dict[str, Role]] = {"gain": NO_DECAY, "bias": MANIFOLD}

    def __init__(
        self,
        dim: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        k: float = 1.0,
        activation: Literal["relu"] | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.eps, self.momentum, self.k, self.activation = dim, eps, momentum, k, activation
        self.gain = nn.Parameter(torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_spread", torch.ones(()))
        self.running_mean: Tensor
        self.running_spread: Tensor

    @tensors_in_full_precision
    def forward(self, x: Tensor) -> Tensor:
        k = self.k
        if self.training:
            mean = ambient.centroid(gather(ambient.centroid(x.flatten(1, 2), k=k)), k=k)
        else:
            mean = exp0(full(self.running_mean), k=k)
        start = ambient.origin(self.dim, k=k, like=x)
        xi = ambient.transport(mean, start, log_map(mean, x, k=k), k=k)
        if self.training:
            lengths = torch.sqrt(ambient.inner(xi, xi).clamp_min(FLOOR))
            spread = gather(lengths.mean().reshape(1)).mean()
            self.remember(mean, spread)
        else:
            spread = full(self.running_spread)
        xi = xi * (full(self.gain) / (spread + self.eps))
        bias = exp0(full(self.bias), k=k)
        out = soft_radius_cap(exp_map(bias, ambient.transport(start, bias, xi, k=k), k=k), k=k)
        return out if self.activation is None else ambient.from_space(torch.relu(out[..., 1:]), k=k)

    @torch.no_grad()
    def remember(self, mean: Tensor, spread: Tensor) -> None:
        """Let the batch into the running statistics."""
        old = exp0(full(self.running_mean), k=self.k)
        both = (1 - self.momentum) * old + self.momentum * mean
        both = math.sqrt(self.k) * both / ambient.inner(both, both).abs().clamp_min(FLOOR).sqrt()
        self.running_mean.copy_(log0(both, k=self.k))
        self.running_spread.lerp_(spread.to(self.running_spread.dtype), self.momentum)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}, momentum={self.momentum}, activation={self.activation}"


def max_pool(x: Tensor, *, k: float = 1.0) -> Tensor:
    """The largest value of every space coordinate in 2x2 windows, time recomputed."""
    return ambient.from_space(as_rows(F.max_pool2d(as_image(x[..., 1:]), 2)), k=k)


def upsample(x: Tensor, *, k: float = 1.0) -> Tensor:
    """Twice the resolution: the ambient centroid with bilinear weights."""
    y = as_rows(F.interpolate(as_image(x), scale_factor=2.0, mode="bilinear", align_corners=False))
    return math.sqrt(k) * y / ambient.inner(y, y).abs().clamp_min(FLOOR).sqrt().unsqueeze(-1)
