"""Batch normalisation of images of points: HCNN's, in polar form."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, from_tangent0
from polarvit.geometry.directions import scaled_polar
from polarvit.geometry.scaled import exp_capped, rescale, restore, sh
from polarvit.nn.conv.space import LARGEST, excess, scaled_sinh
from polarvit.nn.conv.sums import Sums, merged, summed
from polarvit.nn.conv.sync import gather
from polarvit.nn.precision import full, in_full_precision
from polarvit.parameters import MANIFOLD, NO_DECAY, Role


class PolarBatchNorm2d(nn.Module):
    """bias (+) (gain/(s + eps) (x) ((-mean) (+) x)) on images of points [B, H, W] of dimension `dim`.

    While training, `mean` is the Lorentz centroid of the centroids of the images and s the mean distance of all points
    to it (not squared: HCNN); otherwise both are running values, kept as `running_mean`, a point v = r u, and
    `running_spread`. A batch enters them with the weight `momentum`, the mean by a weighted centroid. Under
    `torch.distributed` the statistics are those of all processes (equal batches each), and so are the gradients.

    The gain is one positive number, 1 at first; the bias is a point stored as v = r u, the origin at first.
    `activation="relu"` applies ReLU to the space part of the result, which costs nothing here.
    """

    roles: ClassVar[dict[str, Role]] = {"log_gain": NO_DECAY, "bias": MANIFOLD}

    def __init__(
        self, dim: int, eps: float = 1e-5, momentum: float = 0.1, activation: Literal["relu"] | None = None
    ) -> None:
        super().__init__()
        if dim < 1:
            raise ValueError(f"PolarBatchNorm2d: dim must be positive, got {dim}")
        if activation not in (None, "relu"):
            raise ValueError(f"PolarBatchNorm2d: activation must be None or 'relu', got {activation!r}")
        self.dim, self.eps, self.momentum, self.activation = dim, eps, momentum, activation
        self.log_gain = nn.Parameter(torch.zeros(()))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_spread", torch.ones(()))
        self.running_mean: Tensor
        self.running_spread: Tensor

    @in_full_precision
    def forward(self, x: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        if x.dim != self.dim or x.radius.ndim != 3:
            raise ValueError(
                f"PolarBatchNorm2d: expected images [B, H, W] of dimension {self.dim}, got {list(x.direction.shape)}"
            )
        a, u = rescale(x.radius, k), x.direction
        b, v = batch_mean(a, u) if self.training else rescaled(self.running_mean, k)
        a, u = centred(a, u, b, v)
        spread = gather(restore(a.mean(), k).reshape(1)).mean() if self.training else full(self.running_spread)
        if self.training:
            self.remember(b, v, spread, k=k)
        a = a * (torch.exp(full(self.log_gain)) / (spread + self.eps))
        space, scale = moved(*rescaled(self.bias, k), a, u)
        a, u = scaled_polar(torch.relu(space) if self.activation == "relu" else space, scale)
        return PolarPoint(restore(a, k), u)

    @torch.no_grad()
    def remember(self, b: Tensor, v: Tensor, spread: Tensor, *, k: float | Tensor) -> None:
        """Let the batch into the running statistics."""
        points = rescaled(self.running_mean, k), (b, v)
        t = torch.relu(torch.maximum(points[0][0], b) - LARGEST)
        old, new = (Sums(scaled_sinh(a, t), u, torch.zeros_like(a), -a) for a, u in points)
        a, u = merged(old, new, self.momentum).point(t)
        self.running_mean.copy_(restore(a, k) * u)
        self.running_spread.lerp_(spread.to(self.running_spread.dtype), self.momentum)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}, momentum={self.momentum}, activation={self.activation}"


def rescaled(v: Tensor, k: float | Tensor) -> tuple[Tensor, Tensor]:
    """Rescaled radius and direction of a point stored as v = r u."""
    point = from_tangent0(full(v))
    return rescale(point.radius, k), point.direction


def batch_mean(a: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Centroid (b [], v [n]) of the centroids of rescaled images a [B, H, W], u [B, H, W, n] of all processes."""
    t = excess(a).flatten(1)
    a, u = a.flatten(1), u.flatten(1, 2)
    images = summed(a, u, scaled_sinh(a, t)).point(t.squeeze(1))
    a, u = (gather(x) for x in images)
    t = torch.relu(a.detach().amax() - LARGEST)
    return summed(a, u, scaled_sinh(a, t)).point(t)


def centred(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """(-mean) (+) x for rescaled points x = (a [...], u [..., n]) and one mean (b [], v [n]).

    Its space part is sinh a (u - v) + [sinh(a-b) - (cosh b - 1) sinh a chi] v, chi = 1/2|u-v|^2: only differences
    that truly vanish at the mean. The exponent S of its largest term is taken out.
    """
    gap = u - v
    chi = 0.5 * gap.square().sum(-1)
    step = a - b
    s = torch.maximum(step.abs(), a + b + torch.log(0.5 * chi)).detach()
    side = torch.where(step < 0, -torch.ones_like(step), torch.ones_like(step)).detach()
    length = side * step
    along = side * sh(length) * torch.exp(length - s)
    along = along - 0.5 * torch.expm1(-b).square() * sh(a) * chi * exp_capped(a + b - s)
    space = (sh(a) * exp_capped(a - s)).unsqueeze(-1) * gap + along.unsqueeze(-1) * v
    return scaled_polar(space, s)


def moved(c: Tensor, e: Tensor, a: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Space part of bias (+) x, times e^-(a+c), and a + c, for one rescaled bias (c [], e [n]).

    It is sinh a u + F e, F = 2 sinh(c/2) cosh(a - c/2) + (cosh c - 1) sinh a 1/2|u+e|^2, both terms non-negative.
    """
    near = -torch.expm1(-c)
    towards = near * (torch.exp(-c) + torch.exp(-2 * a)) + near.square() * sh(a) * 0.5 * (u + e).square().sum(-1)
    return (sh(a) * torch.exp(-c)).unsqueeze(-1) * u + (0.5 * towards).unsqueeze(-1) * e, a + c
