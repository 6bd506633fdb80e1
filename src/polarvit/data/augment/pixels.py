"""How a batch of images lies in memory while it is augmented: uint8 [n, H, W, 4].

Red, green, blue and one byte of padding, so that a pixel is one 32-bit word and moving pixels (crop,
flip, translate, rotate) is one gather of words instead of three of bytes. The padding byte means nothing,
unless the images have masks: then it is the class of the pixel and moves with it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def pad_pixels(images: Tensor, masks: Tensor | None = None) -> Tensor:
    """uint8 [n, H, W, 3] -> [n, H, W, 4]; masks uint8 [n, H, W] become the fourth byte."""
    out = images.new_zeros((*images.shape[:-1], 4))
    out[..., :3] = images
    if masks is not None:
        out[..., 3] = masks
    return out


def as_words(images: Tensor) -> Tensor:
    """uint8 [n, H, W, 4] -> int32 [n, H * W], the same memory."""
    return images.view(torch.int32).view(images.shape[0], -1)


def as_images(words: Tensor, height: int, width: int) -> Tensor:
    """int32 [n, H * W] -> uint8 [n, H, W, 4], the same memory."""
    return words.view(-1, height, width, 1).view(torch.uint8)


def word_of(color: Sequence[int]) -> int:
    """A colour (r, g, b) as the word of its pixel."""
    return int.from_bytes(bytes([*color, 0]), "little", signed=True)


def inside(boxes: Tensor, height: int, width: int) -> Tensor:
    """Which pixels lie in a box: boxes int64 [n, 4] (top, left, height, width) -> bool [n, H, W]."""
    top, left, rows, columns = boxes[:, :, None].unbind(1)
    y = torch.arange(height, device=boxes.device)
    x = torch.arange(width, device=boxes.device)
    in_rows = (y >= top) & (y < top + rows)
    in_columns = (x >= left) & (x < left + columns)
    return in_rows[:, :, None] & in_columns[:, None, :]
