"""A trained run and a folder of images, made once by the commands themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import done, tiny_yaml
from PIL import Image


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny recipe as a file."""
    path = tmp_path_factory.mktemp("recipes") / "tiny.yaml"
    path.write_text(tiny_yaml())
    return path


@pytest.fixture(scope="session")
def run(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the digits."""
    folder = tmp_path_factory.mktemp("runs") / "tiny run"
    done("train", recipe, "--out", folder, "--device", "cpu")
    return folder


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six noisy images of each of three classes, of many sizes."""
    root, rng = tmp_path_factory.mktemp("images") / "photos", np.random.default_rng(0)
    for channel, name in enumerate(("red", "green", "blue")):
        (root / name).mkdir(parents=True)
        for index in range(6):
            pixels = rng.integers(0, 120, (20 + index, 24, 3), dtype=np.uint8)
            pixels[..., channel] += 120
            Image.fromarray(pixels).save(root / name / f"{index}.png")
    return root
