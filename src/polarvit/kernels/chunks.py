"""Rows of any width as chunks of LANES columns, for kernels whose rows are tokens.

The compiler lays the columns of a tile over the lanes of a warp first, four to a lane, then its rows. A tile of 32
columns keeps a row with eight lanes of one warp: its sums are three shuffles without shared memory, and what is
computed once for a row is repeated by eight lanes instead of 32. A wider row is a tuple of such tiles, and no lane
idles where LANES divides the width: 192 is 6 x 32, while the next power of two would waste a quarter.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl


@triton.jit
def chunk_columns(index: tl.constexpr, LANES: tl.constexpr):
    return index * LANES + tl.arange(0, LANES)


@triton.jit
def chunk_mask(valid, columns, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """Rows that exist, columns that do: the latter are left out where all do."""
    mask = valid[:, None]
    if WIDTH % LANES:
        mask = mask & (columns < WIDTH)[None, :]
    return mask


@triton.jit
def load_chunk(pointer, rows, valid, columns, STRIDE: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """A chunk [rows, LANES] of a matrix; zeros outside."""
    mask = chunk_mask(valid, columns, WIDTH, LANES)
    return tl.load(pointer + rows[:, None] * STRIDE + columns[None, :], mask=mask, other=0.0)


@triton.jit
def store_chunk(pointer, rows, valid, columns, value, STRIDE: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr):
    mask = chunk_mask(valid, columns, WIDTH, LANES)
    tl.store(pointer + rows[:, None] * STRIDE + columns[None, :], value, mask=mask)


@triton.jit
def load_columns(pointer, columns, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """A chunk [LANES] of a vector; zeros outside."""
    if WIDTH % LANES:
        return tl.load(pointer + columns, mask=columns < WIDTH, other=0.0)
    else:
        return tl.load(pointer + columns)


@triton.jit
def store_columns(pointer, columns, value, WIDTH: tl.constexpr, LANES: tl.constexpr):
    tl.store(pointer + columns, value, mask=columns < WIDTH)


@triton.jit
def zero_chunks(ROWS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """A row of zeros for accumulation."""
    chunks = ()
    for _ in tl.static_range((WIDTH + LANES - 1) // LANES):
        chunks = chunks + (tl.zeros([ROWS, LANES], tl.float32),)
    return chunks


@triton.jit
def add_three(a, b, c, d, e, f):
    return a + d, b + e, c + f


@triton.jit
def sum_three(a, b, c):
    """Sums over the rows of three tiles or vectors, with one exchange between warps instead of three."""
    return tl.reduce((a, b, c), 0, add_three)


@triton.jit
def sum_columns(chunks, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """Sums over all rows, [LANES] for each chunk."""
    COUNT: tl.constexpr = (WIDTH + LANES - 1) // LANES
    sums = ()
    for i in tl.static_range(0, COUNT - COUNT % 3, 3):
        sums = sums + sum_three(chunks[i], chunks[i + 1], chunks[i + 2])
    for i in tl.static_range(COUNT - COUNT % 3, COUNT):
        sums = sums + (tl.sum(chunks[i], 0),)
    return sums
