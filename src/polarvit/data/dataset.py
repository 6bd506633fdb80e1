"""What the augmentation asks of a data set, wherever its images are."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from polarvit.data.augment.crop import Interpolation


class Request(Protocol):
    """Which samples are needed, for this step and every later one; equal requests ask for the same."""

    @property
    def seed(self) -> int:
        """Keys the draws of crops that happen where images are decoded."""
        ...

    @property
    def steps(self) -> int | None:
        """Number of steps there are; None: no end."""
        ...

    @property
    def interpolation(self) -> Interpolation:
        """How images are resized that get their size where they are decoded."""
        ...

    def indices(self, step: int) -> np.ndarray:
        """Samples of a step, in order: int64 [n]."""
        ...


class ImageDataset(Protocol):
    """Images of one size with labels."""

    name: str  #: for messages
    classes: tuple[str, ...]
    labels: np.ndarray  #: int64 [N], on the host
    image_size: tuple[int, int]  #: (height, width) of what `fetch` returns
    crops: bool  #: whether `fetch` has already done the random or central crop

    def __len__(self) -> int: ...

    def fetch(self, request: Request, step: int, device: torch.device) -> Tensor:
        """Images of a step: uint8 [n, H, W, 4] (see `augment.pixels`) on the device."""
        ...
