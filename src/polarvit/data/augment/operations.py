"""The operations a policy may ask for, and how a batch of mixed requests is carried out.

What each image gets is drawn on the host (`policies`), so the host knows which images ask for what: it
sorts them into groups, one for each kernel, and each kernel runs once on its group. No image is computed
for nothing, and the device is never asked anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import torch
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


_PLAIN: dict[Op, Callable[[Tensor], Tensor]] = {
    Op.INVERT: point.invert,
    Op.AUTOCONTRAST: point.autocontrast,
    Op.EQUALIZE: point.equalize,
}
_WITH_VALUE: dict[Op, Callable[[Tensor, Tensor], Tensor]] = {
    Op.SOLARIZE: point.solarize,
    Op.SOLARIZE_ADD: point.solarize_add,
    Op.POSTERIZE: point.posterize,
    Op.BRIGHTNESS: point.brightness,
    Op.CONTRAST: point.contrast,
    Op.COLOR: point.color,
    Op.SHARPNESS: point.sharpness,
}


@dataclass(frozen=True)
class Rendering:
    """What the operations leave open: how geometry is resampled and which colour appears from outside."""

    shear: Resampling = "bicubic"
    translate: Resampling = "nearest"
    rotate: Resampling = "nearest"
    fill: tuple[int, int, int] = (128, 128, 128)


@dataclass
class Requests:
    """One operation for each of n images, all on the host."""

    op: Tensor  #: int64 [n], values of Op
    value: Tensor  #: float64 [n]
    place: Tensor = field(default_factory=lambda: torch.empty(0, 2))  #: float64 [n, 2]: centre of a cutout in [0, 1)


@dataclass
class Group:
    """Images that ask for one kernel: their rows int64 [g] and the kernel's parameters [g, ...]."""

    kernel: Callable[..., Tensor]
    rows: Tensor
    parameters: Tensor | None = None

    def run(self, images: Tensor) -> None:
        """Replace the group's rows of images uint8 [n, H, W, 4]."""
        chosen = images.index_select(0, self.rows)
        done = self.kernel(chosen) if self.parameters is None else self.kernel(chosen, self.parameters)
        as_words(images).index_copy_(0, self.rows, as_words(done))


def group(requests: Requests, height: int, width: int, rendering: Rendering) -> list[Group]:
    """Sort the requests of a batch by kernel. Everything happens on the host; nothing of an image is read."""
    rows: dict[Op, Tensor] = {op: torch.nonzero(requests.op == int(op))[:, 0] for op in Op}
    groups = [Group(kernel, rows[op]) for op, kernel in _PLAIN.items()]
    groups += [Group(kernel, rows[op], requests.value[rows[op]]) for op, kernel in _WITH_VALUE.items()]
    groups += _affine_groups(requests, rows, height, width, rendering)
    if len(rows[Op.CUTOUT]):
        groups.append(_cutout_group(requests, rows[Op.CUTOUT], height, width, rendering))
    return [g for g in groups if len(g.rows)]


def _affine_groups(
    requests: Requests, rows: dict[Op, Tensor], height: int, width: int, rendering: Rendering
) -> list[Group]:
    value = {op: requests.value[where] for op, where in rows.items()}
    across, down = value[Op.TRANSLATE_X] * width, value[Op.TRANSLATE_Y] * height
    matrices: Sequence[tuple[Op, Resampling, Tensor]] = (
        (Op.SHEAR_X, rendering.shear, affine.shear_x(value[Op.SHEAR_X])),
        (Op.SHEAR_Y, rendering.shear, affine.shear_y(value[Op.SHEAR_Y])),
        (Op.TRANSLATE_X, rendering.translate, affine.translate(across, torch.zeros_like(across))),
        (Op.TRANSLATE_Y, rendering.translate, affine.translate(torch.zeros_like(down), down)),
        (Op.ROTATE, rendering.rotate, affine.rotate(value[Op.ROTATE], height, width)),
    )
    fill = word_of(rendering.fill)
    groups = []
    for resampling in ("nearest", "bicubic"):
        chosen = [(rows[op], matrix) for op, how, matrix in matrices if how == resampling]
        if not chosen:
            continue
        where, matrix = torch.cat([r for r, _ in chosen]), torch.cat([m for _, m in chosen])
        if resampling == "nearest":
            groups.append(Group(lambda x, m: affine.nearest(x, m, fill), where, affine.fixed_point(matrix)))
        else:
            groups.append(Group(lambda x, m: affine.bicubic(x, m, fill), where, matrix))
    return groups


def _cutout_group(requests: Requests, rows: Tensor, height: int, width: int, rendering: Rendering) -> Group:
    """Squares about a random centre; the part of a square outside the image is lost."""
    half = (requests.value[rows] * width).floor()
    centre = (requests.place[rows] * torch.tensor([height, width])).floor()
    corner = centre - half[:, None]
    boxes = torch.cat([corner, (2 * half)[:, None].expand(-1, 2)], -1).to(torch.int64)
    fill = word_of(rendering.fill)

    def cutout(images: Tensor, boxes: Tensor) -> Tensor:
        hole = inside(boxes, height, width).view(len(images), -1)
        return as_images(as_words(images).masked_fill(hole, fill), height, width)

    return Group(cutout, rows, boxes)
