"""CIFAR-10 and CIFAR-100 in their original form: pickles of arrays, read without trusting them.

A pickle can name any function of any module and have it called, and hand any state to what it builds. The reader here
knows three names, those that rebuild a plain numpy array, and refuses every other; behind them stand classes of its
own, so that no state of the file reaches numpy's. Containers that occur twice are refused: a few hundred bytes of lists
in lists can stand for more than a memory holds.
"""

import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from polarvit.data.errors import DataError
from polarvit.data.sources.source import require_split

KINDS = ("u1", "i4", "i8")


class _Kind:
    """Stands for a numpy dtype: whole numbers, little-endian, without fields."""

    def __init__(self, name: str | bytes, *_: Any) -> None:
        self.name = name.decode("latin1") if isinstance(name, bytes) else name
        if self.name not in KINDS:
            raise pickle.UnpicklingError(f"an array of {self.name!r:.20}")

    def __setstate__(self, state: Any) -> None:
        plain = isinstance(state, tuple) and len(state) >= 5 and all(part is None for part in state[2:5])
        if not plain or state[1] not in ("|", "<", b"|", b"<"):
            raise pickle.UnpicklingError("an array of something else than plain numbers")


class _Array:
    """Stands for an array: its state is a version, a shape, a kind, an order, and the bytes."""

    def __init__(self) -> None:
        self.values = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, columns_first, data = state
        if not isinstance(kind, _Kind) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array of something else than plain numbers")
        flat = np.frombuffer(data, f"<{kind.name}")
        self.values = flat.reshape(shape, order="F" if columns_first else "C")


def _empty_array(kind: object, shape: object, code: object) -> _Array:
    """What numpy's pickles call first: an array that the pickle's state fills afterwards."""
    return _Array()


def _latin1(text: str, encoding: str) -> bytes:
    """What Python 3 calls for bytes in an old protocol."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding} is not expected")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _latin1,
}


def _once(load: Any) -> Any:
    """`load`, which puts something on the stack again, for texts and numbers alone."""

    def checked(unpickler: Any) -> None:
        load(unpickler)
        if isinstance(unpickler.stack[-1], list | tuple | dict | set | frozenset):
            raise pickle.UnpicklingError("it uses a list, tuple or dictionary twice, which no CIFAR file does")

    return checked


class _ArrayUnpickler(pickle._Unpickler):
    """The reader that is written in Python: what it fetches from its memory can be looked at."""

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        **{
            opcode[0]: _once(pickle._Unpickler.dispatch[opcode[0]])
            for opcode in (pickle.GET, pickle.BINGET, pickle.LONG_BINGET, pickle.DUP)
        },
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file needs")
        return _ALLOWED[module, name]


def read_arrays(path: Path) -> dict[str, Any]:
    """A pickled dictionary of arrays, numbers and texts; keys as str."""
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__}")
        return {_text(key): value.values if isinstance(value, _Array) else value for key, value in content.items()}
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; give the folder of the unpacked python version of CIFAR") from error
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(f"{path}: not a CIFAR file ({error}); download it again") from error


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise pickle.UnpicklingError(f"{value!r:.40} is no text")
    return value.decode() if isinstance(value, bytes) else value


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
        self.classes = _names(_entry(read_arrays(self.root / meta), names[1], self.root / meta), self.root / meta)
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
        labels = _whole_numbers(_entry(content, label_key, path), path)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3072):
            raise DataError(f"{path}: its data is not [{len(labels)}, 3072] bytes; download it again")
        if labels.size and not 0 <= labels.min() <= labels.max() < len(self.classes):
            raise DataError(f"{path}: a label is outside 0..{len(self.classes) - 1}; download it again")
        return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _entry(content: dict[str, Any], key: str, path: Path) -> Any:
    if key not in content:
        raise DataError(f"{path}: has no '{key}'; it is not the python version of CIFAR")
    return content[key]


def _names(value: Any, path: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str | bytes) for name in value):
        raise DataError(f"{path}: the names of its classes are no texts; download it again")
    return tuple(map(_text, value))


def _whole_numbers(value: Any, path: Path) -> np.ndarray:
    """Labels int64 [N], from a list or an array."""
    plain = isinstance(value, list) and all(type(label) is int and abs(label) < 2**31 for label in value)
    if not plain and not (isinstance(value, np.ndarray) and value.ndim == 1):
        raise DataError(f"{path}: its labels are no whole numbers; download it again")
    return np.asarray(value, dtype=np.int64)
