"""The three operations of the paper's table, polar and ambient, on one set of clusters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polarvit.experiments.precision.samples import SIZE, Spread, clusters, resolution_limit, stored, stored_ambient
from polarvit.geometry import (
    PolarPoint,
    ambient,
    centroid,
    distance,
    from_ambient,
    from_space,
    gyroadd,
    gyroneg,
    squared_distance,
)

RADII = (4.0, 8.0, 12.0)

PAPER = {
    "squared distance": {4.0: (3e-4, 4e-7), 8.0: (7e-1, 1e-5), 12.0: (2e3, 7e-4)},
    "centroid": {4.0: (2e-4, 9e-7), 8.0: (9.0, 5e-5), 12.0: (9.0, 3e-3)},
    "gyro centering": {4.0: (1.2e-4, 5.6e-6), 8.0: (0.70, 4.0e-4), 12.0: (float("nan"), 2.0e-2)},
}
"""The paper's table: operation -> radius -> (ambient, polar)."""

PAPER_LIMIT = {4.0: 5e-6, 8.0: 2e-4, 12.0: 1e-2}


def pairs(points: PolarPoint) -> tuple[PolarPoint, PolarPoint]:
    """All pairs i < j of each cluster: two points [count, 2016]."""
    i, j = torch.triu_indices(SIZE, SIZE, 1)
    return points_at(points, i), points_at(points, j)


def points_at(points: PolarPoint, index: Tensor) -> PolarPoint:
    return PolarPoint(points.radius[..., index], points.direction[..., index, :])


def keep_axis(point: PolarPoint) -> PolarPoint:
    """[count] -> [count, 1], to stand against the points of its cluster."""
    return PolarPoint(point.radius.unsqueeze(-1), point.direction.unsqueeze(-2))


def geodesic_error(result: PolarPoint, truth: PolarPoint) -> Tensor:
    """Distance from the true point, computed in float64."""
    return distance(result.map(torch.Tensor.double), truth)


def ambient_point(x: Tensor) -> PolarPoint:
    """The point an ambient result stands for: its space part, read in float64."""
    return from_ambient(x.double())


def squared_distance_errors(points: PolarPoint) -> dict[str, Tensor]:
    """Relative errors. Ambient models take -2k - 2<x, y> = 2k (cosh(d/sqrt k) - 1) for d^2; its truth is that one."""
    p, q = pairs(points)
    d = distance(p, q)
    x, y = stored_ambient(p), stored_ambient(q)
    lorentzian = 4 * torch.sinh(0.5 * d).square()
    return {
        "ambient": (ambient.squared_distance(x, y).double() / lorentzian - 1).abs(),
        "polar": (squared_distance(stored(p), stored(q)).double() / d.square() - 1).abs(),
        "ambient, arcosh": (ambient.distance(x, y).double().square() / d.square() - 1).abs(),
    }


def centroid_errors(points: PolarPoint) -> dict[str, Tensor]:
    """Geodesic errors of the centroid with equal weights that sum to 1, as attention and pooling have them."""
    truth = centroid(points)
    weights = torch.full(points.shape, 1 / SIZE, dtype=torch.float32)
    return {
        "ambient": geodesic_error(ambient_point(ambient.centroid(stored_ambient(points), weights)), truth),
        "polar": geodesic_error(centroid(stored(points), weights), truth),
    }


def centering_errors(points: PolarPoint) -> dict[str, Tensor]:
    """Geodesic errors of (-mean) (+) x, the mean given as the true one, rounded."""
    mean = keep_axis(centroid(points))
    truth = gyroadd(gyroneg(mean), points)
    x, base = stored_ambient(points), stored_ambient(mean)
    chain = ambient.gyroadd(ambient.gyroneg(base).expand_as(x), x)
    return {
        "ambient": geodesic_error(from_space(boost_by_formula(base, x).double()), truth),
        "polar": geodesic_error(gyroadd(gyroneg(stored(mean)), stored(points)), truth),
        "ambient, exp of transported log": geodesic_error(ambient_point(chain), truth),
    }


def boost_by_formula(base: Tensor, y: Tensor) -> Tensor:
    """Space part of (-base) (+) y by the paper's closed form, y + [x.y/(x_0 + 1) + y_0] x with x = -base (k = 1)."""
    x = -base[..., 1:]
    factor = (x * y[..., 1:]).sum(-1, keepdim=True) / (base[..., :1] + 1) + y[..., :1]
    return y[..., 1:] + factor * x


OPERATIONS = {
    "squared distance": squared_distance_errors,
    "centroid": centroid_errors,
    "gyro centering": centering_errors,
}


def measure_table(count: int, seed: int) -> list[dict[str, Any]]:
    """Rows of the paper's table: operation, radius, the paper's numbers and the measured spread of each method."""
    rows = []
    for name, errors in OPERATIONS.items():
        for radius in RADII:
            measured = {method: Spread.of(e).record() for method, e in errors(clusters(radius, count, seed)).items()}
            paper_ambient, paper_polar = PAPER[name][radius]
            rows.append(
                {
                    "operation": name,
                    "radius": radius,
                    "paper": {"ambient": paper_ambient, "polar": paper_polar, "resolution_limit": PAPER_LIMIT[radius]},
                    "measured": measured,
                    "resolution_limit": resolution_limit(radius),
                }
            )
    return rows
