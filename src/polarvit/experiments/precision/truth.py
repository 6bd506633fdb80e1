"""Is the truth true? float64 polar results against 50-digit textbook formulas in ambient coordinates."""

from __future__ import annotations

from typing import Any

import mpmath as mp

from polarvit.experiments.precision.samples import clusters, resolution_limit
from polarvit.geometry import PolarPoint, centroid, distance, gyroadd, gyroneg

DIGITS = 50


def worst_truth_error(radius: float, points: int, seed: int) -> float:
    """Largest error of the float64 distance, centroid and centring at `radius`, in units of the float32 limit."""
    cluster = clusters(radius, 1, seed).map(lambda x: x[0, :points])
    mean = centroid(cluster)
    centred = gyroadd(gyroneg(mean).map(lambda x: x.unsqueeze(0)), cluster)
    first = PolarPoint(cluster.radius[0], cluster.direction[0])
    gaps = distance(first, cluster)
    with mp.workdps(DIGITS):
        exact = [_ambient(r, u) for r, u in zip(cluster.radius, cluster.direction, strict=True)]
        middle = _onto([mp.fsum(column) for column in zip(*exact, strict=True)])
        errors = [_distance(middle, _ambient(mean.radius, mean.direction))]
        base = _ambient(mean.radius, mean.direction)
        for index, point in enumerate(exact):
            errors.append(abs(_distance(exact[0], point) - mp.mpf(gaps[index].item())))
            moved = _boost(base, point)
            errors.append(_distance(moved, _ambient(centred.radius[index], centred.direction[index])))
        return float(max(errors)) / resolution_limit(radius)


def _ambient(radius: Any, direction: Any) -> list[Any]:
    unit = [mp.mpf(x) for x in direction.tolist()]
    norm, r = mp.sqrt(mp.fdot(unit, unit)), mp.mpf(radius.item())
    return [mp.cosh(r)] + [mp.sinh(r) * x / norm for x in unit]


def _inner(x: list[Any], y: list[Any]) -> Any:
    return mp.fdot(x[1:], y[1:]) - x[0] * y[0]


def _onto(x: list[Any]) -> list[Any]:
    length = mp.sqrt(-_inner(x, x))
    return [value / length for value in x]


def _distance(x: list[Any], y: list[Any]) -> Any:
    gap = [a - b for a, b in zip(x, y, strict=True)]
    return 2 * mp.asinh(mp.sqrt(max(_inner(gap, gap), mp.mpf(0))) / 2)


def _boost(base: list[Any], y: list[Any]) -> list[Any]:
    """(-base) (+) y: the boost that carries `base` to the origin, applied to y."""
    space = [-value for value in base[1:]]
    factor = mp.fdot(space, y[1:]) / (base[0] + 1) + y[0]
    moved = [b + factor * a for a, b in zip(space, y[1:], strict=True)]
    return [mp.sqrt(1 + mp.fdot(moved, moved)), *moved]
