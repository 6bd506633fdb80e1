"""The operations a policy may ask for, and how a batch of mixed requests is carried out.

What each image gets is drawn on the host (`policies`), so the host knows which images ask for what: it
sorts them into groups, one for each kernel, and each kernel runs once on its group. Operations that share
their arithmetic share a kernel. No image is computed for nothing, and the device is never asked anything.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Literal

import numpy as np
from torch import Tensor

from polarvit.data.augment import affine, point
from polarvit.data.augment.pixels import as_images, as_words, inside, word_of

Resampling = Literal["nearest", "bicubic"]


class Op(IntEnum):
    """Operations, and what their value means."""

    IDENTITY = 0  # -
    SHEAR_X = 1  # factor
    SHEAR_Y = 2  # factor
    TRANSLATE_X = 3  # part of the width
    TRANSLATE_Y = 4  # part of the height
    ROTATE = 5  # degrees
    INVERT = 6  # -
    SOLARIZE = 7  # threshold
    SOLARIZE_ADD = 8  # amount
    POSTERIZE = 9  # bits that stay
    BRIGHTNESS = 10  # factor, 1 changes nothing
    CONTRAST = 11  # factor
    COLOR = 12  # factor
    SHARPNESS = 13  # factor
    AUTOCONTRAST = 14  # -
    EQUALIZE = 15  # -
    CUTOUT = 16  # half the side, as part of the width


_ENHANCEMENTS = (Op.BRIGHTNESS, Op.CONTRAST, Op.COLOR, Op.SHARPNESS)  # neighbours in Op, in the order of `enhance`


@dataclass(frozen=True)
class Rendering:
    """What the operations leave open: how geometry is resampled and which colour appears from outside."""

    shear: Resampling = "bicubic"
    translate: Resampling = "nearest"
    rotate: Resampling = "nearest"
    fill: tuple[int, int, int] = (128, 128, 128)


@dataclass
class Requests:
    """One operation for each of n images."""

    op: np.ndarray  #: int64 [n], values of Op
    value: np.ndarray  #: float64 [n]
    place: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))  #: float64 [n, 2]: centre of a cutout in [0, 1)


@dataclass
class Group:
    """Images that ask for one kernel: their rows int64 [g] and the kernel's parameters, arrays [g, ...]."""

    kernel: Callable[..., Tensor]
    rows: np.ndarray
    parameters: tuple[np.ndarray, ...] = ()

    def run(self, images: Tensor, rows: Tensor, *parameters: Tensor) -> None:
        """Replace the group's rows of images uint8 [n, H, W, 4]; rows and parameters are on their device."""
        done = self.kernel(images.index_select(0, rows), *parameters)
        as_words(images).index_copy_(0, rows, as_words(done))


def group(requests: Requests, height: int, width: int, rendering: Rendering) -> list[Group]:
    """Sort the requests of a batch by kernel. Everything happens on the host; nothing of an image is read."""
    order = np.argsort(requests.op.astype(np.uint8), kind="stable")
    ends = np.cumsum(np.bincount(requests.op, minlength=len(Op))).tolist()
    value = requests.value[order]

    def span(first: Op, last: Op | None = None) -> slice:
        return slice(ends[first - 1], ends[last or first])

    geometry = {op: span(op) for op in (Op.SHEAR_X, Op.SHEAR_Y, Op.TRANSLATE_X, Op.TRANSLATE_Y, Op.ROTATE)}
    groups = _affine_groups(order, value, geometry, height, width, rendering)
    value[span(Op.INVERT)] = 0.0  # to invert is to solarize from 0 on
    bright, add, poster = span(Op.INVERT, Op.SOLARIZE), span(Op.SOLARIZE_ADD), span(Op.POSTERIZE)
    groups.append(Group(point.solarize, order[bright], (np.ceil(value[bright]).astype(np.int16),)))
    groups.append(Group(point.solarize_add, order[add], (value[add].astype(np.int16),)))
    groups.append(Group(point.posterize, order[poster], (_mask(value[poster]),)))
    counts = [ends[op] - ends[op - 1] for op in _ENHANCEMENTS]
    enhanced = span(Op.BRIGHTNESS, Op.SHARPNESS)
    kernel = partial(point.enhance, counts=counts)
    groups.append(Group(kernel, order[enhanced], (value[enhanced].astype(np.float32),)))
    groups.append(Group(point.autocontrast, order[span(Op.AUTOCONTRAST)]))
    groups.append(Group(point.equalize, order[span(Op.EQUALIZE)]))
    if ends[Op.CUTOUT] > ends[Op.CUTOUT - 1]:
        cut = span(Op.CUTOUT)
        groups.append(_cutout_group(order[cut], value[cut], requests.place[order[cut]], height, width, rendering))
    return [g for g in groups if len(g.rows)]


def _mask(bits: np.ndarray) -> np.ndarray:
    """The highest bits of a byte, 0 to 8 of them: uint8 [n]."""
    return (256 - (1 << (8 - bits.astype(np.int64)))).astype(np.uint8)


def _affine_groups(
    order: np.ndarray, value: np.ndarray, spans: dict[Op, slice], height: int, width: int, rendering: Rendering
) -> list[Group]:
    values = {op: value[span] for op, span in spans.items()}
    matrices: tuple[tuple[Op, Resampling, np.ndarray], ...] = (
        (Op.SHEAR_X, rendering.shear, affine.shear_x(values[Op.SHEAR_X])),
        (Op.SHEAR_Y, rendering.shear, affine.shear_y(values[Op.SHEAR_Y])),
        (Op.TRANSLATE_X, rendering.translate, affine.translate_x(values[Op.TRANSLATE_X] * width)),
        (Op.TRANSLATE_Y, rendering.translate, affine.translate_y(values[Op.TRANSLATE_Y] * height)),
        (Op.ROTATE, rendering.rotate, affine.rotate(values[Op.ROTATE], height, width)),
    )
    fill = word_of(rendering.fill)
    groups = []
    for resampling in ("nearest", "bicubic"):
        chosen = [(order[spans[op]], matrix) for op, how, matrix in matrices if how == resampling]
        if not chosen:
            continue
        rows, matrix = np.concatenate([r for r, _ in chosen]), np.concatenate([m for _, m in chosen])
        if resampling == "nearest":
            groups.append(Group(partial(affine.nearest, fill=fill), rows, (affine.fixed_point(matrix),)))
        else:
            groups.append(Group(partial(affine.bicubic, fill=fill), rows, (matrix,)))
    return groups


def _cutout_group(
    rows: np.ndarray, value: np.ndarray, place: np.ndarray, height: int, width: int, rendering: Rendering
) -> Group:
    """Squares about a random centre; the part of a square outside the image is lost."""
    half = np.floor(value * width)[:, None]
    corner = np.floor(place * np.array([height, width])) - half
    boxes = np.concatenate([corner, 2 * half, 2 * half], -1).astype(np.int64)
    fill = word_of(rendering.fill)

    def cutout(images: Tensor, boxes: Tensor) -> Tensor:
        hole = inside(boxes, height, width).view(len(images), -1)
        return as_images(as_words(images).masked_fill(hole, fill), height, width)

    return Group(cutout, rows, (boxes,))
