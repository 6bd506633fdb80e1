"""Calibration: does a model that says 80 % hit four times in five?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BINS = 15
"""Bins of equal width, as most papers count them."""


@dataclass(frozen=True)
class Reliability:
    """Confidence (the largest probability) against accuracy, over n images; shares, not percent."""

    count: np.ndarray
    """Images in each bin of confidence [bins]."""
    confidence: np.ndarray
    """Mean confidence in each bin; the middle of an empty one."""
    accuracy: np.ndarray
    """Share that is right in each bin; 0 in an empty one."""
    ece: float
    """Expected calibration error: sum over bins of count/n |accuracy - confidence|."""
    worst: float
    """The largest gap of a bin with at least one image in a hundred."""
    nll: float
    """Mean negative log-likelihood of the true class."""
    brier: float
    """Mean squared distance of the probabilities from the true class."""
    gap: float
    """Mean confidence less accuracy: positive is overconfident."""

    def record(self) -> dict[str, Any]:
        """For a JSON."""
        bins = {
            "count": self.count.tolist(),
            "confidence": self.confidence.tolist(),
            "accuracy": self.accuracy.tolist(),
        }
        numbers = {"ece": self.ece, "worst_bin": self.worst, "nll": self.nll, "brier": self.brier, "gap": self.gap}
        return {**numbers, "bins": bins}


def reliability(probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS) -> Reliability:
    """Calibration of probabilities [n, classes] against labels int [n]."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    where = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(where, minlength=bins)
    filled = np.maximum(count, 1)
    middle = (np.arange(bins) + 0.5) / bins
    mean = np.where(count, np.bincount(where, confidence, bins) / filled, middle)
    accuracy = np.bincount(where, right, bins) / filled
    gaps = np.abs(accuracy - mean) * (count > 0)
    own = probabilities[np.arange(len(labels)), labels]
    return Reliability(
        count,
        mean,
        accuracy,
        ece=float((count * gaps).sum() / len(labels)),
        worst=float(gaps[count >= 0.01 * len(labels)].max()),
        nll=float(-np.log(np.maximum(own, 1e-30)).mean()),
        brier=float(((probabilities**2).sum(1) - 2 * own + 1).mean()),
        gap=float(confidence.mean() - right.mean()),
    )
