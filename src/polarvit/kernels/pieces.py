"""Rows of any width as tiles without idle lanes, for kernels whose rows are tokens.

A tile is [rows, chunks, LANES]: LANES columns lie over the lanes of a warp, four to a lane, then rows over lanes and
warps; the chunks of a row stay in the registers of a thread. With 32 columns a row belongs to eight lanes of one warp:
its sums are additions and three shuffles, without shared memory, and what is computed once for a row is repeated by
eight lanes instead of 32. A sum over rows crosses warps once for all columns.

A width is PIECES such tiles of HEIGHT chunks: 192 = 3 x 2 x 32, where the next power of two would waste a quarter. A
kernel walks over the pieces with `tl.static_range`; those of a row that it keeps are a tuple.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl


def lanes(width: int) -> int:
    """At most six chunks, so that a row's numbers stay in registers; down to 32, 128 bytes, which memory likes."""
    return min(triton.next_power_of_2(width), max(32, triton.next_power_of_2(triton.cdiv(width, 6))))


def pieces(width: int, lanes: int) -> dict[str, int]:
    """LANES, HEIGHT and PIECES of a kernel that takes whole rows: as few pieces as can be, no more than six."""
    chunks = triton.cdiv(width, lanes)
    height = max(triton.next_power_of_2(triton.cdiv(chunks, 6)), chunks & -chunks)
    return {"LANES": lanes, "HEIGHT": height, "PIECES": triton.cdiv(chunks, height)}


@triton.jit
def piece_columns(i: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr):
    """Column numbers [HEIGHT, LANES] of piece i."""
    return (i * HEIGHT + tl.arange(0, HEIGHT))[:, None] * LANES + tl.arange(0, LANES)[None, :]


@triton.jit
def per_row(x):
    """A number for each row, as a tile. In the order of `fold`: a row's sum comes back without a change of layout."""
    return x[:, None][:, None, :]


@triton.jit
def piece_places(rows, columns, STRIDE: tl.constexpr, LANES: tl.constexpr):
    """Offsets of a tile, in rows STRIDE apart; with STRIDE 0 all are the same row.

    Rows are called contiguous: the compiler lays out the most contiguous dimension first. Columns are by fours: it
    would give a thread eight of bfloat16, and then move them to meet float32. In the second case the term of the rows
    is 0, but in a form that the compiler does not drop before it has read this.
    """
    if STRIDE == 0:
        start = per_row(rows // 65536) * 16
    else:
        start = per_row(rows) * STRIDE
    FOURS: tl.constexpr = 4 if LANES > 4 else LANES
    return tl.max_contiguous(start + columns[None, :, :], (2, 1, FOURS))


@triton.jit
def piece_mask(valid, columns, WIDTH: tl.constexpr, EXACT: tl.constexpr):
    """Rows that exist and, unless EXACT says all do, columns that do."""
    mask = per_row(valid)
    if not EXACT:
        mask = mask & (columns < WIDTH)[None, :, :]
    return mask


@triton.jit
def load_piece(
    pointer, rows, valid, columns, STRIDE: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, EXACT: tl.constexpr
):
    """A tile, as float32, of a matrix whose rows are STRIDE apart; zeros outside."""
    places = piece_places(rows, columns, STRIDE, LANES)
    return tl.load(pointer + places, mask=piece_mask(valid, columns, WIDTH, EXACT), other=0.0).to(tl.float32)


@triton.jit
def load_rows(
    pointer, rows, valid, WIDTH: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr
):
    """All pieces of some rows of length WIDTH."""
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    tiles = ()
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        tiles = tiles + (load_piece(pointer, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT),)
    return tiles


@triton.jit
def store_piece(
    pointer, rows, valid, columns, value,
    STRIDE: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    places = piece_places(rows, columns, STRIDE, LANES)
    tl.store(pointer + places, value, mask=piece_mask(valid, columns, WIDTH, EXACT))


@triton.jit
def fold(tile):
    """Sums [rows, LANES] over the chunks of a tile, within a thread; the sum of a row is `tl.sum(folds, 1)`."""
    return tl.sum(tile, 1)


@triton.jit
def add_two(a, b, c, d):
    return a + c, b + d


@triton.jit
def sum_two(a, b):
    """Sums over the rows of two tensors, with one exchange between warps."""
    return tl.reduce((a, b), 0, add_two)


@triton.jit
def add_three(a, b, c, d, e, f):
    return a + d, b + e, c + f


@triton.jit
def sum_three(a, b, c):
    """Sums over the rows of three tensors, with one exchange between warps."""
    return tl.reduce((a, b, c), 0, add_three)


@triton.jit
def sum_columns(tiles, PIECES: tl.constexpr):
    """Sums [HEIGHT, LANES] over the rows of each piece."""
    sums = ()
    for i in tl.static_range(0, PIECES - PIECES % 3, 3):
        sums = sums + sum_three(tiles[i], tiles[i + 1], tiles[i + 2])
    for i in tl.static_range(PIECES - PIECES % 3, PIECES):
        sums = sums + (tl.sum(tiles[i], 0),)
    return sums
