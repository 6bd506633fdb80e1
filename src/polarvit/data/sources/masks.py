"""Images with masks of what is in them: files in folders, paired by name.

Three layouts are understood, at any depth below the root:

    images/a.jpg    masks/a.png            two folders side by side, same names
    images/a.png    masks/a_mask.png       with a suffix: _mask, _segmentation, _seg, _gt
    a.png  a_mask.png  a_mask_1.png        one folder; several masks of one image are joined

A mask is black and white, as 0/255 or 0/1. An image without a mask, or a mask without an image, is an error.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from polarvit.data.errors import DataError
from polarvit.data.sources.folder import is_image, split_folders
from polarvit.data.sources.source import open_image

IMAGE_FOLDERS = frozenset({"images", "image", "imgs", "img"})
MASK_FOLDERS = frozenset({"masks", "mask", "labels", "label", "gt", "groundtruth", "ground_truth"})

_SUFFIX = re.compile(r"_(?:mask|segmentation|seg|gt)(?:_\d+)?$", re.IGNORECASE)
_LOSSY = frozenset({".jpg", ".jpeg"})
_SHOWN = 5
MOST_GREY = 0.1
"""Largest share of a mask's pixels that may be grey."""


@dataclass(frozen=True)
class Pair:
    """An image and its masks."""

    name: str
    """Unique in its split; the path below the root without the ending."""
    image: Path
    masks: tuple[Path, ...]


class MaskSource(Protocol):
    """Images with masks as somebody published them, in one or more splits."""

    @property
    def description(self) -> str:
        """One line that says where the images come from."""
        ...

    @property
    def pairs(self) -> Mapping[str, Sequence[Pair]]:
        """Pairs of every split."""
        ...

    @property
    def held_out(self) -> Mapping[str, float]:
        """Shares of the training split that become the validation and the test split, unless told otherwise."""
        ...


class MaskFolderSource:
    """A folder of images and masks, or one with such in `train`, `test` and `val`."""

    held_out: Mapping[str, float] = {"validation": 0.0, "test": 0.0}

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise DataError(f"{self.root}: no such folder; give the folder that holds images/ and masks/")
        self.description = f"folder {self.root.name}"
        self.pairs = {split: find_pairs(folder, self.root) for split, folder in split_folders(self.root).items()}


def holds_masks(root: Path) -> bool:
    """Whether a folder looks like images with masks rather than like class folders."""
    places = [root, *(place for place in root.glob("*") if place.is_dir())]
    return any(_side_by_side(place) or _in_one(place) for place in places)


def find_pairs(folder: Path, root: Path) -> list[Pair]:
    """Pairs of a folder in one of the three layouts, at any depth; names are relative to `root`."""
    found = _search(folder, root)
    if not found:
        raise DataError(
            f"{folder}: no images with masks; expected {folder}/images and {folder}/masks, or files like a.png with "
            "a_mask.png"
        )
    return found


def _search(folder: Path, root: Path) -> list[Pair]:
    if sides := _side_by_side(folder):
        return pair_files(*sides, root)
    if _in_one(folder):
        return pair_files(folder, folder, root)
    inner = sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    return [pair for place in inner for pair in _search(place, root)]


def _side_by_side(folder: Path) -> tuple[Path, Path] | None:
    inner = [place for place in sorted(folder.glob("*")) if place.is_dir()]
    images = [place for place in inner if place.name.lower() in IMAGE_FOLDERS]
    masks = [place for place in inner if place.name.lower() in MASK_FOLDERS]
    for several in (images, masks):
        if len(several) > 1:
            raise DataError(f"{several[0]} and {several[1]}: which of the two is meant? Keep one")
    return (images[0], masks[0]) if images and masks else None


def _in_one(folder: Path) -> bool:
    stems = {path.stem for path in image_files(folder)}
    return any(_SUFFIX.search(stem) and _SUFFIX.sub("", stem) in stems for stem in stems)


def image_files(folder: Path) -> list[Path]:
    """Image files directly in a folder, sorted."""
    return sorted(filter(is_image, folder.glob("*")))


def pair_files(images: Path, masks: Path, root: Path) -> list[Pair]:
    """Pairs of the image files in one folder and the mask files in another, or all in one folder."""
    by_stem: dict[str, Path] = {}
    for path in image_files(images):
        if images == masks and _SUFFIX.search(path.stem):
            continue
        if path.stem in by_stem:
            raise DataError(f"{by_stem[path.stem]} and {path}: two images of one name; delete one")
        by_stem[path.stem] = path
    found: dict[str, list[Path]] = {}
    orphans = []
    for path in image_files(masks):
        if images == masks and not _SUFFIX.search(path.stem):
            continue
        stem = path.stem if path.stem in by_stem else _SUFFIX.sub("", path.stem)
        if stem in by_stem:
            found.setdefault(stem, []).append(path)
        else:
            orphans.append(path.name)
    if orphans:
        raise DataError(f"{masks}: {_named(orphans, 'mask')} without an image in {images}; add or delete")
    if bare := [path.name for stem, path in by_stem.items() if stem not in found]:
        raise DataError(f"{images}: {_named(bare, 'image')} without a mask in {masks}; add or delete")
    home = images if images == masks else images.parent
    return [
        Pair((home.relative_to(root) / stem).as_posix(), by_stem[stem], tuple(found[stem])) for stem in sorted(by_stem)
    ]


def _named(names: list[str], kind: str) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {kind}{'s' if len(names) > 1 else ''} ({', '.join(names[:_SHOWN])}{more})"


def read_pair(pair: Pair) -> tuple[Image.Image, np.ndarray]:
    """The image, RGB, and its joined mask, bool [H, W], both in their own size."""
    image = open_image(pair.image)
    joined = np.zeros((image.height, image.width), dtype=bool)
    for path in pair.masks:
        mask = read_mask(path)
        if mask.shape != joined.shape:
            raise DataError(
                f"{path}: the mask is {mask.shape[0]} x {mask.shape[1]} but its image {pair.image} is "
                f"{image.height} x {image.width}"
            )
        joined |= mask
    return image, joined


def read_mask(path: Path) -> np.ndarray:
    """A mask file as bool [H, W]: above 127 of 0/255, or 1 of 0/1. Soft edges may be grey, not much more."""
    values = np.asarray(open_image(path, lambda image: image.convert("RGB").convert("L")))  # 1 of 16 bits stays 1
    most = int(values.max())
    if most <= 1 and path.suffix.lower() not in _LOSSY:
        return values == 1
    if 1 < most <= 127 and path.suffix.lower() not in _LOSSY:
        raise DataError(f"{path}: its largest value is {most}; a mask has the values 0 and 255, or 0 and 1")
    if (grey := float(((values > 31) & (values < 224)).mean())) > MOST_GREY:
        raise DataError(f"{path}: {grey:.0%} of its pixels are neither black nor white; is it an image, not a mask?")
    return values > 127
