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
from polarvit.kernels.attention.products import half_squares
from polarvit.kernels.attention.tiles import SMALLEST, get_inside

ROW_TERMS, COLUMN_TERMS = tl.constexpr(10), tl.constexpr(6)


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
def near_rows_kernel(
    query, key, value, out, turned, terms, rows, N, M,
    WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """For each row: three parts of 1/2|q|^2 and of 1/2|uhat|^2 as offsets; t.uhat, a power of two above t,
    g/2 (1 + rho), by which chords to the centroid are weighted, and the inverse of that power.
    """
    head = tl.program_id(0).to(tl.int64)
    line = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = line < N
    spots = tl.minimum(line, N - 1)
    key += head * WIDTH * M
    value += head * VALUE_WIDTH * M
    out += head * VALUE_WIDTH * N
    turned += head * VALUE_WIDTH * N + spots
    q1, q2, q3 = half_squares(query + head * WIDTH * N, key, spots, N, M, WIDTH)
    o1, o2, o3 = half_squares(out, value, spots, N, M, VALUE_WIDTH)
    product = tl.zeros([BLOCK], tl.float32)
    size = tl.zeros([BLOCK], tl.float32)
    for d in tl.range(0, VALUE_WIDTH, loop_unroll_factor=4):
        t = tl.load(turned + d * N)
        product += t * (tl.load(out + spots + d * N) - tl.load(value + d * M).to(tl.float32))
        size = tl.maximum(size, tl.abs(t))
    exponent = tl.minimum(tl.maximum((size.to(tl.int32, bitcast=True) >> 23) + 1, 1), 253)  # of the next power of two
    terms += head * 3 * N + spots
    rows += head * ROW_TERMS * N + line
    store_three(rows, N, q1, q2, q3, valid)
    store_three(rows + 3 * N, N, o1, o2, o3, valid)
    tl.store(rows + 6 * N, product, mask=valid)
    tl.store(rows + 7 * N, (exponent << 23).to(tl.float32, bitcast=True), mask=valid)
    tl.store(rows + 8 * N, tl.load(terms) + tl.load(terms + N), mask=valid)
    tl.store(rows + 9 * N, ((254 - exponent) << 23).to(tl.float32, bitcast=True), mask=valid)


@triton.jit
def near_columns_kernel(key, value, columns, M, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """For each key: three parts of 1/2|k|^2 and of 1/2|u|^2 of its value, both as offsets."""
    head = tl.program_id(0).to(tl.int64)
    edge = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = edge < M
    places = tl.minimum(edge, M - 1)
    key += head * WIDTH * M
    value += head * VALUE_WIDTH * M
    k1, k2, k3 = half_squares(key, key, places, M, M, WIDTH)
    w1, w2, w3 = half_squares(value, value, places, M, M, VALUE_WIDTH)
    columns += head * COLUMN_TERMS * M + edge
    store_three(columns, M, k1, k2, k3, valid)
    store_three(columns + 3 * M, M, w1, w2, w3, valid)
