"""Wide heads whose points lie within radius 8: what points bring to the kernels of `near_forward` and `near_backward`.

Tiles of pairs are products on the tensor cores here. Chords, and with them distances, come from
`products.half_squared_chords`, so that a pair costs a hundred instructions and not some for every coordinate. Up to
a + b = 16 nothing overflows, and

    sinh^2(D/2) = sinh^2((a-b)/2) + 1/4 sinh a sinh b |u-v|^2

needs no scaling. A head that reaches farther is left to `wide` and `backward`, which leave near heads alone:
`products.attention_reach_kernel` decides for all of them, on the device.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import (
    LN2,
    LOG2E,
    asinh_series,
    fast_exp2,
    fast_log2,
    fast_rsqrt,
    sinh_series,
)
from polarvit.kernels.attention.products import halves, pieces
from polarvit.kernels.attention.tiles import SMALLEST, get_inside

ROW_TERMS = tl.constexpr(7)


@triton.jit
def directions(x, points, COUNT, WIDTH: tl.constexpr, PAD: tl.constexpr):
    """Directions [PAD, points], zeros beyond WIDTH dimensions and beyond COUNT points.

    Points past the last are masked and not clamped: where a place is a minimum, the compiler no longer sees that
    neighbours in memory belong to neighbouring threads, and lets the threads of a warp read 32 dimensions.
    """
    dims = tl.arange(0, PAD)
    inside = (points < COUNT)[None, :]
    if WIDTH != PAD:
        inside = inside & (dims < WIDTH)[:, None]
    return tl.load(x + dims[:, None] * COUNT + points[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def offsets(x, origin, points, COUNT, WIDTH: tl.constexpr, PAD: tl.constexpr):
    """`directions` less the first one at `origin`; what lies beyond is finite and means nothing."""
    centre = get_inside(origin, tl.arange(0, PAD) < WIDTH, WIDTH == PAD)
    return directions(x, points, COUNT, WIDTH, PAD) - centre[:, None]


@triton.jit
def hyperbolic(radius):
    """e^(a/2), e^(-a/2), sinh a and cosh a for a <= 16."""
    up, down = fast_exp2(radius * (0.5 * LOG2E)), fast_exp2(radius * (-0.5 * LOG2E))
    sinh = tl.where(radius < 1.0, sinh_series(radius), 0.5 * (up * up - down * down))
    return up, down, sinh, 0.5 * (up * up + down * down)


@triton.jit
def gaps(difference, one, two):
    """sinh((a-b)/2) and sinh(a-b) from a - b, e^((a-b)/2) and e^((b-a)/2)."""
    gap = 0.5 * difference
    y = gap * gap
    half = tl.where(y < 0.0625, gap + gap * y * (1.0 / 6.0 + y * (1.0 / 120.0)), 0.5 * (one - two))
    return half, half * (one + two)


@triton.jit
def half_distance(s):
    """D/2, 1/sinh(D/2) and 1/cosh(D/2) from s = sinh^2(D/2)."""
    inverse_s, inverse_c = fast_rsqrt(tl.maximum(s, SMALLEST)), fast_rsqrt(1.0 + s)
    root = s * inverse_s
    far = LN2 * fast_log2(root + (1.0 + s) * inverse_c)
    return tl.where(s < 0.25, asinh_series(root, s), far), inverse_s, inverse_c


@triton.jit
def load_three(pointer, step):
    return tl.load(pointer), tl.load(pointer + step), tl.load(pointer + 2 * step)


@triton.jit
def store_three(pointer, step, first, second, third, inside):
    tl.store(pointer, first, mask=inside)
    tl.store(pointer + step, second, mask=inside)
    tl.store(pointer + 2 * step, third, mask=inside)


@triton.jit
def near_split_kernel(
    x, origin, squares, split, COUNT, STEP, PLACES,
    WIDTH: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """Offsets of points from the first one at `origin` in `pieces`: [3, PLACES, PAD], points first, and [3, PLACES].

    PLACES are the points and what fills up the last tile, which means nothing. STEP is COUNT of the tensor at `origin`.
    SIDE, unless 0, is both, known to the compiler: where it is a multiple of four, so many points are loaded at once.
    """
    if SIDE > 0:
        COUNT = SIDE
        STEP = SIDE
    head = tl.program_id(0).to(tl.int64)
    point, dims = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, PAD)
    away = offsets(x + head * WIDTH * COUNT, origin + head * WIDTH * STEP + dims * STEP, point, COUNT, WIDTH, PAD)
    first, second, third, a, b, c = pieces(away)
    kept = point < PLACES
    store_three(squares + head * 3 * PLACES + point, PLACES, a, b, c, kept)
    spot, inside = head * 3 * PLACES * PAD + point[None, :] * PAD + dims[:, None], kept[None, :]
    store_three(split + spot, PLACES * PAD, first, second, third, inside)


@triton.jit
def near_rows_kernel(
    query_radius, value, out, turned, terms, rows, split, N, M, LINES,
    WIDTH: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """For each row, of which there are LINES with those that fill up a tile: t.uhat, a power of two above t,
    g/2 (1 + rho), by which chords to the centroid are weighted, a, and `terms`. And t over its power of two in
    `halves`: [2, LINES, PAD], points first.
    """
    if SIDE > 0:
        N = SIDE
        M = SIDE
    head = tl.program_id(0).to(tl.int64)
    line, dims = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, PAD)
    spots, kept = tl.minimum(line, N - 1), line < LINES
    away = offsets(out + head * WIDTH * N, value + head * WIDTH * M + dims * M, line, N, WIDTH, PAD)
    t = directions(turned + head * WIDTH * N, line, N, WIDTH, PAD)
    size = tl.max(tl.abs(t), 0)
    exponent = tl.minimum(tl.maximum((size.to(tl.int32, bitcast=True) >> 23) + 1, 1), 253)  # of the next power of two
    flat, grown, shift = load_three(terms + head * 3 * N + spots, N)
    shift = tl.where(line < N, shift, 1e38)  # no weight where there is no row
    rows += head * ROW_TERMS * LINES + line
    power, down = (exponent << 23).to(tl.float32, bitcast=True), ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    store_three(rows, LINES, tl.sum(t * away, 0), power, flat + grown, kept)
    store_three(rows + 3 * LINES, LINES, flat, grown, shift, kept)
    tl.store(rows + 6 * LINES, tl.load(query_radius + head * N + spots).to(tl.float32), mask=kept)
    high, low = halves(t * down[None, :])
    spot, inside = head * 2 * LINES * PAD + line[None, :] * PAD + dims[:, None], kept[None, :]
    tl.store(split + spot, high, mask=inside)
    tl.store(split + LINES * PAD + spot, low, mask=inside)
