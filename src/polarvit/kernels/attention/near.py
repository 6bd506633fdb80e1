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
from polarvit.kernels.attention.products import half_squares, halves, pieces
from polarvit.kernels.attention.tiles import SMALLEST, get_inside

ROW_TERMS, COLUMN_TERMS = tl.constexpr(13), tl.constexpr(6)
ROW_PIECES = tl.constexpr(8)


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
def store_pieces(pointer, plane, x, points, kept, PAD: tl.constexpr):
    """x [PAD, points] in three float16, points first, each piece in a plane of its own."""
    first, second, third = pieces(x)
    spot, inside = points[None, :] * PAD + tl.arange(0, PAD)[:, None], kept[None, :]
    tl.store(pointer + spot, first, mask=inside)
    tl.store(pointer + plane + spot, second, mask=inside)
    tl.store(pointer + 2 * plane + spot, third, mask=inside)


@triton.jit
def near_rows_kernel(
    query_radius, query, key, value, out, turned, terms, rows, split, N, M, LINES,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """For each row, of which there are LINES with those that pad a tile: three parts of 1/2|q|^2 and of 1/2|uhat|^2 as
    offsets; t.uhat, a power of two above t, g/2 (1 + rho), by which chords to the centroid are weighted; a; `terms`.
    And q and uhat as offsets in three pieces, t over its power of two in `halves`: [8, LINES, PAD], the first thing
    that products read.
    """
    head = tl.program_id(0).to(tl.int64)
    line = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid, kept = line < N, line < LINES
    spots = tl.minimum(line, N - 1)
    query += head * WIDTH * N
    key += head * WIDTH * M
    value += head * VALUE_WIDTH * M
    out += head * VALUE_WIDTH * N
    turned += head * VALUE_WIDTH * N
    q1, q2, q3 = half_squares(query, key, spots, N, M, WIDTH)
    o1, o2, o3 = half_squares(out, value, spots, N, M, VALUE_WIDTH)
    product = tl.zeros([BLOCK], tl.float32)
    size = tl.zeros([BLOCK], tl.float32)
    for d in tl.range(0, VALUE_WIDTH, loop_unroll_factor=4):
        t = tl.load(turned + spots + d * N)
        product += t * (tl.load(out + spots + d * N) - tl.load(value + d * M).to(tl.float32))
        size = tl.maximum(size, tl.abs(t))
    exponent = tl.minimum(tl.maximum((size.to(tl.int32, bitcast=True) >> 23) + 1, 1), 253)  # of the next power of two
    terms += head * 3 * N + spots
    flat, grown, shift = load_three(terms, N)
    rows += head * ROW_TERMS * LINES + line
    store_three(rows, LINES, q1, q2, q3, kept)
    store_three(rows + 3 * LINES, LINES, o1, o2, o3, kept)
    power, pull = (exponent << 23).to(tl.float32, bitcast=True), flat + grown
    store_three(rows + 6 * LINES, LINES, product, power, pull, kept)
    tl.store(rows + 9 * LINES, tl.load(query_radius + head * N + spots).to(tl.float32), mask=kept)
    shift = tl.where(valid, shift, 1e38)  # no weight where there is no row
    store_three(rows + 10 * LINES, LINES, flat, grown, shift, kept)

    plane = LINES * PAD
    split += head * ROW_PIECES * plane
    store_pieces(split, plane, offsets(query, key + tl.arange(0, PAD) * M, line, N, WIDTH, PAD), line, kept, PAD)
    dims = tl.arange(0, VALUE_PAD)
    away = offsets(out, value + dims * M, line, N, VALUE_WIDTH, VALUE_PAD)
    store_pieces(split + 3 * plane, plane, away, line, kept, VALUE_PAD)
    down = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    high, low = halves(directions(turned, line, N, VALUE_WIDTH, VALUE_PAD) * down[None, :])
    spot, inside = line[None, :] * VALUE_PAD + dims[:, None], kept[None, :]
    tl.store(split + 6 * plane + spot, high, mask=inside)
    tl.store(split + 7 * plane + spot, low, mask=inside)


@triton.jit
def near_columns_kernel(
    key, value, columns, split, M, PLACES,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr, BLOCK: tl.constexpr,
    PIECES: tl.constexpr,
):  # fmt: skip
    """For each key: three parts of 1/2|k|^2 and of 1/2|u|^2 of its value, both as offsets.

    And the offsets themselves in three pieces, [PIECES, PLACES, PAD]: of keys if PIECES is 3, of values too if it is 6.
    """
    head = tl.program_id(0).to(tl.int64)
    edge = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid, kept = edge < M, edge < PLACES
    places = tl.minimum(edge, M - 1)
    key += head * WIDTH * M
    value += head * VALUE_WIDTH * M
    k1, k2, k3 = half_squares(key, key, places, M, M, WIDTH)
    w1, w2, w3 = half_squares(value, value, places, M, M, VALUE_WIDTH)
    columns += head * COLUMN_TERMS * M + edge
    store_three(columns, M, k1, k2, k3, valid)
    store_three(columns + 3 * M, M, w1, w2, w3, valid)
    plane = PLACES * PAD
    split += head * PIECES * plane
    k = offsets(key, key + tl.arange(0, PAD) * M, edge, M, WIDTH, PAD)
    store_pieces(split, plane, k, edge, kept, PAD)
    if PIECES == 6:
        w = offsets(value, value + tl.arange(0, VALUE_PAD) * M, edge, M, VALUE_WIDTH, VALUE_PAD)
        store_pieces(split + 3 * plane, plane, w, edge, kept, VALUE_PAD)
