"""Batch normalisation of images of points: HCNN's, in polar form."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, from_tangent0
from polarvit.geometry.scaled import rescale, restore, sqrt_k
from polarvit.kernels.images import batch_norm, normalise, remember
from polarvit.nn.precision import full, in_full_precision
from polarvit.parameters import MANIFOLD, NO_DECAY, Role

Point = tuple[Tensor, Tensor]
"""Rescaled radius [] and direction [n]."""


class PolarBatchNorm2d(nn.Module):
    """bias (+) (gain/(s + eps) (x) ((-mean) (+) x)) on images of points [B, H, W] of dimension `dim`.

    While training, `mean` is the Lorentz centroid of all points and s their mean distance to it (not squared: HCNN);
    otherwise both are running values, kept as `running_mean`, a point v = r u, and `running_spread`. A batch enters
    them with the weight `momentum`, the mean by a weighted centroid. Under `torch.distributed` the statistics are
    those of all processes (equal batches each), and so are the gradients.

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
        a, u, relu = rescale(x.radius, k), x.direction, self.activation == "relu"
        gain, bias = torch.exp(full(self.log_gain)), rescaled(self.bias, k)
        if self.training:
            value = sqrt_k(k, a)
            root = value if isinstance(value, Tensor) else a.new_full((), value)
            (a, u), mean, distance = batch_norm(a, u, gain, bias, root=root, eps=self.eps, relu=relu)
            self.remember(mean, distance, root)
        else:
            running = rescaled(self.running_mean, k)
            a, u = normalise(a, u, running, gain / (full(self.running_spread) + self.eps), bias, relu=relu)
        return PolarPoint(restore(a, k), u)

    @torch.no_grad()
    def remember(self, mean: Point, distance: Tensor, root: Tensor) -> None:
        """Let the batch into the running statistics."""
        old = full(self.running_mean), full(self.running_spread)
        new = remember(*old, mean, distance, root=root, momentum=self.momentum)
        self.running_mean.copy_(new[0])
        self.running_spread.copy_(new[1])

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}, momentum={self.momentum}, activation={self.activation}"


def rescaled(v: Tensor, k: float | Tensor) -> Point:
    """Rescaled radius and direction of a point stored as v = r u."""
    point = from_tangent0(full(v))
    return rescale(point.radius, k), point.direction
