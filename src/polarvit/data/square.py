"""Images of any shape as squares of one size, the way the Hyperbolic U-Net benchmark makes them, and back.

Padded at the bottom and on the right to a square, then resized: images bicubic without antialiasing (PyTorch's, in
floating point, rounded here to bytes), masks to the nearest pixel.
"""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

Padding = Literal["zeros", "minimum"]
"""What is padded: black (the paper), or the darkest value of the image (the benchmark's code)."""


def square_image(image: Image.Image, size: int, padding: Padding = "zeros") -> np.ndarray:
    """An RGB image as uint8 [size, size, 3]."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
    square = _padded(pixels, pixels.min().item() if padding == "minimum" else 0.0)
    resized = F.interpolate(square[None], (size, size), mode="bicubic")[0]
    return resized.round_().clamp_(0, 255).byte().permute(1, 2, 0).contiguous().numpy()


def square_mask(mask: np.ndarray, size: int) -> np.ndarray:
    """A mask bool [H, W] as uint8 [size, size] of 0 and 1."""
    square = _padded(torch.from_numpy(mask).float()[None], 0.0)
    return F.interpolate(square[None], (size, size), mode="nearest")[0, 0].byte().numpy()


def unsquare(values: Tensor, height: int, width: int) -> Tensor:
    """A map [size, size] of a square image in the shape of the original: float32 [height, width]."""
    side = max(height, width)
    resized = F.interpolate(values[None, None].float(), (side, side), mode="bilinear")
    return resized[0, 0, :height, :width]


def padding_of(images: Tensor) -> Tensor:
    """Where images [B, 3, H, W] were made square: rows at the bottom or columns on the right, all of one colour.

    Black margins of an image itself that reach so far look the same. bool [B, H, W].
    """
    flat = (images == images[:, :, -1:, -1:]).all(1)
    rows, columns = (flat.all(side).flip(1).int().cumprod(1).flip(1).bool() for side in (2, 1))
    return rows[:, :, None] | columns[:, None, :]


def _padded(planes: Tensor, value: float) -> Tensor:
    """[c, H, W] to a square, at the bottom or on the right."""
    _, height, width = planes.shape
    side = max(height, width)
    return F.pad(planes, (0, side - width, 0, side - height), value=value)
