"""Error against radius for every method, and the radius at which each loses a unit distance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polarvit.experiments.precision.operations import geodesic_error, points_at
from polarvit.experiments.precision.peers import Method
from polarvit.experiments.precision.samples import (
    SIZE,
    Spread,
    clusters,
    resolution_limit,
    stored,
    stored_ambient,
    unit_pairs,
)
from polarvit.geometry import PolarPoint, ambient, centroid, distance

RADII = tuple(0.5 * step for step in range(1, 41))


def neighbours(points: PolarPoint) -> tuple[PolarPoint, PolarPoint]:
    """Half of each cluster against the other half, [count, 32]."""
    even = torch.arange(0, SIZE, 2)
    return points_at(points, even), points_at(points, even + 1)


def method_errors(method: Method, points: PolarPoint) -> dict[str, Spread]:
    """Error of the distance (absolute) and of the centroid (geodesic), where the method has them."""
    errors = {}
    if method.distance is not None:
        p, q = neighbours(points)
        errors["distance"] = Spread.of((method.distance(p, q).double() - distance(p, q)).abs())
    if method.centroid is not None:
        errors["centroid"] = Spread.of(geodesic_error(method.centroid(points), centroid(points)))
    return errors


def sweep(methods: list[Method], count: int, seed: int) -> dict[str, Any]:
    """Median error of each method at each radius, the distances it returned, and the resolution limit."""
    present = [method for method in methods if not method.missing]
    errors: dict[str, Any] = {method.name: {"distance": [], "centroid": []} for method in present}
    returned: dict[str, list[float]] = {method.name: [] for method in present}
    for radius in RADII:
        points = clusters(radius, count, seed)
        for method in present:
            for operation, spread in method_errors(method, points).items():
                errors[method.name][operation].append(spread.record())
            if method.distance is not None:
                returned[method.name].append(method.distance(*neighbours(points)).double().nanmedian().item())
    return {
        "radii": list(RADII),
        "resolution_limit": [resolution_limit(r) for r in RADII],
        "errors": errors,
        "median_returned_distance": returned,
    }


def failure_radius(compute: Callable[[PolarPoint, PolarPoint], Tensor], start: float, count: int, seed: int) -> float:
    """The first radius, in steps of 0.1 from `start`, where the median error of a unit distance passes one half."""
    for step in range(round(10 * start), 300):
        p, q = unit_pairs(step / 10, count, seed)
        if Spread.of((compute(p, q).double() - 1).abs()).median >= 0.5:
            return step / 10
    return math.inf


def failure_radii(count: int, seed: int) -> list[dict[str, Any]]:
    """For bfloat16 and float32: where the ambient and the polar distance lose a unit distance, and what theory says."""
    rows = []
    for dtype, paper in ((torch.bfloat16, (2.8, 6.2)), (torch.float32, (8.3, 17.3))):
        eps = torch.finfo(dtype).eps / 2

        def by_ambient(p: PolarPoint, q: PolarPoint, dtype: torch.dtype = dtype) -> Tensor:
            return ambient.distance(stored_ambient(p, dtype), stored_ambient(q, dtype))

        def by_polar(p: PolarPoint, q: PolarPoint, dtype: torch.dtype = dtype) -> Tensor:
            return distance(stored(p, dtype), stored(q, dtype))

        theory = {"ambient": 0.5 * math.log(1 / eps), "polar": math.log(2 / eps)}
        rows.append(
            {
                "dtype": str(dtype).removeprefix("torch."),
                "paper": {"ambient": paper[0], "polar": paper[1]},
                "theory": theory,
                "measured": {
                    "ambient": failure_radius(by_ambient, theory["ambient"] / 2, count, seed),
                    "polar": failure_radius(by_polar, theory["polar"] / 2, count, seed),
                },
            }
        )
    return rows
