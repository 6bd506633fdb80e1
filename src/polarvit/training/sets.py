"""Opening the data a recipe names, with the augmenter that makes batches of it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.dataset import ImageDataset
from polarvit.data.discs import discs
from polarvit.data.errors import DataError
from polarvit.data.packed import PackedDataset, prepare
from polarvit.data.sources import DigitsSource, FolderSource
from polarvit.data.splits import stratified_split
from polarvit.data.streaming import StreamingDataset
from polarvit.training.recipe import Recipe
from polarvit.training.task import make_augmenter


@dataclass(frozen=True)
class Sets:
    """Training and validation data of a run."""

    train: ImageDataset
    validation: ImageDataset | None
    augmenter: Augmenter
    padding: str | None = None
    """How images with masks were made square (`data.square.Padding`), where their folder says it."""

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes


def open_sets(recipe: Recipe, device: torch.device) -> Sets:
    """The data sets of a recipe: packed folders stay in memory, class folders are streamed, `digits` is built in."""
    size = image_size(recipe)
    validation: ImageDataset | None
    if recipe.data.holdout:
        train, validation = divided(recipe, device)
    else:
        train = open_split(recipe, recipe.data.train, device, training=True)
        held = recipe.data.validation
        validation = open_split(recipe, held, device, training=False) if held else None
    padding = None
    if (Path(recipe.data.path) / "meta.json").exists():
        packed = PackedDataset.open(Path(recipe.data.path), recipe.data.test or recipe.data.train)
        padding = packed.meta.get("padding")  # and a test split that is missing is missed now, not at the end
    if validation is not None and validation.classes != train.classes:
        raise DataError(f"{validation.name}: its classes differ from those of {train.name}")
    wanted = recipe.model.options.get("num_classes", len(train.classes))
    if wanted != len(train.classes):
        raise DataError(
            f"{train.name} has {len(train.classes)} classes, model.options.num_classes is {wanted}; remove the option"
        )
    return Sets(train, validation, make_augmenter(recipe, len(train.classes), size), padding)


def divided(recipe: Recipe, device: torch.device) -> tuple[ImageDataset, ImageDataset]:
    """The training split without the share that is held out, and that share."""
    path = Path(recipe.data.path)
    if recipe.data.path == "digits":
        whole = _digits(recipe.data.train)
    elif (path / "meta.json").exists():
        whole = PackedDataset.open(path, recipe.data.train)
    else:
        raise DataError(f"{path}: data.holdout needs a folder of `polarvit data prepare`")
    if whole.masked:
        raise DataError(f"{whole.name}: data.holdout is for images with labels; prepare masks with splits of their own")
    parts = zip(trained_and_held(recipe, whole), ("rest", "held out"), strict=True)
    rest, held = (whole.part(rows, name) for rows, name in parts)
    return (rest.to(device), held.to(device)) if recipe.data.resident else (rest, held)


def trained_and_held(recipe: Recipe, whole: PackedDataset) -> tuple[np.ndarray, np.ndarray]:
    """Places of the images that a recipe trains on, and of those that it holds out: the same for every seed."""
    if not recipe.data.holdout:
        return np.arange(len(whole)), np.arange(0)
    return stratified_split(whole.labels, recipe.data.holdout, 0)


def image_size(recipe: Recipe) -> int:
    """Side of the square images the recipe's model takes."""
    from polarvit.models.registry import entry

    size = recipe.model.options.get("img_size", entry(recipe.model.name.partition(".")[0]).config.img_size)
    if not isinstance(size, int):
        raise DataError(f"model.options.img_size: training takes square images, got {size}")
    return size


def open_split(recipe: Recipe, split: str, device: torch.device, *, training: bool) -> ImageDataset:
    """One split of the recipe's data."""
    if recipe.data.path == "digits":
        return _digits(split).to(device)
    if recipe.data.path == "discs":
        return discs(split, image_size(recipe), device)
    path = Path(recipe.data.path)
    if (path / "meta.json").exists():
        packed = PackedDataset.open(path, split)
        if packed.masked and recipe.task == "classification":
            raise DataError(f"{packed.name}: has masks instead of labels, but {recipe.model.name} classifies images")
        return packed.to(device) if recipe.data.resident else packed
    if not path.is_dir():
        raise DataError(f"{path}: no such folder; prepare it with `polarvit data prepare` or give another with --data")
    if recipe.task == "segmentation":
        raise DataError(f"{path}: images with masks are not streamed; pack them with `polarvit data prepare` first")
    return StreamingDataset(
        FolderSource(path),
        split,
        image_size(recipe),
        augmentation=recipe.augment if training else None,
        resize=recipe.data.resize,
        workers=recipe.data.workers,
    )


def _digits(split: str) -> PackedDataset:
    """The digits that ship with scikit-learn; small enough to pack anew each time."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(DigitsSource(), Path(folder) / "digits")
        packed = PackedDataset.open(Path(folder) / "digits", split)
        packed.images = packed.images.copy()
        packed.name = f"digits ({split})"
        return packed
