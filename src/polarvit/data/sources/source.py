"""What a source of images must offer, and how an image file is read."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from polarvit.data.errors import DataError


class Source(Protocol):
    """Labelled images as somebody published them, in one or more splits."""

    @property
    def description(self) -> str:
        """One line that says where the images come from."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; a label is a place in this list."""
        ...

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits: "train", and "validation" or "test" where they exist."""
        ...

    def labels(self, split: str) -> np.ndarray:
        """Labels of a split: int64 [N]."""
        ...

    def image(self, split: str, index: int) -> Image.Image:
        """One image, RGB, in its own size."""
        ...

    def origin(self, split: str, index: int) -> str:
        """Where that image is, for messages."""
        ...


def require_split(source: Source, split: str) -> None:
    """Raise unless the source has a split of that name."""
    if split not in source.splits:
        hint = "; put images to hold out into a folder val beside train" if split == "validation" else ""
        raise DataError(f"{source.description} has no split '{split}'; it has {', '.join(source.splits)}{hint}")


def rgb(image: Image.Image) -> Image.Image:
    """An image of any mode in RGB: grey, palette and transparent ones are converted, 16 bits scaled to 8."""
    if image.mode.startswith("I"):  # Pillow's own conversion cuts off at 255, which leaves white
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("its pixels have more than 16 bits")
        image = Image.fromarray((values / 257).round().astype(np.uint8))
    if image.mode == "F":
        raise ValueError("its pixels are floating point numbers without a known range")
    return image.convert("RGB")


FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM", "GIF")
"""What is decoded, whatever a file is called: Pillow knows formats that start other programs."""
PIXELS, SIDE, RATIO = 178_956_970, 20_000, 1_000
"""The most pixels of an image (Pillow's limit), its longest side, and how often that may hold the shortest: images are
made square."""


def open_image(path: Path, convert: Callable[[Image.Image], Image.Image] = rgb) -> Image.Image:
    """Decode an image file completely and convert it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limits here are narrower
            with Image.open(path, formats=FORMATS) as image:
                long, short = max(image.size), max(min(image.size), 1)
                if long * short > PIXELS or long > SIDE or long > RATIO * short:
                    raise ValueError(
                        f"{image.width} x {image.height} pixels; at most {PIXELS:,} are read, {SIDE:,} a side and "
                        f"{RATIO:,} to 1: make it smaller first"
                    )
                return convert(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: cannot be read as an image ({error})") from error
