"""Affine transforms of a batch as Pillow does them: nearest neighbour exactly, bicubic to one grey level.

A transform is given backwards, from a pixel of the result to its place in the source:
x' = a x + b y + c, y' = d x + e y + f at pixel centres (x + 1/2, y + 1/2), matrices float64 [n, 6].
They are built where the draws are, on the host. Places outside the source get the fill colour.
"""

import math

import numpy as np
import torch
from torch import Tensor

from polarvit.data.augment.pixels import as_images, as_words

_ONE = 1 << 16


def shear_x(factor: np.ndarray) -> np.ndarray:
    """x' = x + factor y: float64 [n] -> [n, 6]."""
    return _still(len(factor), {1: factor})


def shear_y(factor: np.ndarray) -> np.ndarray:
    """y' = y + factor x: float64 [n] -> [n, 6]."""
    return _still(len(factor), {3: factor})


def translate_x(pixels: np.ndarray) -> np.ndarray:
    """x' = x + pixels: float64 [n] -> [n, 6]."""
    return _still(len(pixels), {2: pixels})


def translate_y(pixels: np.ndarray) -> np.ndarray:
    """y' = y + pixels: float64 [n] -> [n, 6]."""
    return _still(len(pixels), {5: pixels})


def rotate(degrees: np.ndarray, height: int, width: int) -> np.ndarray:
    """Counter-clockwise about the centre: float64 [n] -> [n, 6]."""
    angle = torch.from_numpy(-np.remainder(degrees, 360.0) * (math.pi / 180.0))
    cos, sin = angle.cos().numpy(), angle.sin().numpy()
    x, y = width / 2, height / 2
    return np.stack([cos, sin, x - (cos * x + sin * y), -sin, cos, y - (cos * y - sin * x)], -1)


def _still(count: int, columns: dict[int, np.ndarray]) -> np.ndarray:
    """The matrix that changes nothing, but for some columns."""
    matrix = np.zeros((count, 6))
    matrix[:, 0] = matrix[:, 4] = 1.0
    for column, values in columns.items():
        matrix[:, column] = values
    return matrix


def fixed_point(matrix: np.ndarray) -> np.ndarray:
    """The matrix in Pillow's 16.16 fixed point, offsets taken at the first pixel's centre: int64 [n, 6].

    Pillow moves a pure translation in floating point instead, by floor(t + 1/2) whole pixels;
    written as an offset of that many pixels and a half, fixed point gives the same.
    """
    a, b, c, d, e, f = matrix.T
    x, y = c + a * 0.5 + b * 0.5, f + d * 0.5 + e * 0.5
    still = (a == 1) & (b == 0) & (d == 0) & (e == 1)
    x = np.where(still, np.floor(x) + 0.5, x)
    y = np.where(still, np.floor(y) + 0.5, y)
    return np.floor(np.stack([a, b, x, d, e, y], -1) * _ONE + 0.5).astype(np.int64)


def nearest(images: Tensor, coefficients: Tensor, fill: int) -> Tensor:
    """Transform by `fixed_point` coefficients int64 [n, 6]; `fill` is a pixel word. uint8 [n, H, W, 4]."""
    n, height, width, _ = images.shape
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device)[:, None]
    a, b, c, d, e, f = coefficients[:, :, None, None].unbind(1)
    column = (a * x + (b * y + c)) >> 16
    row = (d * x + (e * y + f)) >> 16
    outside = (column < 0) | (column >= width) | (row < 0) | (row >= height)
    place = row.clamp_(0, height - 1).mul_(width).add_(column.clamp_(0, width - 1))
    moved = as_words(images).gather(1, place.view(n, -1)).masked_fill_(outside.view(n, -1), fill)
    return as_images(moved, height, width)


def _cubic_weights(t: Tensor) -> Tensor:
    """Weights of the four neighbours at distance 1 + t, t, 1 - t, 2 - t (Keys' kernel with a = -1): [..., 4]."""
    t2, t3 = t * t, t * t * t
    return torch.stack([-t + 2 * t2 - t3, 1 - 2 * t2 + t3, t + t2 - t3, -t2 + t3], -1)


def bicubic(images: Tensor, matrix: Tensor, fill: int) -> Tensor:
    """Transform by matrices float64 [n, 6] with 4 x 4 neighbours, edges repeated; uint8 [n, H, W, 4]."""
    n, height, width, _ = images.shape
    centre_x = torch.arange(width, device=images.device, dtype=torch.float64) + 0.5
    centre_y = (torch.arange(height, device=images.device, dtype=torch.float64) + 0.5)[:, None]
    a, b, c, d, e, f = matrix[:, :, None, None].unbind(1)
    x = a * centre_x + b * centre_y + c
    y = d * centre_x + e * centre_y + f
    outside = (x < 0) | (x >= width) | (y < 0) | (y >= height)

    left, top = (x - 0.5).floor(), (y - 0.5).floor()
    across = _cubic_weights((x - 0.5 - left).to(torch.float32))[..., None]
    down = _cubic_weights((y - 0.5 - top).to(torch.float32))
    taps = torch.arange(-1, 3, device=images.device)
    columns = (left.to(torch.int64)[..., None] + taps).clamp_(0, width - 1)
    rows = (top.to(torch.int64)[..., None] + taps).clamp_(0, height - 1) * width

    words = as_words(images)
    value = torch.zeros((n, height, width, 4), dtype=torch.float32, device=images.device)
    for k in range(4):
        neighbours = words.gather(1, (rows[..., k, None] + columns).view(n, -1))
        neighbours = neighbours.view(n, height, width, 4, 1).view(torch.uint8).to(torch.float32)
        value += (neighbours * across).sum(-2) * down[..., k, None]
    # Pillow truncates in float64; the small lift keeps whole numbers whole after float32 rounding.
    moved = value.add_(2.0**-13).clamp_(0, 255).to(torch.uint8)
    return as_images(as_words(moved).masked_fill_(outside.view(n, -1), fill), height, width)
