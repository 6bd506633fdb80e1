"""Near twins: images of one split that a model has nearly seen in another.

Frames of one video, scans of one patient, a photograph that was collected twice: where one of them is learned and the
other tested, the score says more about memory than about new images. Two images are compared by the correlation of
their thumbnails, over pixels and colours, one of them also mirrored, because training mirrors images. An image of one
colour resembles none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 24
"""Of a thumbnail: detail and noise are gone, what the picture is of is not."""
AT_ONCE = 4096
BYTES_AT_ONCE = 2**26
ROUNDING = 1e-6
"""By so much the correlation of an image with itself may differ from 1, and that of an image of one colour from 0."""
NEAR = 0.98
"""Correlation from which on two images count as near twins."""


class Twins(NamedTuple):
    """For every image of a split the one of another that resembles it most."""

    correlation: np.ndarray
    """float32 [N], at most 1."""
    place: np.ndarray
    """Of that image in the other split, int64 [N]."""

    def near(self, above: float = NEAR) -> np.ndarray:
        """Which images have a near twin: bool [N]."""
        return self.correlation >= max(above - ROUNDING, ROUNDING)


def thumbnails(images: np.ndarray, side: int = SIDE) -> Tensor:
    """uint8 [N, H, W, 3] -> float32 [N, 3 side side] of mean 0 and length 1 (0 for an image of one colour)."""
    parts = [torch.zeros(0, 3 * side**2)]
    step = max(1, BYTES_AT_ONCE // max(1, int(np.prod(images.shape[1:]))))
    for start in range(0, len(images), step):
        pixels = torch.from_numpy(np.array(images[start : start + step])).permute(0, 3, 1, 2).float()
        small = F.interpolate(pixels, (side, side), mode="bilinear", antialias=True).flatten(1)
        small = small - small.mean(1, keepdim=True)
        parts.append(torch.where(small.norm(dim=1, keepdim=True) > side, F.normalize(small, dim=1), 0.0))
    return torch.cat(parts)


def find_twins(images: np.ndarray, others: np.ndarray) -> Twins:
    """The nearest of `others` to each of `images`, both uint8 [N, H, W, 3] of any size."""
    ours, known = thumbnails(images), thumbnails(others)
    mirrored = ours.unflatten(1, (3, SIDE, SIDE)).flip(-1).flatten(1)
    best, place = torch.full((len(ours),), -2.0), torch.zeros(len(ours), dtype=torch.int64)
    for start in range(0, len(known), AT_ONCE):
        part = known[start : start + AT_ONCE].mT
        value, where = torch.maximum(ours @ part, mirrored @ part).max(1)
        place = torch.where(value > best, where + start, place)
        best = torch.maximum(value, best)
    return Twins(best.clamp_max(1.0).numpy(), place.numpy())
