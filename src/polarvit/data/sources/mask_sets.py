"""The segmentation sets of the paper, as they are published: where their files lie and how many there should be.

`kvasir-seg` and `sanet` read the PraNet collection (TrainDataset, TestDataset); its training images named by a number
are CVC-ClinicDB, the others Kvasir-SEG. `isic2016` and `isic2018` read the four folders of the challenge.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from polarvit.data.errors import DataError
from polarvit.data.sources.masks import Pair, find_pairs, pair_files

Pairs = dict[str, list[Pair]]


@dataclass(frozen=True)
class MaskSet:
    """A published set: how to find its pairs, and the sizes of the paper's splits."""

    title: str
    find: Callable[[Path], Pairs]
    counts: dict[str, int]
    """Images of train, validation and test in the paper."""
    test: float = 0.0
    """Share of the images that becomes the test split, where the set has none of its own."""


def _kvasir(root: Path) -> Pairs:
    train = [pair for pair in find_pairs(_inside(root, "TrainDataset"), root) if not pair.image.stem.isdigit()]
    return {"train": train, "test": find_pairs(_inside(root, "TestDataset") / "Kvasir", root)}


def _sanet(root: Path) -> Pairs:
    return {split: find_pairs(_inside(root, f"{split.title()}Dataset"), root) for split in ("train", "test")}


def _busi(root: Path) -> Pairs:
    return {"train": find_pairs(root, root)}


def _isic(image: str, mask: str) -> Callable[[Path], Pairs]:
    def find(root: Path) -> Pairs:
        return {
            split: pair_files(_inside(root, image.format(word)), _inside(root, mask.format(word)), root)
            for split, word in (("train", "Training"), ("test", "Test"))
        }

    return find


def _inside(root: Path, name: str) -> Path:
    if not (root / name).is_dir():
        raise DataError(f"{root}: has no folder {name}; is it the unpacked download?")
    return root / name


MASK_SETS = {
    "kvasir-seg": MaskSet("Kvasir-SEG", _kvasir, {"train": 810, "validation": 90, "test": 100}),
    "sanet": MaskSet("PraNet collection (SANET)", _sanet, {"train": 1305, "validation": 145, "test": 798}),
    "busi": MaskSet("BUSI", _busi, {"train": 624, "validation": 78, "test": 78}, test=0.1),
    "isic2016": MaskSet(
        "ISIC 2016",
        _isic("ISBI2016_ISIC_Part1_{}_Data", "ISBI2016_ISIC_Part1_{}_GroundTruth"),
        {"train": 810, "validation": 90, "test": 379},
    ),
    "isic2018": MaskSet(
        "ISIC 2018",
        _isic("ISIC2018_Task1-2_{}_Input", "ISIC2018_Task1_{}_GroundTruth"),
        {"train": 2335, "validation": 259, "test": 1000},
    ),
}
VALIDATION = 0.1
"""Share of the training images that the benchmark holds out."""


class NamedMaskSource:
    """One of `MASK_SETS` in the folder of its download; a warning tells when images are missing."""

    def __init__(self, name: str, root: str | Path) -> None:
        self.set, self.root = MASK_SETS[name], Path(root)
        if not self.root.is_dir():
            raise DataError(f"{self.root}: no such folder; unpack {self.set.title} there")
        self.description = self.set.title
        self.held_out = {"validation": VALIDATION, "test": self.set.test}
        self.pairs = self.set.find(self.root)
        found, expected = sum(map(len, self.pairs.values())), sum(self.set.counts.values())
        if found != expected:
            warnings.warn(
                f"{self.root}: {found} images with masks, the paper's {self.set.title} has {expected}", stacklevel=2
            )
