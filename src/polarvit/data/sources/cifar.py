"""CIFAR-10 and CIFAR-100 in their original form: pickles of arrays, read without trusting them.

A pickle can name any function of any module and have it called. The reader here knows three names,
those that rebuild a plain numpy array, and refuses every other.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from polarvit.data.errors import DataError
from polarvit.data.sources.source import require_split


def _empty_array(kind: type, shape: tuple[int, ...], code: bytes) -> np.ndarray:
    """What numpy's pickles call first: an array that the pickle's state fills afterwards."""
    if kind is not np.ndarray:
        raise pickle.UnpicklingError(f"{kind} is not a plain array")
    return np.empty(0, np.int8)


def _latin1(text: str, encoding: str) -> bytes:
    """What Python 3 calls for bytes in an old protocol."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding} is not expected")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file needs")
        return _ALLOWED[module, name]


def read_arrays(path: Path) -> dict[str, Any]:
    """A pickled dictionary of arrays, numbers and texts; keys as str."""
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="bytes").load()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; give the folder of the unpacked python version of CIFAR") from error
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(f"{path}: not a CIFAR file ({error}); download it again") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: not a CIFAR file (it holds a {type(content).__name__}); download it again")
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}


class CifarSource:
    """The unpacked folder `cifar-10-batches-py` or `cifar-100-python` (fine labels)."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise DataError(f"{self.root}: no such folder; unpack cifar-10-python.tar.gz or cifar-100-python.tar.gz")
        if (self.root / "batches.meta").exists():
            self.description = "CIFAR-10"
            files = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
            names, meta = ("labels", "label_names"), "batches.meta"
        else:
            self.description = "CIFAR-100"
            files = {"train": ["train"], "test": ["test"]}
            names, meta = ("fine_labels", "fine_label_names"), "meta"
        self.classes = tuple(_text(name) for name in _entry(read_arrays(self.root / meta), names[1], self.root / meta))
        self.splits = ("train", "test")
        self._images, self._labels = {}, {}
        for split, parts in files.items():
            read = [self._read(self.root / part, names[0]) for part in parts]
            self._images[split] = np.concatenate([images for images, _ in read])
            self._labels[split] = np.concatenate([labels for _, labels in read])

    def labels(self, split: str) -> np.ndarray:
        require_split(self, split)
        return self._labels[split]

    def image(self, split: str, index: int) -> Image.Image:
        return Image.fromarray(self._images[split][index])

    def origin(self, split: str, index: int) -> str:
        return f"{self.root}: image {index} of {split}"

    def _read(self, path: Path, label_key: str) -> tuple[np.ndarray, np.ndarray]:
        """Images uint8 [N, 32, 32, 3] and labels int64 [N] of one file."""
        content = read_arrays(path)
        pixels = _entry(content, "data", path)
        labels = np.asarray(_entry(content, label_key, path), dtype=np.int64)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3072):
            raise DataError(f"{path}: its data is not [{len(labels)}, 3072] bytes; download it again")
        if labels.size and not 0 <= labels.min() <= labels.max() < len(self.classes):
            raise DataError(f"{path}: a label is outside 0..{len(self.classes) - 1}; download it again")
        return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _entry(content: dict[str, Any], key: str, path: Path) -> Any:
    if key not in content:
        raise DataError(f"{path}: has no '{key}'; it is not the python version of CIFAR")
    return content[key]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
