"""Folders of image files, one folder for each class."""

from pathlib import Path

import numpy as np
from PIL import Image

from polarvit.data.errors import DataError
from polarvit.data.sources.source import open_image, require_split

EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif"})

_SPLIT_FOLDERS = {
    "train": ("train",),
    "validation": ("validation", "valid", "val"),
    "test": ("test",),
}


class FolderSource:
    """`root/train/<class>/*.png` beside `root/test` and `root/val`, or plainly `root/<class>/*.png`.

    Classes are the sorted names of the folders of the training split; files are sorted too and may lie
    deeper inside their class. Other files are ignored.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise DataError(
                f"{self.root}: no such folder; give the folder that holds train/ or the class folders, or one that "
                "`polarvit data prepare` has written"
            )
        folders = split_folders(self.root)
        self.classes = tuple(sorted(f.name for f in _subfolders(folders["train"])))
        if not self.classes:
            raise DataError(f"{folders['train']}: has no folder for any class; expected {folders['train']}/<class>/*")
        self._files = {split: self._list(folder) for split, folder in folders.items()}

    @property
    def description(self) -> str:
        return f"folder {self.root.name}"

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self._files)

    def labels(self, split: str) -> np.ndarray:
        require_split(self, split)
        return np.array([label for _, label in self._files[split]], dtype=np.int64)

    def image(self, split: str, index: int) -> Image.Image:
        return open_image(self.root / self._files[split][index][0])

    def origin(self, split: str, index: int) -> str:
        return str(self.root / self._files[split][index][0])

    def _list(self, folder: Path) -> list[tuple[str, int]]:
        """(path below the root, label) of every image of a split."""
        labels = {name: label for label, name in enumerate(self.classes)}
        files = []
        for each in _subfolders(folder):
            if each.name not in labels:
                raise DataError(f"{each}: class '{each.name}' is not in the training split")
            inside = sorted(f for f in each.rglob("*") if is_image(f))
            if not inside:
                raise DataError(f"{each}: class '{each.name}' has no images; add some or delete the folder")
            files += [(str(f.relative_to(self.root)), labels[each.name]) for f in inside]
        if not files:
            raise DataError(f"{folder}: has no folder for any class")
        return files


def is_image(path: Path) -> bool:
    """A file that is called like an image and is not hidden."""
    return path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()


def split_folders(root: Path) -> dict[str, Path]:
    """The folders of the splits inside `root`; without any, `root` itself is the training split."""
    found = {}
    for split, names in _SPLIT_FOLDERS.items():
        present = [root / name for name in names if (root / name).is_dir()]
        if len(present) > 1:
            raise DataError(f"{present[0]} and {present[1]}: both would be the {split} split; keep one")
        if present:
            found[split] = present[0]
    if "train" in found:
        return found
    if found:
        raise DataError(f"{root}: has {', '.join(f.name for f in found.values())} but no train folder")
    return {"train": root}


def _subfolders(folder: Path) -> list[Path]:
    return sorted(f for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))
