"""How the kernels are launched: which of them a head's width asks for, tiles, programs, and what is allocated.

Nothing is read back from the device: a step that uses this can be captured in a CUDA graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from polarvit.kernels.attention.backward import attention_backward_kernel
from polarvit.kernels.attention.ends import attention_gather_kernel, attention_turn_kernel
from polarvit.kernels.attention.forward import attention_forward_kernel
from polarvit.kernels.attention.keys import ENTRIES, attention_pack_kernel
from polarvit.kernels.attention.near import ROW_TERMS, near_rows_kernel, near_split_kernel
from polarvit.kernels.attention.near_backward import ROW_SUMS, near_backward_kernel, near_gather_kernel
from polarvit.kernels.attention.near_forward import near_chords_kernel, near_forward_kernel
from polarvit.kernels.attention.products import attention_reach_kernel
from polarvit.kernels.attention.wide import value_chords_kernel, wide_forward_kernel
from polarvit.kernels.outputs import new_output
from polarvit.kernels.sums import sum_rows

Points = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""Radius and direction of queries, keys and values, contiguous, directions dimension first."""

WIDEST_WALK = 32
"""Heads up to here give each query a thread of its own forward; its numbers would not fit into registers beyond."""

LARGEST_CHUNK = 64
"""Dimensions that one product with a tile takes at most, backward: its result stays in registers."""

WIDEST_NEAR = 64
"""Heads wider than a walk and up to here have kernels for near points beside those for all others."""

PROGRAMS, FAR_PROGRAMS, MOST_PARTS = 1536, 512, 8
"""Backward, a head is divided among programs until there are so many in all, or so many copies of its gradients."""


@dataclass(frozen=True)
class Walk:
    """Queries of a program that gives each of them a thread, and its warps."""

    block: int
    warps: int


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a tile of pairs, warps, coordinates a turn of a loop takes, registers, tiles loaded ahead."""

    rows: int
    columns: int
    warps: int
    unroll: int = 16
    registers: int | None = None
    stages: int = 1

    def fits(self, n: int, m: int) -> bool:
        """Whether no tile reaches past the last row or column."""
        return n % self.rows == 0 and m % self.columns == 0

    def options(self) -> dict[str, Any]:
        """A warp is four rows by eight columns of threads, and warps are stacked."""
        return {
            "ROWS": self.rows, "COLUMNS": self.columns, "TQ": 4 * self.warps, "TK": 8, "UNROLL": self.unroll,
            **self.launch(),
        }  # fmt: skip

    def launch(self) -> dict[str, Any]:
        return {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}


NEAR_FORWARD, NEAR_BACKWARD = Tile(64, 32, 4, stages=2), Tile(16, 64, 4, stages=2)
"""Products on the tensor cores have 64 rows: queries forward, keys backward."""


def forward_walk(n: int) -> Walk:
    """Two queries a thread share the loads of a key."""
    return Walk(64, 1) if n > 32 else Walk(32, 1)


def forward_tile(n: int, width: int) -> Tile:
    """Sixteen pairs a thread, sixteen coordinates at a time."""
    return Tile(32, 32, 2)


def backward_tile(n: int, width: int) -> Tile:
    """Sixteen pairs a thread; tall tiles serve wide heads, whose keys they read half as often."""
    return Tile(64, 32, 4) if width > 32 and n > 32 else Tile(32, 32, 2)


def has_near(query: Tensor, value: Tensor) -> bool:
    """Whether these widths have kernels for near points."""
    widths = query.shape[2], value.shape[2]
    return min(widths) > WIDEST_WALK and max(widths) <= WIDEST_NEAR


def fitting(length: int, largest: int) -> int:
    """The smallest block of 16, 32 or 64 that holds `length`, or the largest allowed."""
    return next((size for size in (16, 32) if length <= size and size <= largest), largest)


def side(n: int, m: int) -> int:
    """The number of tokens where a kernel of its own for that number is worth while, else 0.

    It is for those of square images of up to 1,024 patches, with or without a class token.
    """
    square = n in (math.isqrt(n) ** 2, math.isqrt(n) ** 2 + 1)
    return n if n == m and n <= 1025 and square else 0


def padded(width: int, least: int = 1) -> int:
    """The power of two that holds `width`; a product needs at least 16."""
    return max(least, triton.next_power_of_2(width))


def packed_keys(key_radius: Tensor, key: Tensor, value_radius: Tensor, value: Tensor) -> Tensor:
    """A row for each key with all that queries ask of it."""
    (b, h, width, m), value_width = key.shape, value.shape[2]
    packed = new_output((b, h, m, width + value_width + ENTRIES.value), key)
    block = fitting(m, 64)
    attention_pack_kernel[(b * h, triton.cdiv(m, block))](
        key_radius, key, value_radius, value, packed, m,
        WIDTH=width, PAD=padded(width), VALUE_WIDTH=value_width, VALUE_PAD=padded(value_width), BLOCK=block,
        num_warps=2,
    )  # fmt: skip
    return packed


def value_chords(value: Tensor, columns: int, near: Tensor | None) -> Tensor:
    """Half the squared distances among the values of each block of `columns`."""
    b, h, width, m = value.shape
    blocks = triton.cdiv(m, columns)
    chords = new_output((b, h, blocks, columns, columns), value)
    value_chords_kernel[(b * h, blocks)](
        value, chords if near is None else near, chords, m, FAR=near is not None,
        WIDTH=width, COLUMNS=columns, TQ=8, TK=8, UNROLL=16, num_warps=2,
    )  # fmt: skip
    if near is not None:
        near_chords_kernel[(b * h, triton.cdiv(m, 64))](
            value, near, chords, m, VALUE_WIDTH=width, VALUE_PAD=padded(width, 16), COLUMNS=columns, SIZE=64,
            SIDE=side(m, m), num_warps=4,
        )  # fmt: skip
    return chords


def widths(query: Tensor, value: Tensor) -> dict[str, int]:
    """Dimensions of directions, and the powers of two that hold them."""
    width, value_width = query.shape[2], value.shape[2]
    return {
        "WIDTH": width, "PAD": padded(width, 16), "VALUE_WIDTH": value_width, "VALUE_PAD": padded(value_width, 16)
    }  # fmt: skip


def near_heads(points: Points) -> Tensor:
    """For each head whether it is near."""
    query_radius, _, key_radius, _, value_radius, _ = points
    b, h, n = query_radius.shape
    near = torch.empty((b * h,), dtype=torch.int32, device=query_radius.device)
    attention_reach_kernel[(b * h,)](query_radius, key_radius, value_radius, near, n, key_radius.shape[2], num_warps=2)
    return near


class Split(NamedTuple):
    """Points of near heads as products read them: squares [B, H, 3, places] and pieces [B, H, 3, places, PAD]."""

    squares: Tensor
    pieces: Tensor


def split(points: Tensor, origin: Tensor, places: int) -> Split:
    """Directions as offsets from the first one at `origin`, in pieces."""
    b, h, width, count = points.shape
    found = Split(
        new_output((b, h, 3, places), points), new_output((b, h, 3, places, padded(width, 16)), points, torch.float16)
    )
    near_split_kernel[(b * h, triton.cdiv(places, 32))](
        points, origin, *found, count, origin.shape[3], places,
        WIDTH=width, PAD=padded(width, 16), BLOCK=32, SIDE=side(count, origin.shape[3]), num_warps=4,
    )  # fmt: skip
    return found


def whole(count: int, block: int) -> int:
    """Points of whole blocks."""
    return block * triton.cdiv(count, block)


def forward(points: Points, scale: Tensor, mask: Tensor | None, outputs: tuple[Tensor, Tensor, Tensor]) -> None:
    """Radius and direction of the attended centroids, and the exponents of T+|V| of their rows."""
    query, value = points[1], points[5]
    (b, h, width, n), (value_width, m) = query.shape, value.shape[2:]
    attend = scale if mask is None else mask.view(torch.uint8)
    sizes: dict[str, Any] = {"WIDTH": width, "VALUE_WIDTH": value_width, "HAS_MASK": mask is not None}
    if max(width, value_width) <= WIDEST_WALK:
        walk = forward_walk(n)
        attention_forward_kernel[(b * h, triton.cdiv(n, walk.block))](
            *points[:2], packed_keys(*points[2:]), attend, scale, *outputs, h, n, m, 0,
            PAD=padded(width), VALUE_PAD=padded(value_width), BLOCK=walk.block, num_warps=walk.warps, num_stages=1,
            **sizes,
        )  # fmt: skip
        return
    tile, near = forward_tile(n, max(width, value_width)), None
    if has_near(query, value):
        near, places = near_heads(points), whole(m, tile.columns)
    chords = value_chords(value, tile.columns, near)
    wide_forward_kernel[(b * h, triton.cdiv(n, tile.rows))](
        *points, chords if near is None else near, chords, attend, scale, *outputs, h, n, m,
        VALUE_PAD=padded(value_width, 16), SIDE=side(n, m), EXACT=tile.fits(n, m), FAR=near is not None,
        **tile.options(), **sizes,
    )  # fmt: skip
    if near is not None:
        near_forward_kernel[(b * h, triton.cdiv(n, NEAR_FORWARD.rows))](
            *points, near, *split(points[3], points[3], places), chords, attend, scale, *outputs, h, n, m, places,
            HAS_MASK=mask is not None, ROWS=NEAR_FORWARD.rows, COLUMNS=tile.columns, SIDE=side(n, m),
            STAGES=NEAR_FORWARD.stages,
            **widths(query, value), **NEAR_FORWARD.launch(),
        )  # fmt: skip


def division(blocks: int, heads: int, programs: int) -> tuple[int, int]:
    """Programs for each head so that there are `programs` in all, at most MOST_PARTS, and blocks for each of them."""
    turns = triton.cdiv(blocks, min(blocks, MOST_PARTS, triton.cdiv(programs, heads)))
    return triton.cdiv(blocks, turns), turns


class Rows(NamedTuple):
    """The mask (or anything) and the scale; the attended directions; `turned` and `terms` of the turn kernel."""

    attend: Tensor
    scale: Tensor
    direction: Tensor
    turned: Tensor
    terms: Tensor


def backward_by_tiles(points: Points, rows: Rows, near: Tensor | None, gradients: list[Tensor]) -> Tensor:
    """Gradients by register tiles, of heads that are not `near`; returns what blocks add to the scale's."""
    (b, h, width, n), (value_width, m) = points[1].shape, points[5].shape[2:]
    tile = backward_tile(n, max(width, value_width))
    blocks = triton.cdiv(n, tile.rows)
    parts, turns = division(blocks, b * h, PROGRAMS if near is None else FAR_PROGRAMS)
    chunk = min(LARGEST_CHUNK, padded(max(width, value_width), 16))
    finish = parts == 1 and value_width <= chunk
    share = new_output((b * blocks, h), rows.scale)
    if near is not None:
        share.zero_()  # near heads leave theirs alone
    copies = gradients[2:] if parts == 1 else [new_output((parts, *x.shape), x) for x in points[2:]]
    attention_backward_kernel[(b * h, parts)](
        *points, *rows, share if near is None else near, *gradients[:2], *copies, share, h, n, m, turns,
        WIDTH=width, VALUE_WIDTH=value_width, HAS_MASK=rows.attend is not rows.scale, MANY=turns > 1, FINISH=finish,
        SIDE=side(n, m), EXACT=tile.fits(n, m), CHUNK=chunk, FAR=near is not None, **tile.options(),
    )  # fmt: skip
    if not finish:
        block = fitting(m, 32)
        attention_gather_kernel[(b * h, triton.cdiv(m, block))](
            share if near is None else near, *points[4:], *copies, *gradients[2:], parts, m, FAR=near is not None,
            WIDTH=width, PAD=padded(width), VALUE_WIDTH=value_width, VALUE_PAD=padded(value_width), BLOCK=block,
            num_warps=4,
        )  # fmt: skip
    return share


def backward_near(points: Points, rows: Rows, near: Tensor, gradients: list[Tensor]) -> Tensor:
    """Gradients of near heads, by products; returns what blocks add to the scale's."""
    _, query, _, key, _, value = points
    (b, h, width, n), m = query.shape, value.shape[3]
    sizes, tile = widths(query, value), NEAR_BACKWARD
    parts, turns = division(triton.cdiv(m, tile.columns), b * h, PROGRAMS)
    lines, places = whole(n, tile.rows), whole(m, tile.columns)
    of_rows = new_output((b, h, ROW_TERMS.value, lines), query)
    turned = new_output((b, h, 2, lines, sizes["VALUE_PAD"]), query, torch.float16)
    near_rows_kernel[(b * h, triton.cdiv(lines, 32))](
        points[0], value, rows.direction, rows.turned, rows.terms, of_rows, turned, n, m, lines,
        WIDTH=sizes["VALUE_WIDTH"], PAD=sizes["VALUE_PAD"], BLOCK=32, SIDE=side(n, m), num_warps=4,
    )  # fmt: skip
    row_sums, copies = new_output((parts, b, h, ROW_SUMS.value, n), query), new_output((parts, *query.shape), query)
    near_backward_kernel[(b * h, parts)](
        *points[2:], rows.attend, rows.scale, *split(query, key, lines), *split(key, key, places),
        *split(rows.direction, value, lines), *split(value, value, places), of_rows, turned, near, row_sums, copies,
        *gradients[2:], h, n, m, lines, places, turns,
        HAS_MASK=rows.attend is not rows.scale, MANY=turns > 1, SIDE=side(n, m),
        ROWS=tile.rows, COLUMNS=tile.columns, STAGES=tile.stages, **tile.launch(), **sizes,
    )  # fmt: skip
    blocks = triton.cdiv(n, 32)
    share = new_output((b * blocks, h), rows.scale)
    near_gather_kernel[(b * h, blocks)](
        near, rows.scale, query, key, row_sums, copies, *gradients[:2], share, h, n, m,
        PARTS=parts, WIDTH=width, PAD=padded(width, 16), BLOCK=32, SIDE=side(n, m), num_warps=4,
    )  # fmt: skip
    return share


def backward(
    points: Points,
    scale: Tensor,
    mask: Tensor | None,
    grads: tuple[Tensor, Tensor],
    outputs: tuple[Tensor, Tensor, Tensor],
) -> tuple[Tensor, ...]:
    """Gradients of points and scale."""
    query, value = points[1], points[5]
    (b, h, _, n), value_width = query.shape, value.shape[2]
    attend = scale if mask is None else mask.view(torch.uint8)
    turned, terms = new_output((b, h, value_width, n), query), new_output((b, h, 3, n), query)
    block = fitting(n, 64)
    attention_turn_kernel[(b * h, triton.cdiv(n, block))](
        *outputs, *(grad.contiguous() for grad in grads), turned, terms, n,
        WIDTH=value_width, PAD=padded(value_width), BLOCK=block, SIDE=side(n, n), num_warps=2,
    )  # fmt: skip
    rows = Rows(attend, scale, outputs[1], turned, terms)
    gradients = [new_output(tuple(x.shape), x) for x in points]
    if not has_near(query, value):
        return (*gradients, sum_rows(backward_by_tiles(points, rows, None, gradients)))
    near = near_heads(points)
    shares = [backward_by_tiles(points, rows, near, gradients), backward_near(points, rows, near, gradients)]
    return (*gradients, sum_rows(torch.cat(shares)))
