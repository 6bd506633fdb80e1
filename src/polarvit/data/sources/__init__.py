"""Where images come from: folders, CIFAR pickles, the Hugging Face hub, the digits of scikit-learn."""

from polarvit.data.sources.cifar import CifarSource
from polarvit.data.sources.digits import DigitsSource
from polarvit.data.sources.folder import FolderSource
from polarvit.data.sources.hub import HubSource
from polarvit.data.sources.source import Source

__all__ = ["CifarSource", "DigitsSource", "FolderSource", "HubSource", "Source"]
