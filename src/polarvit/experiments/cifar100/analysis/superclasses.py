"""Coarse structure that no label told: do the five classes of a superclass lie together?

Models are trained on the hundred fine labels only. Each class is one point, the centroid of the pooled points of its
test images: hyperbolic for a polar model, the mean for a Euclidean one. Distances between these points are compared
with the twenty superclasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from polarvit.data.cifar100 import SUPERCLASSES, superclass_of
from polarvit.experiments.report.collect import Seen
from polarvit.experiments.report.disk import place
from polarvit.geometry import centroid, from_tangent0, gyroadd, gyroneg, pairwise_distance, to_tangent0

SIBLINGS = 4
"""Other classes of the same superclass."""


@dataclass(frozen=True)
class Classes:
    """One point for each class that occurs."""

    points: np.ndarray
    """[c, dim]; of a polar model in the tangent space at the origin."""
    distance: np.ndarray
    """[c, c]"""
    home: np.ndarray
    """Superclass of each, int [c]."""
    names: tuple[str, ...]
    k: float | None


def class_points(seen: Seen) -> Classes:
    """The centroid of every class, and how far they are from each other."""
    present = np.unique(seen.labels)
    names = tuple(seen.classes[index] for index in present)
    home = np.array(superclass_of(names))
    own = [torch.from_numpy(seen.features[seen.labels == index]) for index in present]
    if seen.k is None:
        points = torch.stack([features.mean(0) for features in own])
        distance = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    else:
        points = torch.stack([to_tangent0(centroid(from_tangent0(features), k=seen.k)) for features in own])
        centres = from_tangent0(points)
        distance = pairwise_distance(centres, centres, k=seen.k)
    return Classes(points.numpy(), distance.numpy(), home, names, seen.k)


def structure(seen: Seen, classes: Classes) -> dict[str, Any]:
    """How far the superclasses show.

    `siblings_near`: share of the four nearest classes that are siblings (by chance 4 in 99). `within_to_between`: mean
    distance of siblings over that of others. `coarse_accuracy`: share of images put into the right superclass;
    `errors_within`: share of the errors that stay inside it (by chance 4 in 99).
    """
    together = classes.home[:, None] == classes.home[None]
    others = ~np.eye(len(classes.home), dtype=bool)
    siblings, strangers = together & others, ~together
    far = np.where(others, classes.distance, np.inf)
    nearest = np.argsort(far, axis=1)[:, : min(SIBLINGS, len(far) - 1)]
    coarse = np.array(superclass_of(seen.classes))
    kept = coarse[seen.predicted] == coarse[seen.labels]
    wrong = seen.predicted != seen.labels
    return {
        "siblings_near": np.take_along_axis(siblings, nearest, 1).mean(),
        "within_to_between": (
            classes.distance[siblings].mean() / classes.distance[strangers].mean() if siblings.any() else None
        ),
        "coarse_accuracy": kept.mean(),
        "errors_within": kept[wrong].mean() if wrong.any() else None,
        "chance": SIBLINGS / (len(seen.classes) - 1),
    }


@dataclass(frozen=True)
class Flat:
    """The class points in a plane: x, y [c]; a polar model's inside the unit disk of Poincare."""

    x: np.ndarray
    y: np.ndarray
    error: float
    """Mean relative error of the distances between points."""
    rings: list[tuple[float, float]]
    """Circles to draw: distance from the origin, radius in the picture."""


def flattened(classes: Classes) -> Flat:
    """Distances kept as well as two dimensions allow: hyperbolic scaling on the disk, or classical scaling.

    The disk is centred at the centroid of all classes: an isometry moves it there, so no distance changes.
    """
    if classes.k is None:
        return _classical(classes.distance)
    count = len(classes.home)
    points = from_tangent0(torch.from_numpy(classes.points))
    mean = centroid(points, k=classes.k).map(lambda x: x.unsqueeze(0))
    centred = to_tangent0(gyroadd(gyroneg(mean), points, k=classes.k)).numpy()
    empty = np.zeros((count, 1))
    seen = Seen(tuple(SUPERCLASSES), classes.home, empty, centred, empty, classes.k, count)
    placed = place(seen)
    rho = np.tanh(placed.radius / (2 * placed.k**0.5))
    step = next(s * 10.0**e for e in range(-6, 6) for s in (1, 2, 5) if placed.radius.max() / (s * 10.0**e) <= 6)
    rings = [step * i for i in range(1, int(placed.radius.max() / step) + 1)]
    return Flat(
        rho * np.cos(placed.angle),
        rho * np.sin(placed.angle),
        placed.distance_error,
        [(ring, float(np.tanh(ring / (2 * placed.k**0.5)))) for ring in rings],
    )


def _classical(distance: np.ndarray) -> Flat:
    """Classical multidimensional scaling: the two largest principal axes of the centred points."""
    count = len(distance)
    centring = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centring @ distance**2 @ centring)
    flat = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    found = np.linalg.norm(flat[:, None] - flat[None], axis=-1)
    error = np.abs(found - distance).sum() / max(distance.sum(), 1e-30)
    return Flat(flat[:, 1], flat[:, 0], float(error), [])
