"""Data sets packed once into arrays that are mapped into memory: no decoding, no start-up time.

A prepared folder holds `meta.json` and, for each split, `<split>-images.npy` (uint8 [N, H, W, 3]) and
`<split>-labels.npy` (int64 [N]). The file `meta.json` names the classes, the source, the sizes, the SHA-256 of each
array, and which training images became the validation split. Images with masks: see `packed_masks`.
"""

import copy
import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polarvit.data.augment.pixels import pad_pixels
from polarvit.data.central import central_square
from polarvit.data.dataset import Request
from polarvit.data.errors import DataError
from polarvit.data.resident import ResidentDataset
from polarvit.data.sources.source import Source
from polarvit.data.splits import stratified_split

FORMAT = 1

Progress = Callable[[int, int], None]


def prepare(
    source: Source,
    out: str | Path,
    *,
    image_size: int | None = None,
    validation: float = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Pack all splits of a source into the new folder `out`, which appears only when it is complete.

    Args:
        image_size: resize the shorter side to this (bicubic) and cut the central square; None keeps the
            images as they are, and they must all have one size.
        validation: share of every class of the training split that becomes the validation split.
        seed: of that choice.
        progress: called with (images done, images in all).
    """
    parts, record = _parts(source, validation, seed)
    with new_folder(Path(out)) as work:
        steps = counter(progress, sum(len(indices) for _, indices in parts.values()))
        size = _size(source, image_size)
        splits = {
            name: _write_split(work, name, source, split, indices, size, image_size, steps)
            for name, (split, indices) in parts.items()
        }
        meta = {
            "format": FORMAT,
            "source": source.description,
            "classes": list(source.classes),
            "image_size": list(size),
            "resized_to": image_size,
            "validation": record,
            "splits": splits,
        }
        (work / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
    return Path(out)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to write into that gets the name `out` when the block ends well, and is deleted otherwise."""
    if out.exists():
        raise DataError(f"{out}: already exists; delete it or choose another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        yield work
        work.chmod(0o755)
        work.rename(out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _parts(source: Source, validation: float, seed: int) -> tuple[dict[str, tuple[str, np.ndarray]], Any]:
    """For each split to write: the source's split and the images of it; and what to record of a new split."""
    parts = {split: (split, np.arange(len(source.labels(split)))) for split in source.splits}
    if not validation:
        return parts, None
    if "validation" in parts:
        raise DataError(f"{source.description}: has a validation split of its own; leave validation at 0")
    rest, held = stratified_split(source.labels("train"), validation, seed, source.classes)
    parts = {"train": ("train", rest), "validation": ("train", held)} | {
        split: part for split, part in parts.items() if split != "train"
    }
    record = {"fraction": validation, "seed": seed, "train": rest.tolist(), "validation": held.tolist()}
    return parts, record


def _size(source: Source, image_size: int | None) -> tuple[int, int]:
    if image_size is not None:
        return image_size, image_size
    width, height = source.image("train", 0).size
    return height, width


def _write_split(
    folder: Path,
    name: str,
    source: Source,
    split: str,
    indices: np.ndarray,
    size: tuple[int, int],
    image_size: int | None,
    steps: Iterator[None],
) -> dict[str, Any]:
    """Write the arrays of one split and describe them."""
    labels = source.labels(split)[indices]
    shape = (len(indices), *size, 3)
    images = np.lib.format.open_memmap(folder / f"{name}-images.npy", mode="w+", dtype=np.uint8, shape=shape)
    for row, index in enumerate(indices.tolist()):
        image = source.image(split, index)
        if image_size is not None:
            image = central_square(image, image_size)
        if image.size != (size[1], size[0]):
            raise DataError(
                f"{source.origin(split, index)}: is {image.height} x {image.width} but the first image is "
                f"{size[0]} x {size[1]}; give an image size to resize all to, as --image-size 64"
            )
        images[row] = np.asarray(image)
        next(steps, None)
    images.flush()
    np.save(folder / f"{name}-labels.npy", labels)
    return {
        "count": len(indices),
        "class_counts": np.bincount(labels, minlength=len(source.classes)).tolist(),
        "files": {kind: describe_file(folder / f"{name}-{kind}.npy") for kind in ("images", "labels")},
    }


def counter(progress: Progress | None, total: int) -> Iterator[None]:
    """Reports one image more each time it is advanced."""
    for done in range(1, total + 1):
        if progress is not None:
            progress(done, total)
        yield


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_file(path: Path) -> dict[str, Any]:
    """Name, size and SHA-256 of a written array."""
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": _digest(path)}


def _way_out(split: str, meta: dict[str, Any]) -> str:
    """How a split that is missing can be had."""
    masked = any("masks" in part["files"] for part in meta["splits"].values())
    missing = [name for name in ("validation", "test")[: 1 + masked] if name not in meta["splits"]]
    if split not in missing:
        return ""
    words = " ".join(f"--{name} 0.1" for name in missing)
    instead = "; to measure on the test images: --set data.validation=test" if "test" in meta["splits"] else ""
    return f"; to hold images out: polarvit data prepare SOURCE NEW-FOLDER {words}{instead}"


class PackedDataset:
    """One split of a prepared folder. Open it with `PackedDataset.open`."""

    crops = False

    def __init__(self, folder: Path, split: str, meta: dict[str, Any]) -> None:
        self.folder = folder
        self.split = split
        self.name = f"{folder} ({split})"
        self.meta = meta
        self.classes: tuple[str, ...] = tuple(meta["classes"])
        self.image_size: tuple[int, int] = (meta["image_size"][0], meta["image_size"][1])
        self._files = meta["splits"][split]["files"]
        self.images = self._load("images", "r")
        self.masked = "masks" in self._files
        self.masks = self._load("masks", "r") if self.masked else None
        #: of images with masks, all 0: the classes are in the masks
        self.labels = np.zeros(len(self.images), np.int64) if self.masked else np.asarray(self._load("labels", None))
        if len({len(self.images), len(self.labels), len(self.images if self.masks is None else self.masks)}) > 1:
            raise DataError(f"{self.name}: has not as many images as labels or masks; prepare the data again")

    @classmethod
    def open(cls, folder: str | Path, split: str = "train") -> "PackedDataset":
        """Map a split into memory; sizes are checked, contents only by `verify`."""
        folder = Path(folder)
        path = folder / "meta.json"
        try:
            meta = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise DataError(f"{path}: no such file; pack the data first with `polarvit data prepare`") from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: is damaged ({error}); prepare the data again") from error
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise DataError(f"{path}: is not of format {FORMAT}; prepare the data again")
        try:
            if split not in meta["splits"]:
                raise DataError(
                    f"{folder}: has no split '{split}'; it has {', '.join(meta['splits'])}{_way_out(split, meta)}"
                )
            return cls(folder, split, meta)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise DataError(f"{path}: is damaged ({type(error).__name__}: {error}); prepare the data again") from error

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def checksum(self) -> str:
        """SHA-256 of the split: of the digests of its images and labels (or masks)."""
        return hashlib.sha256("".join(file["sha256"] for file in self._files.values()).encode()).hexdigest()

    def verify(self) -> None:
        """Read everything and compare it with what was written; raises on the first file that differs."""
        for kind, description in self._files.items():
            path = self._path(kind)
            if _digest(path) != description.get("sha256"):
                raise DataError(f"{path}: was modified after it was prepared; prepare the data again")

    def part(self, rows: np.ndarray, name: str) -> "PackedDataset":
        """Some images of the split, read into memory."""
        part = copy.copy(self)
        part.name = f"{self.name[:-1]}, {name})"
        part.images, part.labels = self.images[rows], self.labels[rows]
        part.masks = None if self.masks is None else self.masks[rows]
        return part

    def to(self, device: torch.device | str) -> ResidentDataset:
        """Copy the split into the memory of a device."""
        return ResidentDataset(self.name, self.images, self.labels, self.classes, device, self.masks)

    def fetch(self, request: Request, step: int, device: torch.device) -> Tensor:
        """Images of a step, read from the mapped file: uint8 [n, H, W, 4]."""
        rows = request.indices(step)
        masks = None if self.masks is None else torch.from_numpy(self.masks[rows])
        images = pad_pixels(torch.from_numpy(self.images[rows]), masks)
        if device.type == "cuda":
            images = images.pin_memory()
        return images.to(device, non_blocking=True)

    def _path(self, kind: str) -> Path:
        """The file of images, labels or masks; a name that leaves the folder is refused."""
        name = str(self._files[kind]["file"])
        if kind not in ("images", "labels", "masks") or Path(name).name != name:
            raise DataError(f"{self.folder / 'meta.json'}: names {name!r} for its {kind}; prepare the data again")
        return self.folder / name

    def _load(self, kind: str, mode: Any) -> np.ndarray:
        description = self._files[kind]
        path = self._path(kind)
        if not path.is_file():
            raise DataError(f"{path}: is missing; prepare the data again")
        if path.stat().st_size != description["bytes"]:
            raise DataError(
                f"{path}: has {path.stat().st_size} bytes instead of {description['bytes']}; prepare the data again"
            )
        try:
            array = np.load(path, mmap_mode=mode, allow_pickle=False)
        except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
            raise DataError(f"{path}: is damaged ({error}); prepare the data again") from error
        tail = {"images": (*self.image_size, 3), "masks": self.image_size, "labels": ()}[kind]
        wanted = np.int64 if kind == "labels" else np.uint8
        if not isinstance(array, np.ndarray) or array.dtype != wanted or array.shape[1:] != tail or array.ndim < 1:
            raise DataError(f"{path}: does not hold {kind} of the size {self.image_size}; prepare the data again")
        if kind == "labels" and array.size and not 0 <= array.min() <= array.max() < len(self.classes):
            raise DataError(f"{path}: a label is outside 0..{len(self.classes) - 1}; prepare the data again")
        return array
