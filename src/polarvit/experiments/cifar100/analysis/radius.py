"""Is a far-out embedding more certain? Accuracy and confidence in groups of equal size, from near to far."""

from __future__ import annotations

from typing import Any

import numpy as np

from polarvit.experiments.report.charts import rank_correlation
from polarvit.experiments.report.collect import Seen

GROUPS = 10


def by_radius(seen: Seen, groups: int = GROUPS) -> dict[str, Any]:
    """Groups of images by the distance of their pooled point from the origin (of a Euclidean model: its norm).

    `auroc` is the probability that an image that is classified right lies farther out than one that is not; the same
    for the largest probability is what a confidence would have to beat.
    """
    right, sure = seen.predicted == seen.labels, seen.probabilities.max(1)
    parts = [part for part in np.array_split(np.argsort(seen.radius, kind="stable"), groups) if len(part)]
    return {
        "groups": [
            {
                "count": len(part),
                "radius": seen.radius[part].mean(),
                "low": seen.radius[part].min(),
                "high": seen.radius[part].max(),
                "accuracy": right[part].mean(),
                "error": (right[part].mean() * (1 - right[part].mean()) / len(part)) ** 0.5,
                "confidence": sure[part].mean(),
            }
            for part in parts
        ],
        "spearman_with_confidence": rank_correlation(seen.radius, sure),
        "auroc": auroc(seen.radius, right),
        "auroc_of_confidence": auroc(sure, right),
    }


def auroc(score: np.ndarray, right: np.ndarray) -> float | None:
    """Probability that the score of a right one is above that of a wrong one, ties half; None if all are alike."""
    hits, misses = int(right.sum()), int((~right).sum())
    if not hits or not misses:
        return None
    _, where, counts = np.unique(score, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = ((ends - counts + 1 + ends) / 2)[where]
    return float((ranks[right].sum() - hits * (hits + 1) / 2) / (hits * misses))
