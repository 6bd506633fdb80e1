"""Crops and flips: padded crop as a move of pixels, resized crop as Pillow's antialiased resampling."""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from polarvit.data.augment.draws import Draws, Stream, first_that_fits, integer
from polarvit.data.augment.pixels import as_images, as_words

Interpolation = Literal["bilinear", "bicubic"]

_ATTEMPTS = 10


def flip_and_crop(images: Tensor, flip: Tensor, top: Tensor, left: Tensor, padding: int) -> Tensor:
    """Mirror left and right where `flip`, pad with black, cut the original size out again.

    Args:
        images: uint8 [n, H, W, 4].
        flip: bool [n].
        top, left: corner of the cut in the padded image, int64 [n], each in 0..2 padding.
    """
    n, height, width, _ = images.shape
    y = torch.arange(height, device=images.device) + (top - padding)[:, None]
    x = torch.arange(width, device=images.device) + (left - padding)[:, None]
    keep = ((y >= 0) & (y < height))[:, :, None] & ((x >= 0) & (x < width))[:, None, :]
    x = torch.where(flip[:, None], width - 1 - x, x).clamp_(0, width - 1)
    place = (y.clamp_(0, height - 1) * width)[:, :, None] + x[:, None, :]
    moved = as_words(images).gather(1, place.view(n, -1)).mul_(keep.view(n, -1))
    return as_images(moved, height, width)


def sample_crops(
    draws: Draws, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> np.ndarray:
    """Random parts of an image for a resized crop: int64 [n, 4] (top, left, height, width).

    The area is uniform in `scale` (of the whole), the aspect width / height log-uniform in `ratio`; the
    first of ten attempts that fits counts, else the largest central part with an allowed aspect.
    """

    def propose(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        area = height * width * (scale[0] + (scale[1] - scale[0]) * u[:, 0])
        aspect = log_uniform(u[:, 1], ratio)
        columns, rows = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
        fits = (columns >= 1) & (columns <= width) & (rows >= 1) & (rows <= height)
        return random_places(u, rows, columns, height, width), fits

    return first_that_fits(draws, Stream.RESIZED_CROP, 0, _ATTEMPTS, propose, _central(height, width, ratio))


def log_uniform(uniform: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
    """Uniform numbers float64 [n] as numbers between two ends whose logarithm is uniform."""
    low, high = math.log(ends[0]), math.log(ends[1])
    return torch.exp(torch.from_numpy(low + (high - low) * uniform)).numpy()


def random_places(u: np.ndarray, rows: np.ndarray, columns: np.ndarray, height: int, width: int) -> np.ndarray:
    """Boxes of a size, float64 [n] each, somewhere in the image, by numbers 2 and 3 of u: int64 [n, 4]."""
    top, left = integer(u[:, 2], height - rows + 1), integer(u[:, 3], width - columns + 1)
    return np.stack([top, left, rows.astype(np.int64), columns.astype(np.int64)], -1)


def _central(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int, int, int]:
    rows, columns = height, width
    if width / height < ratio[0]:
        rows = round(width / ratio[0])
    elif width / height > ratio[1]:
        columns = round(height * ratio[1])
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def _kernel(x: Tensor, interpolation: Interpolation) -> Tensor:
    x = x.abs()
    if interpolation == "bilinear":
        return (1 - x).clamp(min=0)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((x - 5) * x + 8) * x * -0.5 + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def resize_weights(start: Tensor, length: Tensor, source: int, target: int, interpolation: Interpolation) -> Tensor:
    """The linear map that resizes a part of a line: part [start, start + length) of `source` pixels to `target`.

    When it shrinks, the kernel widens, so nothing aliases. start, length int64 [n] -> float32 [n, target, source].
    """
    start, length = start[:, None, None].to(torch.float32), length[:, None, None].to(torch.float32)
    step = length / target
    stretch = step.clamp(min=1.0)
    centre = (torch.arange(target, device=start.device)[:, None] + 0.5) * step
    place = torch.arange(source, device=start.device) - start + 0.5
    weights = _kernel((place - centre) / stretch, interpolation)
    weights = weights * ((place > 0) & (place < length))
    return weights / weights.sum(-1, keepdim=True)


def resized_crop(
    images: Tensor, boxes: Tensor, flip: Tensor, size: tuple[int, int], interpolation: Interpolation
) -> Tensor:
    """Cut a box out of each image, resize it, mirror where `flip`.

    As in Pillow the width is resized first and rounded to whole grey levels, then the height. Where TF32
    products are allowed, weights have 11 bits, and a few per cent of the pixels round to the next level.

    Args:
        images: uint8 [n, H, W, 4].
        boxes: int64 [n, 4] (top, left, height, width).
        flip: bool [n].
        size: (height, width) of the result uint8 [n, height, width, 4].
    """
    top, left, rows, columns = boxes.unbind(1)
    across = resize_weights(left, columns, images.shape[2], size[1], interpolation)
    across = torch.where(flip[:, None, None], across.flip(1), across)
    down = resize_weights(top, rows, images.shape[1], size[0], interpolation)
    planes = images.permute(0, 3, 1, 2).to(torch.float32)
    planes = torch.matmul(planes, across.transpose(1, 2)[:, None]).add_(0.5).floor_().clamp_(0, 255)
    planes = torch.matmul(down[:, None], planes).add_(0.5).floor_().clamp_(0, 255)
    return planes.to(torch.uint8).permute(0, 2, 3, 1).contiguous()
