"""The kernels as PyTorch operators, with the names and meanings of `steps` and `rule`: launches and shapes."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from polarvit.kernels.images import triton_finish, triton_norm, triton_small
from polarvit.kernels.outputs import new_output
from polarvit.kernels.sums import row_length, sum_rows

NUMBERS, WARPS, PROGRAMS = 1024, 4, 1024
"""Of a tile; of a program (twice as many where registers would not do); and how many programs there are at most where
each adds something up."""


class Grid(NamedTuple):
    """How rows are dealt out."""

    block: int
    turns: int
    programs: int


def grid(rows: int, pad: int, most: int | None = None) -> Grid:
    """Blocks of rows for programs, of which there are at most `most`: each takes as many turns as needed."""
    block = max(1, NUMBERS // pad)
    blocks = triton.cdiv(rows, block)
    turns = 1 if most is None else triton.cdiv(blocks, most)
    return Grid(block, turns, triton.cdiv(blocks, turns))


def pad_of(u: Tensor) -> int:
    return triton.next_power_of_2(u.shape[1])


@torch.library.custom_op("polarvit::image_centroid", mutates_args=())
def centroid(a: Tensor, u: Tensor, largest: Tensor, t: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The centroid (b, v) of one process, and |V|, ln(T - |V|), ln(T + |V|) after division by e^t."""
    width = u.shape[1]
    b, v, facts = (new_output(shape, u) for shape in ((), (width,), (3,)))
    means = _centroid_sums(a, u, largest, t, c)
    triton_small.centroid_kernel[(1,)](means, largest, t, c, b, v, facts, WIDTH=width, PAD=pad_of(u), num_warps=1)
    return b, v, facts


@centroid.register_fake
def _(a: Tensor, u: Tensor, largest: Tensor, t: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return new_output((), u), new_output((u.shape[1],), u), new_output((3,), u)


def _centroid_sums(a: Tensor, u: Tensor, largest: Tensor, t: Tensor, c: Tensor) -> Tensor:
    (rows, width), pad = u.shape, pad_of(u)
    deal = grid(rows, pad, PROGRAMS)
    partials = new_output((deal.programs, width + 3), u, torch.float64)
    triton_norm.centroid_sums_kernel[(deal.programs,)](
        a, u, largest, t, c, partials, rows, width + 3,
        WIDTH=width, PAD=pad, BLOCK=deal.block, TURNS=deal.turns, num_warps=WARPS,
    )  # fmt: skip
    return partials.sum(0) / rows


@torch.library.custom_op("polarvit::image_remember", mutates_args=())
def remember(
    old: Tensor, spread: Tensor, b: Tensor, v: Tensor, s: Tensor, root: Tensor, momentum: float
) -> tuple[Tensor, Tensor]:
    new_mean, new_spread = new_output((len(old),), old), new_output((), old)
    triton_small.remember_kernel[(1,)](
        old, spread, b, v, s, root, new_mean, new_spread, momentum,
        WIDTH=len(old), PAD=triton.next_power_of_2(len(old)), num_warps=1,
    )  # fmt: skip
    return new_mean, new_spread


@remember.register_fake
def _(
    old: Tensor, spread: Tensor, b: Tensor, v: Tensor, s: Tensor, root: Tensor, momentum: float
) -> tuple[Tensor, Tensor]:
    return new_output((old.shape[0],), old), new_output((), old)


@torch.library.custom_op("polarvit::image_shared_backward", mutates_args=())
def shared_backward(
    sums: Tensor,
    slopes: Tensor,
    v: Tensor,
    f: Tensor,
    gain: Tensor,
    root: Tensor,
    s: Tensor,
    t: Tensor,
    facts: Tensor,
    eps: float,
    rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    width = len(v)
    scalars, g, tail = (new_output(shape, v) for shape in ((5,), (width,), (2,)))
    triton_small.shared_backward_kernel[(1,)](
        sums, slopes, v, f, gain, root, s, t, facts, scalars, g, tail, eps, 1 / rows,
        WIDTH=width, PAD=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
    return scalars, g, tail


@shared_backward.register_fake
def _(
    sums: Tensor,
    slopes: Tensor,
    v: Tensor,
    f: Tensor,
    gain: Tensor,
    root: Tensor,
    s: Tensor,
    t: Tensor,
    facts: Tensor,
    eps: float,
    rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    return new_output((5,), v), new_output((v.shape[0],), v), new_output((2,), v)


@torch.library.custom_op("polarvit::image_distance_sum", mutates_args=())
def distance_sum(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return _distances(a, u, b, v, slopes=False)


@distance_sum.register_fake
def _(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return new_output((1,), u)


@torch.library.custom_op("polarvit::image_distance_slopes", mutates_args=())
def distance_slopes(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return _distances(a, u, b, v, slopes=True)


@distance_slopes.register_fake
def _(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return new_output((1 + u.shape[1],), u)


def _distances(a: Tensor, u: Tensor, b: Tensor, v: Tensor, *, slopes: bool) -> Tensor:
    (rows, width), pad = u.shape, pad_of(u)
    deal = grid(rows, pad, PROGRAMS)
    length = 1 + width if slopes else 1
    columns = row_length(length)
    partials = new_output((deal.programs, columns), u)
    triton_norm.distance_kernel[(deal.programs,)](
        a, u, b, v, partials, rows, columns,
        WIDTH=width, PAD=pad, BLOCK=deal.block, TURNS=deal.turns, SLOPES=slopes, num_warps=WARPS,
    )  # fmt: skip
    return sum_rows(partials, length)


@torch.library.custom_op("polarvit::image_normalised", mutates_args=())
def normalised(
    a: Tensor, u: Tensor, b: Tensor, v: Tensor, f: Tensor, c: Tensor, e: Tensor, relu: bool
) -> tuple[Tensor, Tensor]:
    (rows, width), pad = u.shape, pad_of(u)
    deal = grid(rows, pad)
    radius, direction = new_output((rows,), u), new_output((rows, width), u)
    triton_norm.normalise_kernel[(deal.programs,)](
        a, u, b, v, f, c, e, radius, direction, rows,
        WIDTH=width, PAD=pad, BLOCK=deal.block, RELU=relu, num_warps=WARPS,
    )  # fmt: skip
    return radius, direction


@normalised.register_fake
def _(a: Tensor, u: Tensor, b: Tensor, v: Tensor, f: Tensor, c: Tensor, e: Tensor, relu: bool) -> tuple[Tensor, Tensor]:
    return new_output((u.shape[0],), u), new_output((u.shape[0], u.shape[1]), u)


@torch.library.custom_op("polarvit::image_normalised_backward", mutates_args=())
def normalised_backward(
    a: Tensor,
    u: Tensor,
    b: Tensor,
    v: Tensor,
    f: Tensor,
    c: Tensor,
    e: Tensor,
    grad_radius: Tensor,
    grad_direction: Tensor,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    (rows, width), pad = u.shape, pad_of(u)
    deal, columns = grid(rows, pad, PROGRAMS), row_length(3 + 2 * width)
    to_a, to_u = new_output((rows,), u), new_output((rows, width), u)
    partials = new_output((deal.programs, columns), u)
    triton_norm.normalise_backward_kernel[(deal.programs,)](
        a, u, b, v, f, c, e, grad_radius.contiguous(), grad_direction.contiguous(), to_a, to_u, partials, rows, columns,
        WIDTH=width, PAD=pad, BLOCK=deal.block, TURNS=deal.turns, RELU=relu, num_warps=2 * WARPS,
    )  # fmt: skip
    return to_a, to_u, sum_rows(partials, 3 + 2 * width)


@normalised_backward.register_fake
def _(
    a: Tensor,
    u: Tensor,
    b: Tensor,
    v: Tensor,
    f: Tensor,
    c: Tensor,
    e: Tensor,
    grad_radius: Tensor,
    grad_direction: Tensor,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, width = u.shape
    return new_output((rows,), u), new_output((rows, width), u), new_output((3 + 2 * width,), u)


@torch.library.custom_op("polarvit::image_statistics_backward", mutates_args=())
def statistics_backward(
    a: Tensor, u: Tensor, b: Tensor, v: Tensor, scalars: Tensor, g: Tensor, to_a: Tensor, to_u: Tensor
) -> tuple[Tensor, Tensor]:
    (rows, width), pad = u.shape, pad_of(u)
    deal = grid(rows, pad)
    out_a, out_u = new_output((rows,), u), new_output((rows, width), u)
    triton_norm.statistics_backward_kernel[(deal.programs,)](
        a, u, b, v, scalars, g, to_a, to_u, out_a, out_u, rows,
        WIDTH=width, PAD=pad, BLOCK=deal.block, num_warps=WARPS,
    )  # fmt: skip
    return out_a, out_u


@statistics_backward.register_fake
def _(
    a: Tensor, u: Tensor, b: Tensor, v: Tensor, scalars: Tensor, g: Tensor, to_a: Tensor, to_u: Tensor
) -> tuple[Tensor, Tensor]:
    return new_output((u.shape[0],), u), new_output((u.shape[0], u.shape[1]), u)


@torch.library.custom_op("polarvit::image_finish", mutates_args=())
def finish(
    y: Tensor, square: Tensor, t: Tensor, w: Tensor, beta: Tensor, slope: Tensor, phi0: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Radius, direction and |h| of rows; t [images] holds for equally many rows each."""
    (rows, stride), width = y.shape, w.shape[0]
    pad = triton.next_power_of_2(width)
    deal = grid(rows, pad)
    radius, direction, norm = (new_output(shape, y) for shape in ((rows,), (rows, width), (rows,)))
    triton_finish.finish_kernel[(deal.programs,)](
        y, square, t, w, beta, slope, phi0, radius, direction, norm, rows, rows // t.shape[0],
        WIDTH=width, STRIDE=stride, PAD=pad, BLOCK=deal.block, num_warps=WARPS,
    )  # fmt: skip
    return radius, direction, norm


@finish.register_fake
def _(
    y: Tensor, square: Tensor, t: Tensor, w: Tensor, beta: Tensor, slope: Tensor, phi0: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    rows, width = y.shape[0], w.shape[0]
    return new_output((rows,), y), new_output((rows, width), y), new_output((rows,), y)


@torch.library.custom_op("polarvit::image_finish_backward", mutates_args=())
def finish_backward(
    u: Tensor,
    radius: Tensor,
    norm: Tensor,
    last: Tensor,
    square: Tensor,
    t: Tensor,
    w: Tensor,
    beta: Tensor,
    slope: Tensor,
    grad_radius: Tensor,
    grad_direction: Tensor,
    stride: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of y and square, and in one vector [width + 3] those of w, beta, slope and phi0."""
    (rows, width), pad = u.shape, pad_of(u)
    deal, columns = grid(rows, pad, PROGRAMS), row_length(width + 3)
    to_y, to_square = new_output((rows, stride), u), new_output((rows,), u)
    partials = new_output((deal.programs, columns), u)
    triton_finish.finish_backward_kernel[(deal.programs,)](
        u, radius, norm, last, square, t, w, beta, slope, grad_radius.contiguous(), grad_direction.contiguous(),
        to_y, to_square, partials, rows, rows // t.shape[0], columns,
        WIDTH=width, STRIDE=stride, PAD=pad, EXTRA=triton.next_power_of_2(stride - width),
        BLOCK=deal.block, TURNS=deal.turns, num_warps=WARPS,
    )  # fmt: skip
    return to_y, to_square, sum_rows(partials, width + 3)


@finish_backward.register_fake
def _(
    u: Tensor,
    radius: Tensor,
    norm: Tensor,
    last: Tensor,
    square: Tensor,
    t: Tensor,
    w: Tensor,
    beta: Tensor,
    slope: Tensor,
    grad_radius: Tensor,
    grad_direction: Tensor,
    stride: int,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, width = u.shape
    return new_output((rows, stride), u), new_output((rows,), u), new_output((width + 3,), u)
