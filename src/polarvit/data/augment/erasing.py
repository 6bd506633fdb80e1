"""Random erasing: a random box of a normalised image is overwritten."""

import math
from typing import Literal

import torch
from torch import Tensor

from polarvit.data.augment.crop import first_that_fits
from polarvit.data.augment.draws import Draws, Stream, gaussian, integer
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
) -> Tensor:
    """Boxes to erase: int64 [n, 4] (top, left, height, width), empty for images that stay whole.

    The area is uniform; the aspect height / width is uniform in mode "mean" (Zhong et al., HexFormer) and
    log-uniform in mode "pixel" (timm). A box must be smaller than the image both ways; of ten attempts
    the first that is counts.
    """
    u = draws.uniform(Stream.ERASING, 1 + 4 * _ATTEMPTS)
    erase, u = u[:, 0] < probability, u[:, 1:].view(-1, _ATTEMPTS, 4)
    target = height * width * (area[0] + (area[1] - area[0]) * u[..., 0])
    if mode == "mean":
        shape = aspect[0] + (aspect[1] - aspect[0]) * u[..., 1]
    else:
        low, high = math.log(aspect[0]), math.log(aspect[1])
        shape = torch.exp(low + (high - low) * u[..., 1])
    rows, columns = torch.sqrt(target * shape).round(), torch.sqrt(target / shape).round()
    top, left = integer(u[..., 2], height - rows + 1), integer(u[..., 3], width - columns + 1)
    attempts = torch.stack([top, left, rows.to(torch.int64), columns.to(torch.int64)], -1)
    boxes = first_that_fits(attempts, (rows < height) & (columns < width), torch.zeros(4, dtype=torch.int64))
    return boxes * erase[:, None]


def erase_with(images: Tensor, boxes: Tensor, color: Tensor) -> Tensor:
    """Overwrite boxes [n, 4] of float32 [n, 3, H, W] with one colour float32 [3]."""
    hole = inside(boxes, *images.shape[-2:])[:, None]
    return torch.where(hole, color.view(1, 3, 1, 1), images)


def erase_with_noise(images: Tensor, boxes: Tensor, draws: Draws) -> Tensor:
    """Overwrite boxes [n, 4] of float32 [n, 3, H, W] with standard normal noise, each value its own draw."""
    hole = inside(boxes, *images.shape[-2:])[:, None]
    bits = draws.bits(Stream.NOISE, images[0].numel()).view_as(images)
    first = ((bits >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24
    second = ((bits >> 16) & 0xFFFFFF).to(torch.float32) * 2.0**-24
    return torch.where(hole, gaussian(first, second), images)
