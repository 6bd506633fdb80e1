"""Reading data sets, packing them, and making batches of them on the device.

source = FolderSource("flowers")
prepare(source, "flowers-32", image_size=32, validation=0.1)
data = PackedDataset.open("flowers-32", "train").to("cuda")
plan = BatchPlan(len(data), batch_size=128, seed=0)
augmenter = Augmenter(Augmentation(flip=0.5, crop_padding=4), len(data.classes), image_size=32)
images, targets = augmenter(data, plan, step=0, device="cuda")
for images, targets in batches(augmenter, data, plan, start=0, stop=10_000, device="cuda"): ...
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from polarvit.data.errors import DataError

if TYPE_CHECKING:
    from polarvit.data.ahead import Batches, batches
    from polarvit.data.augment.config import Augmentation
    from polarvit.data.augment.masks import MaskAugmenter
    from polarvit.data.augment.pipeline import Augmenter
    from polarvit.data.packed import PackedDataset, prepare
    from polarvit.data.packed_masks import prepare_masks
    from polarvit.data.resident import ResidentDataset
    from polarvit.data.sampler import BatchPlan, SequentialPlan
    from polarvit.data.sources import (
        CifarSource,
        DigitsSource,
        FolderSource,
        HubSource,
        MaskFolderSource,
        MaskSource,
        NamedMaskSource,
        Source,
    )
    from polarvit.data.streaming import StreamingDataset

_HOMES = {
    "Augmentation": "augment.config",
    "Augmenter": "augment.pipeline",
    "BatchPlan": "sampler",
    "Batches": "ahead",
    "CifarSource": "sources",
    "DigitsSource": "sources",
    "FolderSource": "sources",
    "HubSource": "sources",
    "MaskAugmenter": "augment.masks",
    "MaskFolderSource": "sources",
    "MaskSource": "sources",
    "NamedMaskSource": "sources",
    "PackedDataset": "packed",
    "ResidentDataset": "resident",
    "SequentialPlan": "sampler",
    "Source": "sources",
    "StreamingDataset": "streaming",
    "batches": "ahead",
    "prepare": "packed",
    "prepare_masks": "packed_masks",
}

__all__ = [
    "Augmentation",
    "Augmenter",
    "BatchPlan",
    "Batches",
    "CifarSource",
    "DataError",
    "DigitsSource",
    "FolderSource",
    "HubSource",
    "MaskAugmenter",
    "MaskFolderSource",
    "MaskSource",
    "NamedMaskSource",
    "PackedDataset",
    "ResidentDataset",
    "SequentialPlan",
    "Source",
    "StreamingDataset",
    "batches",
    "prepare",
    "prepare_masks",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"polarvit.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'polarvit.data' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
