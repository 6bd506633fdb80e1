"""CIFAR-100 in miniature: its classes, a few images of noise each, and narrow models for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from polarvit.data import prepare
from polarvit.data.cifar100 import CLASSES
from polarvit.models import create_model

SIZE = 16
NARROW = {"img_size": SIZE, "patch_size": 8, "depth": 1, "dim": 16, "mlp_dim": 16, "heads": 2}


class ToySource:
    """`count` images of every class, its colour with noise."""

    splits = ("train", "test")
    description = "toy"
    classes = CLASSES

    def __init__(self, count: int = 2) -> None:
        self.count = count

    def labels(self, split: str) -> np.ndarray:
        return np.arange(len(CLASSES)).repeat(self.count)

    def image(self, split: str, index: int) -> Image.Image:
        draw = np.random.default_rng(index)
        colour = np.random.default_rng(10_000 + index // self.count).integers(0, 200, 3)
        pixels = colour + draw.integers(0, 56, (SIZE, SIZE, 3))
        return Image.fromarray(pixels.astype(np.uint8))

    def origin(self, split: str, index: int) -> str:
        return f"image {index}"


def toy_data(folder: Path, count: int = 2) -> Path:
    """The miniature, packed."""
    return prepare(ToySource(count), folder)


def toy_weights(folder: Path, name: str) -> Path:
    """Saved weights of a narrow, untrained model."""
    torch.manual_seed(0)
    model = create_model(name, num_classes=len(CLASSES), **NARROW)
    model.default_cfg["crop_pct"] = 1.0
    model.save_pretrained(folder)
    return folder
