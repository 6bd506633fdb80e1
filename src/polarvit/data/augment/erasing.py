"""Random erasing: a random box of a normalised image is overwritten."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from polarvit.data.augment.crop import log_uniform, random_places
from polarvit.data.augment.draws import Draws, Stream, device_bits, first_that_fits, gaussian
from polarvit.data.augment.pixels import inside

EraseMode = Literal["mean", "pixel"]

_ATTEMPTS = 10


def sample_erasing(
    draws: Draws,
    height: int,
    width: int,
    probability: float,
    area: tuple[float, float],
    aspect: tuple[float, float],
    mode: EraseMode,
) -> np.ndarray:
    """Boxes to erase: int64 [n, 4] (top, left, height, width), empty for images that stay whole.

    The area is uniform; the aspect height / width is uniform in mode "mean" (Zhong et al., HexFormer) and
    log-uniform in mode "pixel" (timm). A box must be smaller than the image both ways; of ten attempts
    the first that is counts.
    """
    boxes = np.zeros((len(draws.key), 4), np.int64)
    erased = np.flatnonzero(draws.uniform(Stream.ERASING, 1)[:, 0] < probability)

    def propose(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        target = height * width * (area[0] + (area[1] - area[0]) * u[:, 0])
        if mode == "mean":
            shape = aspect[0] + (aspect[1] - aspect[0]) * u[:, 1]
        else:
            shape = log_uniform(u[:, 1], aspect)
        rows, columns = np.rint(np.sqrt(target * shape)), np.rint(np.sqrt(target / shape))
        return random_places(u, rows, columns, height, width), (rows < height) & (columns < width)

    boxes[erased] = first_that_fits(draws.of(erased), Stream.ERASING, 1, _ATTEMPTS, propose, (0, 0, 0, 0))
    return boxes


def erase_with(images: Tensor, boxes: Tensor, color: Tensor) -> Tensor:
    """Overwrite boxes [n, 4] of float32 [n, 3, H, W] with one colour float32 [3]."""
    hole = inside(boxes, *images.shape[-2:])[:, None]
    return torch.where(hole, color.view(1, 3, 1, 1), images)


def erase_with_noise(images: Tensor, boxes: Tensor, key: Tensor) -> Tensor:
    """Overwrite boxes [n, 4] of float32 [n, 3, H, W] with standard normal noise, each value its own draw.

    `key` int64 [n] are the keys of the images' draws.
    """
    hole = inside(boxes, *images.shape[-2:])[:, None]
    bits = device_bits(key, Stream.NOISE, images[0].numel()).view_as(images)
    first = ((bits >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24
    second = ((bits >> 16) & 0xFFFFFF).to(torch.float32) * 2.0**-24
    return torch.where(hole, gaussian(first, second), images)
