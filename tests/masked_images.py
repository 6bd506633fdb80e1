"""Tiny images of bright discs on dark ground, with masks that say where the disc is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def disc(height: int, width: int, centre: tuple[float, float], radius: float) -> np.ndarray:
    """A filled disc: bool [height, width]."""
    y, x = np.mgrid[:height, :width]
    return (y - centre[0]) ** 2 + (x - centre[1]) ** 2 <= radius**2


def draw(index: int, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """An image uint8 [height, width, 3] and the mask of its disc."""
    rng = np.random.default_rng(index)
    mask = disc(height, width, (rng.uniform(0.3, 0.7) * height, rng.uniform(0.3, 0.7) * width), 0.25 * height)
    noise = rng.integers(20, 80, (height, width, 3))
    return (noise + 140 * mask[..., None]).astype(np.uint8), mask


def save_mask(path: Path, mask: np.ndarray, white: int = 255) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(mask.astype(np.uint8) * white).save(path)


def save_image(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def folder(root: Path, count: int = 20, height: int = 24, width: int = 32) -> Path:
    """`root/images` and `root/masks` of discs."""
    for index in range(count):
        pixels, mask = draw(index, height, width)
        save_image(root / "images" / f"{index:02d}.png", pixels)
        save_mask(root / "masks" / f"{index:02d}.png", mask)
    return root
