"""Seeded splits that keep the share of every class."""

from collections.abc import Sequence

import numpy as np

from polarvit.data.augment.draws import Draws, Stream
from polarvit.data.errors import DataError


def stratified_split(
    labels: np.ndarray, fraction: float, seed: int, named: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Two parts of a data set with the same mix of classes: sorted indices int64 of (the rest, the held-out part).

    Of every class the held-out part has `fraction` of its samples, rounded, but at least one and not all.
    `named` are the classes, for messages.
    """
    if not 0 < fraction < 1:
        raise DataError(f"a split must be above 0 and below 1, got {fraction}")
    draws = Draws(seed, np.array([0]), np.array([-1]))
    chance = draws.bits(Stream.SPLIT, len(labels))[0]
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if len(members) < 2:
            name = named[label] if named else label
            raise DataError(f"class {name} has one image only; holding out a share takes two")
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        held[members[np.argsort(chance[members])[:count]]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
