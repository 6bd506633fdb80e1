"""Data sets of the Hugging Face hub, or of a folder in its format."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from polarvit.data.errors import DataError
from polarvit.data.sources.source import require_split

_SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"}


class HubSource:
    """An image classification data set by its hub id ("uoft-cs/cifar100") or local path.

    Args:
        name: hub id, or a folder that `datasets` saved or can load.
        image: column of the images; found if there is only one.
        label: column of the labels; found if there is only one.
        config: configuration of the data set, where it has several.
    """

    def __init__(
        self, name: str, *, image: str | None = None, label: str | None = None, config: str | None = None
    ) -> None:
        self.name = name
        try:
            import datasets
        except ImportError as error:
            raise DataError(f"{name}: needs the datasets package: pip install 'polarvit[datasets]'") from error
        try:
            if (Path(name) / "dataset_dict.json").exists():
                loaded = datasets.load_from_disk(name)
            else:
                loaded = datasets.load_dataset(name, config)
        except Exception as error:  # the package raises many kinds; all mean the same here
            raise DataError(f"{name}: cannot be loaded as a data set ({error})") from error
        self._splits = {_SPLITS[split]: part for split, part in loaded.items() if split in _SPLITS}
        if "train" not in self._splits:
            raise DataError(f"{name}: has no train split; it has {', '.join(loaded)}")
        features = self._splits["train"].features
        self._image = self._column(features, "Image", image)
        self._label = self._column(features, "ClassLabel", label)
        self.classes = tuple(features[self._label].names)

    @property
    def description(self) -> str:
        return f"Hugging Face data set {self.name}"

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in ("train", "validation", "test") if split in self._splits)

    def labels(self, split: str) -> np.ndarray:
        require_split(self, split)
        labels = np.asarray(self._splits[split][self._label], dtype=np.int64)
        if labels.min() < 0:
            raise DataError(f"{self.name}: sample {int(labels.argmin())} of {split} has no label")
        return labels

    def image(self, split: str, index: int) -> Image.Image:
        try:
            return self._splits[split][index][self._image].convert("RGB")
        except Exception as error:  # decoding happens here, lazily
            raise DataError(f"{self.origin(split, index)}: cannot be read as an image ({error})") from error

    def origin(self, split: str, index: int) -> str:
        return f"{self.name}: image {index} of {split}"

    def _column(self, features: dict[str, Any], kind: str, wanted: str | None) -> str:
        found = [name for name, feature in features.items() if type(feature).__name__ == kind]
        if wanted is None and len(found) == 1:
            return found[0]
        if wanted in found and wanted is not None:
            return wanted
        argument = "image" if kind == "Image" else "label"
        raise DataError(
            f"{self.name}: has {kind} columns {found or 'none'}, not {wanted!r}; choose one with {argument}="
        )
