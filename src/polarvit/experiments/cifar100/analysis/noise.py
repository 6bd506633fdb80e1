"""What noise in the input does: accuracy, confidence, calibration and radius against its standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from polarvit.experiments.reliability import reliability
from polarvit.experiments.seen import Images, see
from polarvit.models import VisionModel

LEVELS = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Standard deviations of normal noise on pixels in [0, 1], cut to that range; 0.02 is 5 of 255 grey levels."""


def under_noise(
    model: VisionModel, images: Images, device: torch.device, *, levels: Sequence[float] = LEVELS, seed: int = 0
) -> list[dict[str, Any]]:
    """One record for each level, on the same images with the same noise, scaled."""
    found = []
    for level in levels:
        seen = see(model, images, device, noise=level, seed=seed)
        right = seen.predicted == seen.labels
        found.append(
            {
                "noise": level,
                "accuracy": right.mean(),
                "error": (right.mean() * (1 - right.mean()) / len(right)) ** 0.5,
                "confidence": seen.probabilities.max(1).mean(),
                "ece": reliability(seen.probabilities, seen.labels).ece,
                "radius": seen.radius.mean(),
            }
        )
    return found
