"""geoopt and hypll on the same points, each in its own coordinates, in float32. Both are optional."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import Tensor

from polarvit.experiments.precision.samples import stored, stored_ambient
from polarvit.geometry import PolarPoint, ambient, centroid, distance, from_ambient, from_ball, to_ball
from polarvit.provenance import package_version

Distance = Callable[[PolarPoint, PolarPoint], Tensor]
Centroid = Callable[[PolarPoint], PolarPoint]


@dataclass(frozen=True)
class Method:
    """A way to compute: takes true float64 points, stores them its own way in float32, returns what it gets."""

    name: str
    version: str
    distance: Distance | None = None
    centroid: Centroid | None = None
    missing: str = ""


def own_methods() -> list[Method]:
    """Ours, the ambient arithmetic of published models, and the latter in float64 on coordinates stored in float32."""
    return [
        Method("polarvit", "polar", lambda p, q: distance(stored(p), stored(q)), lambda p: centroid(stored(p))),
        Method(
            "ambient",
            "geometry.ambient",
            lambda p, q: ambient.distance(stored_ambient(p), stored_ambient(q)),
            lambda p: from_ambient(ambient.centroid(stored_ambient(p)).double()),
        ),
        Method(
            "ambient, float64",
            "stored in float32",
            lambda p, q: ambient.distance(stored_ambient(p).double(), stored_ambient(q).double()),
            lambda p: from_ambient(ambient.centroid(stored_ambient(p).double())),
        ),
    ]


def geoopt_method() -> Method:
    """geoopt's Lorentz manifold; it has no centroid in 0.5.1."""
    lorentz = quietly("geoopt").Lorentz(k=1.0)
    return Method(
        "geoopt",
        f"Lorentz, {package_version('geoopt')}",
        lambda p, q: lorentz.dist(stored_ambient(p), stored_ambient(q)),
    )


def hypll_method() -> Method:
    """hypll's Poincare ball; its midpoint is the Lorentz centroid seen in the ball.

    Points are put where hypll's own maps put them, a margin inside the boundary: at radius 6.2 in float32.
    """
    ball = quietly("hypll.manifolds.poincare_ball")
    tensors = quietly("hypll.tensors")
    # The curvature passes through a softplus unless it is told otherwise.
    manifold = ball.PoincareBall(ball.Curvature(1.0, constraining_strategy=lambda value: value))

    def put(points: PolarPoint) -> Any:
        return manifold.project(tensors.ManifoldTensor(to_ball(points).float(), manifold=manifold, man_dim=-1))

    def midpoint(points: PolarPoint) -> PolarPoint:
        return from_ball(manifold.midpoint(put(points), batch_dim=points.radius.ndim - 1).tensor.detach().double())

    return Method(
        "hypll",
        f"Poincare ball, {package_version('hypll')}",
        lambda p, q: manifold.dist(put(p), put(q)).detach(),
        midpoint,
    )


PEERS: dict[str, Callable[[], Method]] = {"geoopt": geoopt_method, "hypll": hypll_method}


def methods() -> list[Method]:
    """Ours, ambient, and each peer; one that cannot be imported is a row that says so."""
    found = own_methods()
    for name, load in PEERS.items():
        try:
            found.append(load())
        except ImportError:
            found.append(Method(name, "", missing="not installed: pip install 'polarvit[peers]'"))
    return found


def quietly(module: str) -> Any:
    """A peer's module, without the warnings that importing it prints."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(module)
