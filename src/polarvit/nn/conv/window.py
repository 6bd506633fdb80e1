"""Receptive fields of a scalar image."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Pair = int | tuple[int, int]


class Field(NamedTuple):
    """Where a convolution looks: (height, width) of each."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @classmethod
    def of(cls, layer: str, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Field:
        """From numbers or pairs of them; what is out of range is named."""
        pairs = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation}
        for name, value in pairs.items():
            pair = (value, value) if isinstance(value, int) else tuple(value)
            least = 0 if name == "padding" else 1
            if len(pair) != 2 or min(pair) < least:
                raise ValueError(f"{layer}: {name} must be {least} or more (one number or two), got {value!r}")
            pairs[name] = pair
        return cls(*pairs.values())  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        """Pixels in it."""
        return self.kernel[0] * self.kernel[1]

    def convolve(self, images: Tensor, weight: Tensor) -> Tensor:
        """The ordinary convolution of images [B, C, H, W] that looks there, zero outside."""
        return F.conv2d(images, weight, None, self.stride, self.padding, self.dilation)

    def describe(self) -> str:
        """For the printed form of a layer."""
        return f"{self.kernel}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}"


def window_sum(x: Tensor, field: Field) -> Tensor:
    """Sum of an image [B, H, W] over each receptive field, zero outside: [B, H', W'].

    Never by a convolution with ones, which could be rounded to TF32: by an average pooling that does not divide, one
    kernel each way; where there is none (dilation, wide padding, or another runtime) by shifted slices.
    """
    kernel, stride, padding, dilation = field
    for axis in (0, 1):
        if x.shape[axis + 1] + 2 * padding[axis] < dilation[axis] * (kernel[axis] - 1) + 1:
            raise ValueError(f"window_sum: a field {field} does not fit an image of {list(x.shape)}")
    if field == POINT:
        return x
    pools = dilation == (1, 1) and all(2 * pad <= size for pad, size in zip(padding, kernel, strict=True))
    if pools and not torch.compiler.is_exporting():
        return F.avg_pool2d(x, kernel, stride, padding, divisor_override=1)
    return by_slices(x, field)


def by_slices(x: Tensor, field: Field) -> Tensor:
    """`window_sum` by shifted slices, rows and columns apart."""
    x = F.pad(x, (field.padding[1], field.padding[1], field.padding[0], field.padding[0]))
    for axis in (0, 1):
        size, stride, reach = field.kernel[axis], field.stride[axis], field.dilation[axis]
        count = (x.shape[axis + 1] - reach * (size - 1) - 1) // stride + 1
        stop = stride * (count - 1) + 1
        slices = [x.narrow(axis + 1, reach * i, stop) for i in range(size)]
        total = sum(slices[1:], slices[0])
        x = total[:, ::stride] if axis == 0 else total[:, :, ::stride]
    return x


POINT = Field((1, 1), (1, 1), (0, 0), (1, 1))
"""The receptive field of a 1x1 convolution: one pixel."""
