"""Data sets of the Hugging Face hub, or of a folder in its format."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from polarvit.data.errors import DataError
from polarvit.data.sources.source import require_split, rgb

_SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"}


class HubSource:
    """An image classification data set by its hub id ("uoft-cs/cifar100") or local path.

    A test or validation split without any label, as contests publish it, is left out with a warning.

    Args:
        name: hub id, or a folder that `datasets` saved (one data set is the training split) or can load.
        image: column of the images; found if there is only one.
        label: column of the labels; found if there is only one of named classes. A column of texts or numbers must be
            given: its values in the training split, sorted, are the classes.
        config: configuration of the data set, where it has several.
    """

    def __init__(
        self, name: str, *, image: str | None = None, label: str | None = None, config: str | None = None
    ) -> None:
        self.name = name
        loaded = _load(name, config)
        self._splits = {_SPLITS[split]: part for split, part in loaded.items() if split in _SPLITS}
        if "train" not in self._splits:
            raise DataError(f"{name}: has no train split; it has {', '.join(loaded)}")
        features = self._splits["train"].features
        self._image = self._column(features, "Image", ("Image",), image, "image")
        kinds = ("ClassLabel", "Value") if label is not None else ("ClassLabel",)
        self._label = self._column(features, "ClassLabel", kinds, label, "label")
        named = getattr(features[self._label], "names", None)
        values = {split: list(part[self._label][:]) for split, part in self._splits.items()}
        places = range(len(named)) if named is not None else sorted({v for v in values["train"] if v is not None})
        self.classes = tuple(named if named is not None else map(str, places))
        place = {value: index for index, value in enumerate(places)}
        self._labels = {
            split: np.array([place.get(v, -1) for v in column], np.int64) for split, column in values.items()
        }
        for split, labels in list(self._labels.items()):
            if split != "train" and (labels < 0).all():
                warnings.warn(f"{name}: the {split} split has no labels and is left out", stacklevel=2)
                del self._labels[split], self._splits[split]

    @property
    def description(self) -> str:
        return f"Hugging Face data set {self.name}"

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in ("train", "validation", "test") if split in self._splits)

    def labels(self, split: str) -> np.ndarray:
        require_split(self, split)
        labels = self._labels[split]
        if labels.min(initial=0) < 0:
            raise DataError(
                f"{self.name}: image {int(labels.argmin())} of {split} has no label, or one unknown in train"
            )
        return labels

    def image(self, split: str, index: int) -> Image.Image:
        try:
            return rgb(self._splits[split][index][self._image])
        except Exception as error:  # decoding happens here, lazily
            raise DataError(f"{self.origin(split, index)}: cannot be read as an image ({error})") from error

    def origin(self, split: str, index: int) -> str:
        return f"{self.name}: image {index} of {split}"

    def _column(
        self, features: dict[str, Any], kind: str, allowed: tuple[str, ...], wanted: str | None, argument: str
    ) -> str:
        """The column to use: the one wanted, if of an allowed kind, or the only one of `kind`."""
        kinds = {name: type(feature).__name__ for name, feature in features.items()}
        found = [name for name in kinds if kinds[name] == kind]
        if wanted is None and len(found) == 1:
            return found[0]
        if wanted is not None and kinds.get(wanted) in allowed:
            return wanted
        listed = ", ".join(f"{name} ({type_})" for name, type_ in kinds.items())
        problem = f"'{wanted}' is no column of {argument}s" if wanted else f"has {len(found) or 'no'} {kind} columns"
        raise DataError(f"{self.name}: {problem} among {listed}; choose one with --{argument}-column ({argument}=)")


def _load(name: str, config: str | None) -> dict[str, Any]:
    """Splits by name."""
    try:
        import datasets
    except ImportError as error:
        raise DataError(f"{name}: needs the datasets package: pip install 'polarvit[datasets]'") from error
    try:
        if (Path(name) / "state.json").exists():  # one data set, saved alone
            return {"train": datasets.load_from_disk(name)}
        if (Path(name) / "dataset_dict.json").exists():
            return datasets.load_from_disk(name)
        return datasets.load_dataset(name, config)
    except Exception as error:  # the package raises many kinds; all mean the same here
        raise DataError(f"{name}: cannot be loaded as a data set ({error})") from error
