"""Where images come from: folders, CIFAR pickles, the Hugging Face hub, the digits of scikit-learn, masks."""

from polarvit.data.sources.cifar import CifarSource
from polarvit.data.sources.digits import DigitsSource
from polarvit.data.sources.folder import FolderSource
from polarvit.data.sources.hub import HubSource
from polarvit.data.sources.mask_sets import NamedMaskSource
from polarvit.data.sources.masks import MaskFolderSource, MaskSource
from polarvit.data.sources.source import Source

__all__ = [
    "CifarSource",
    "DigitsSource",
    "FolderSource",
    "HubSource",
    "MaskFolderSource",
    "MaskSource",
    "NamedMaskSource",
    "Source",
]
