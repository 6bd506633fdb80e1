"""A data set that lives where it is used."""

import numpy as np
import torch
from torch import Tensor

from polarvit.data.augment.pixels import pad_pixels
from polarvit.data.augment.transfer import ship
from polarvit.data.dataset import Request

_CHUNK = 4096


class ResidentDataset:
    """All images in the memory of one device, as uint8 [N, H, W, 4] (see `augment.pixels`).

    CIFAR takes 0.2 GB, Tiny-ImageNet 1.6 GB. Batches are gathered on the device; nothing is copied.
    """

    crops = False

    def __init__(
        self,
        name: str,
        images: np.ndarray,
        labels: np.ndarray,
        classes: tuple[str, ...],
        device: torch.device | str,
        masks: np.ndarray | None = None,
    ) -> None:
        """images uint8 [N, H, W, 3], labels int64 [N], masks uint8 [N, H, W] or none."""
        self.name = name
        self.masked = masks is not None
        self.classes = classes
        self.labels = np.asarray(labels)
        self.image_size = (images.shape[1], images.shape[2])
        self.images = torch.empty((*images.shape[:3], 4), dtype=torch.uint8, device=device)
        for start in range(0, len(images), _CHUNK):
            rows = slice(start, start + _CHUNK)
            part = torch.from_numpy(np.ascontiguousarray(images[rows]).copy())
            mask = None if masks is None else torch.from_numpy(masks[rows].copy())
            self.images[rows] = pad_pixels(part, mask).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def gather(self, indices: Tensor) -> Tensor:
        """Images of indices int64 [n] on the same device: uint8 [n, H, W, 4]."""
        return self.images.index_select(0, indices)

    def fetch(self, request: Request, step: int, device: torch.device) -> Tensor:
        """Images of a step: uint8 [n, H, W, 4]."""
        (indices,) = ship([request.indices(step)], self.images.device)
        return self.gather(indices).to(device, non_blocking=True)
