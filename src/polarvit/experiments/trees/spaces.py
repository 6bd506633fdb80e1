"""The libraries that keep the tree: ours, ambient arithmetic, geoopt and hypll (the last two if they are installed).

Each is asked for three things: to store points given in float64, to say how far apart they are, and to train them with
its own Riemannian Adam.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from polarvit.experiments.precision.peers import quietly
from polarvit.geometry import (
    PolarPoint,
    ambient,
    distance,
    from_ambient,
    from_ball,
    from_tangent0,
    to_ambient,
    to_ball,
)
from polarvit.nn import PolarEmbedding
from polarvit.optim import AmbientRiemannianAdamW, RiemannianAdamW, param_groups

F64 = torch.float64


class Stored(ABC):
    """Points in the coordinates and the precision of one library."""

    @abstractmethod
    def distance(self, one: Tensor, other: Tensor) -> Tensor:
        """As the library computes it, with its gradient, between points with these indices."""

    @abstractmethod
    def points(self) -> PolarPoint:
        """What is stored, exactly, in float64."""

    @abstractmethod
    def optimizer(self, lr: float) -> Optimizer:
        """The library's Riemannian Adam, without decay."""


class Polar(Stored):
    def __init__(self, points: PolarPoint, dtype: torch.dtype) -> None:
        self.table = PolarEmbedding.starting_at(points.map(lambda x: x.to(dtype)))

    def distance(self, one: Tensor, other: Tensor) -> Tensor:
        return distance(self.table(one), self.table(other))

    def points(self) -> PolarPoint:
        return from_tangent0(self.table.v.detach().to(F64))

    def optimizer(self, lr: float) -> Optimizer:
        return RiemannianAdamW(param_groups(self.table, lr, 0.0))


class Ambient(Polar):
    """The arithmetic of published models; the optimizer stores v = r u and lifts it to the hyperboloid for its step."""

    def distance(self, one: Tensor, other: Tensor) -> Tensor:
        x = to_ambient(self.table())
        return ambient.distance(x[one], x[other])

    def optimizer(self, lr: float) -> Optimizer:
        return AmbientRiemannianAdamW(param_groups(self.table, lr, 0.0))


class Geoopt(Stored):
    def __init__(self, points: PolarPoint, dtype: torch.dtype, manifold: str) -> None:
        self.geoopt = quietly("geoopt")
        self.ball = manifold == "PoincareBall"
        x = (to_ball if self.ball else to_ambient)(points).to(dtype)
        self.manifold = getattr(self.geoopt, manifold)()
        self.x = self.geoopt.ManifoldParameter(self.manifold.projx(x) if self.ball else x, manifold=self.manifold)

    def distance(self, one: Tensor, other: Tensor) -> Tensor:
        found: Tensor = self.manifold.dist(self.x[one], self.x[other])
        return found

    def points(self) -> PolarPoint:
        x = self.x.detach().to(F64)
        return (from_ball if self.ball else from_ambient)(x)

    def optimizer(self, lr: float) -> Optimizer:
        found: Optimizer = self.geoopt.optim.RiemannianAdam([self.x], lr=lr)
        return found


class Hypll(Stored):
    def __init__(self, points: PolarPoint, dtype: torch.dtype) -> None:
        ball = quietly("hypll.manifolds.poincare_ball")
        # The curvature passes through a softplus unless it is told otherwise.
        self.manifold = ball.PoincareBall(ball.Curvature(1.0, constraining_strategy=lambda value: value))
        tensors = quietly("hypll.tensors")
        kept = self.manifold.project(
            tensors.ManifoldTensor(to_ball(points).to(dtype), manifold=self.manifold, man_dim=-1)
        )
        self.x = tensors.ManifoldParameter(kept.tensor, manifold=self.manifold, man_dim=-1)

    def distance(self, one: Tensor, other: Tensor) -> Tensor:
        found: Tensor = self.manifold.dist(self.x[one], self.x[other])
        return found

    def points(self) -> PolarPoint:
        return from_ball(self.x.tensor.detach().to(F64))

    def optimizer(self, lr: float) -> Optimizer:
        found: Optimizer = quietly("hypll.optim").RiemannianAdam([self.x], lr=lr)
        return found


@dataclass(frozen=True)
class Space:
    """One way to keep points: `store(points)`."""

    key: str
    label: str
    dtype: torch.dtype
    make: Callable[[PolarPoint, torch.dtype], Stored]
    needs: str = ""
    """A package that must be installed."""

    def store(self, points: PolarPoint) -> Stored:
        return self.make(points, self.dtype)


def lorentz(points: PolarPoint, dtype: torch.dtype) -> Stored:
    return Geoopt(points, dtype, "Lorentz")


def poincare(points: PolarPoint, dtype: torch.dtype) -> Stored:
    return Geoopt(points, dtype, "PoincareBall")


SPACES = (
    Space("polar", "polarvit", torch.float32, Polar),
    Space("ambient", "ambient", torch.float32, Ambient),
    Space("geoopt_lorentz", "geoopt Lorentz", torch.float32, lorentz, "geoopt"),
    Space("geoopt_ball", "geoopt ball", torch.float32, poincare, "geoopt"),
    Space("hypll_ball", "hypll ball", torch.float32, Hypll, "hypll"),
    Space("polar_64", "polarvit f64", F64, Polar),
    Space("geoopt_lorentz_64", "Lorentz f64", F64, lorentz, "geoopt"),
)


def installed() -> tuple[list[Space], list[str]]:
    """The spaces that can be made here, and the packages that are missing."""
    missing = []
    for package in dict.fromkeys(space.needs for space in SPACES if space.needs):
        try:
            quietly(package)
        except ImportError:
            missing.append(package)
    return [space for space in SPACES if space.needs not in missing], missing
