"""Discs on a textured ground: images with masks that need no download, for a first try and for tests."""

import numpy as np
import torch

from polarvit.data.errors import DataError
from polarvit.data.packed_masks import CLASSES
from polarvit.data.resident import ResidentDataset

COUNTS = {"train": 160, "validation": 32, "test": 32}
_SEEDS = {"train": 0, "validation": 1, "test": 2}


def discs(split: str, size: int, device: torch.device | str) -> ResidentDataset:
    """One split: each image has one ellipse, brighter or darker than its noisy, shaded ground."""
    if split not in COUNTS:
        raise DataError(f"discs has no split '{split}'; it has {', '.join(COUNTS)}")
    rng = np.random.default_rng([_SEEDS[split], size])
    drawn = [_draw(rng, size) for _ in range(COUNTS[split])]
    images, masks = (np.stack(arrays) for arrays in zip(*drawn, strict=True))
    return ResidentDataset(f"discs ({split})", images, np.zeros(len(images), np.int64), CLASSES, device, masks)


def _draw(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """An image uint8 [size, size, 3] and its mask uint8 [size, size]."""
    y, x = np.mgrid[:size, :size] / size
    top, left = rng.uniform(0.3, 0.7, 2)
    tall, wide = rng.uniform(0.12, 0.28, 2)
    mask = ((y - top) / tall) ** 2 + ((x - left) / wide) ** 2 <= 1
    shade = 90 + 40 * (rng.uniform(-1, 1) * (x - 0.5) + rng.uniform(-1, 1) * (y - 0.5))
    object_ = rng.choice([-1, 1]) * rng.uniform(35, 80) * mask
    colour = rng.uniform(0.8, 1.2, 3)
    pixels = (shade + object_)[..., None] * colour + rng.normal(0, 12, (size, size, 3))
    return pixels.clip(0, 255).astype(np.uint8), mask.astype(np.uint8)
