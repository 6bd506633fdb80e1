"""The layers of HVT (Fein-Ashley et al., 2024), in the Poincare ball."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.nn.baselines import ball
from polarvit.nn.baselines.lorentz import kept_samples
from polarvit.nn.precision import full, product, tensors_in_full_precision
from polarvit.parameters import MANIFOLD, NO_DECAY, ORDINARY, Role


class BallPoint(nn.Module):
    """Learned points of the ball, kept as v = r u in the tangent space at the origin: x = tanh(|v|/2) v/|v|."""

    roles: ClassVar[dict[str, Role]] = {"vector": MANIFOLD}

    def __init__(self, v: Tensor) -> None:
        super().__init__()
        self.vector = nn.Parameter(v)

    def forward(self) -> Tensor:
        return ball.exp0(0.5 * full(self.vector))


class MobiusLinear(nn.Module):
    """b (+) after W (x) x = exp_0(W log_0 x): [..., in] -> [..., out]; `tangent` inputs are taken as log_0 x.

    The published code keeps W itself as points of the ball and lets a Riemannian optimizer move its rows; here W is the
    matrix it acts as, and only the bias is a point.
    """

    roles: ClassVar[dict[str, Role]] = {"weight": ORDINARY}

    def __init__(self, in_features: int, out_features: int, tangent: bool = False) -> None:
        super().__init__()
        self.in_features, self.out_features, self.tangent = in_features, out_features, tangent
        bound = 1 / math.sqrt(in_features)
        self.weight = nn.Parameter(bound * (2 * torch.rand(out_features, in_features) - 1))
        self.bias = BallPoint(2 * bound * (2 * torch.rand(out_features) - 1) / math.sqrt(out_features))

    def forward(self, x: Tensor) -> Tensor:
        return self.finish(product(x if self.tangent else self.start(x), self.weight))

    @tensors_in_full_precision
    def start(self, x: Tensor) -> Tensor:
        return ball.log0(x)

    @tensors_in_full_precision
    def finish(self, v: Tensor) -> Tensor:
        return ball.mobius_add(ball.exp0(v), self.bias())

    @torch.no_grad()
    def stretch(self, delta: float) -> None:
        """Multiply the map by e^delta."""
        self.weight.mul_(math.exp(delta))

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class TangentNorm(nn.Module):
    """exp_0(LayerNorm(log_0 x)), with a gain and a bias for every coordinate."""

    roles: ClassVar[dict[str, Role]] = {"weight": NO_DECAY, "bias": NO_DECAY}

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    @tensors_in_full_precision
    def forward(self, x: Tensor) -> Tensor:
        return ball.exp0(F.layer_norm(ball.log0(x), (self.dim,), full(self.weight), full(self.bias), self.eps))

    @torch.no_grad()
    def stretch(self, delta: float) -> None:
        """Multiply the gain by e^delta."""
        self.weight.mul_(math.exp(delta))


class TangentPReLU(nn.Module):
    """exp_0(PReLU(log_0 x)) with one learned slope, 1 at the start."""

    roles: ClassVar[dict[str, Role]] = {"slope": NO_DECAY}

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(1))

    @tensors_in_full_precision
    def forward(self, x: Tensor) -> Tensor:
        return ball.exp0(F.prelu(ball.log0(x), full(self.slope)))


class MobiusResidual(nn.Module):
    """x (+) s (x) step with one learned s, 1 at the start; dropout acts on the step's tangent vector."""

    roles: ClassVar[dict[str, Role]] = {"scale": NO_DECAY}

    def __init__(self, drop_path: float = 0.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.drop_path, self.dropout = drop_path, dropout
        self.scale = nn.Parameter(torch.ones(1))

    @tensors_in_full_precision
    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        v = torch.dropout(ball.log0(step), self.dropout, self.training)
        size = full(self.scale) * kept_samples(x, self.drop_path, self.training)
        return ball.mobius_add(x, ball.exp0(size * v))

    def extra_repr(self) -> str:
        return f"drop_path={self.drop_path}, dropout={self.dropout}"


class TangentAttention(nn.Module):
    """Dot products of log_0 q and log_0 k over sqrt(d), divided by a learned number for each head; values joined there.

    Heads are slices of ball coordinates, which are points of smaller balls. Their means in the tangent space are
    concatenated there and mapped back: the published code maps back first, and a concatenation of points of the ball
    need not lie in it.
    """

    roles: ClassVar[dict[str, Role]] = {"temperature": NO_DECAY}

    def __init__(self, dim: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        if heads < 1 or dim % heads:
            raise ValueError(f"TangentAttention: dim {dim} is not divisible by {heads} heads")
        self.dim, self.heads, self.dropout = dim, heads, dropout
        self.query, self.key, self.value, self.out = (MobiusLinear(dim, dim) for _ in range(4))
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.dropout(self.attention_map(x), self.dropout, self.training)
        return self.out(self.join(weights, self.value(x)))

    def attention_map(self, x: Tensor) -> Tensor:
        """Attention weights [B, H, N, N]."""
        return self.score(self.query(x), self.key(x)).softmax(-1)

    def _heads(self, x: Tensor) -> Tensor:
        return ball.log0(x.unflatten(-1, (self.heads, -1)).transpose(-2, -3))

    @tensors_in_full_precision
    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores [B, H, N, N]."""
        q, key = self._heads(query), self._heads(key)
        return q @ key.mT * (self.dim // self.heads) ** -0.5 / full(self.temperature)

    @tensors_in_full_precision
    def join(self, weights: Tensor, value: Tensor) -> Tensor:
        """Means of the heads in the tangent space, concatenated, mapped back."""
        return ball.exp0((weights @ self._heads(value)).transpose(-2, -3).flatten(-2))

    def extra_repr(self) -> str:
        return f"{self.dim}, heads={self.heads}, dropout={self.dropout}"
