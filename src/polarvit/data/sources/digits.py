"""The handwritten digits that ship with scikit-learn: a data set that needs no download."""

import numpy as np
from PIL import Image

from polarvit.data.errors import DataError
from polarvit.data.sources.source import require_split
from polarvit.data.splits import stratified_split

_SPLIT_SEED = 0
_TEST_SHARE = 0.2


class DigitsSource:
    """1,797 grey images of 8 x 8, doubled to 16 x 16 RGB; a fixed fifth of each class is the test split."""

    description = "scikit-learn digits"
    splits = ("train", "test")

    def __init__(self) -> None:
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise DataError("the digits need scikit-learn: pip install 'polarvit[demo]'") from error
        bunch = load_digits()
        self.classes = tuple(str(name) for name in bunch.target_names)
        grey = np.round(bunch.images * (255 / 16)).astype(np.uint8).repeat(2, axis=1).repeat(2, axis=2)
        labels = bunch.target.astype(np.int64)
        parts = dict(zip(self.splits, stratified_split(labels, _TEST_SHARE, _SPLIT_SEED), strict=True))
        self._images = {split: grey[part] for split, part in parts.items()}
        self._labels = {split: labels[part] for split, part in parts.items()}

    def labels(self, split: str) -> np.ndarray:
        require_split(self, split)
        return self._labels[split]

    def image(self, split: str, index: int) -> Image.Image:
        return Image.fromarray(self._images[split][index]).convert("RGB")

    def origin(self, split: str, index: int) -> str:
        return f"scikit-learn digits: image {index} of {split}"
