"""Tiles of pairs: how they lie over the threads, their distances and the derivatives of these.

A tile of rows (queries) and columns (keys) is a tensor [RQ, RK, TQ, TK]. The compiler spreads a tensor over threads
from its last dimension on, and TQ TK is the number of threads, so each thread holds RQ x RK pairs of RQ rows and RK
columns in registers: a coordinate loaded once serves four pairs, and the sixteen pairs of a thread hide each other's
latency. Row i = rq TQ + tq, column j = rk TK + tk; numbers of rows are [RQ, TQ], those of columns [RK, TK].

Distances come from quantities that no radius can make overflow. With S = e^-(a+b) sinh^2(D/2), C = e^-(a+b) cosh^2(D/2)
and sh(x) = e^-x sinh x,

    S = (e^-(a+b)/2 sinh((a-b)/2))^2 + 1/4 sh(a) sh(b) |u-v|^2,   C = S + e^-(a+b),
    D/2 = ln(sqrt S + sqrt C) + (a+b)/2.

Below sinh^2(D/2) = 1/4 the logarithm gives way to the series of arsinh. The angle enters by differences of coordinates
only: a product u.v would leave nothing of a small one. Two points so far out on one ray that S is below the smallest
float are |a-b| apart.
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
    fast_reciprocal,
    fast_rsqrt,
    sinh_series,
)

LARGEST_SLOPE = tl.constexpr(1e30)
SMALLEST = tl.constexpr(1e-36)


@triton.jit
def numbers(first, COUNT: tl.constexpr, THREADS: tl.constexpr):
    """Row (or column) numbers [COUNT / THREADS, THREADS] of a tile that begins at `first`."""
    return first + tl.arange(0, COUNT // THREADS)[:, None] * THREADS + tl.arange(0, THREADS)[None, :]


@triton.jit
def of_rows(x):
    return x[:, None, :, None]


@triton.jit
def of_columns(x):
    return x[None, :, None, :]


@triton.jit
def matrix(tile, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile as [ROWS, COLUMNS]."""
    return tl.reshape(tl.permute(tile, (0, 2, 1, 3)), (ROWS, COLUMNS))


@triton.jit
def transposed(tile, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile as [COLUMNS, ROWS]."""
    return tl.reshape(tl.permute(tile, (1, 3, 0, 2)), (COLUMNS, ROWS))


@triton.jit
def within(numbers, COUNT, EXACT: tl.constexpr):
    """Numbers held at the last one, unless EXACT says that a tile never reaches past it.

    Kernels read the last row again where there is none and give it no weight: a load without a mask is one instruction.
    """
    if EXACT:
        return numbers
    else:
        return tl.minimum(numbers, COUNT - 1)


@triton.jit
def get(pointer):
    return tl.load(pointer).to(tl.float32)


@triton.jit
def get_inside(pointer, inside, EXACT: tl.constexpr):
    """Load, zeros outside; EXACT says that there is no outside."""
    if EXACT:
        return tl.load(pointer).to(tl.float32)
    else:
        return tl.load(pointer, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def radial_terms(radius):
    """a/2, e^(-a/2), 1/2 e^-a and sh(a)."""
    down = fast_exp2(radius * (-0.5 * LOG2E))
    ebb = 0.5 * down * down
    sh = tl.where(radius < 1.0, 2.0 * ebb * sinh_series(radius), 0.5 - 2.0 * ebb * ebb)
    return 0.5 * radius, down, ebb, sh


@triton.jit
def squared_chords(
    x, y, rows, columns, x_step, y_step, TQ: tl.constexpr, TK: tl.constexpr, WIDTH: tl.constexpr, UNROLL: tl.constexpr
):
    """|x_i - y_j|^2 for directions stored at x + rows + d x_step, y likewise."""
    total = tl.zeros([rows.shape[0], columns.shape[0], TQ, TK], tl.float32)
    for d in tl.range(0, WIDTH, loop_unroll_factor=UNROLL):
        step = of_rows(get(x + rows + d * x_step)) - of_columns(get(y + columns + d * y_step))
        total += step * step
    return total


@triton.jit
def half_distances(half_a, down_a, ebb_a, sh_a, half_b, down_b, ebb_b, sh_b, square):
    """D/2 from rows a to columns b, their terms as `radial_terms` returns them, at squared chord lengths.

    And what derivatives need: a/2 - b/2, the root of S's first term, S, 1/sqrt S and 1/sqrt C.
    """
    gap = of_rows(half_a) - of_columns(half_b)
    y = gap * gap
    both = of_rows(down_a) * of_columns(down_b)
    near = (gap + gap * y * (1.0 / 6.0 + y * (1.0 / 120.0))) * both
    radial = tl.where(tl.abs(gap) < 0.25, near, of_columns(ebb_b) - of_rows(ebb_a))
    s = radial * radial + of_rows(0.25 * sh_a) * (of_columns(sh_b) * square)
    c = s + both * both
    inverse_s, inverse_c = fast_rsqrt(tl.maximum(s, SMALLEST)), fast_rsqrt(tl.maximum(c, SMALLEST))
    sinh_half = s * inverse_s
    far = LN2 * fast_log2(sinh_half + c * inverse_c) + (of_rows(half_a) + of_columns(half_b))
    sinh_half *= fast_reciprocal(both)
    y = sinh_half * sinh_half
    half = tl.where(y < 0.25, asinh_series(sinh_half, y), far)
    return tl.maximum(half, tl.abs(gap)), gap, radial, s, inverse_s, inverse_c


@triton.jit
def distance_gradients(half_a, down_a, ebb_a, sh_a, half_b, down_b, ebb_b, sh_b, square):
    """D^2 and half its derivatives by 1/2|u-v|^2, by a and by b.

    With K = D / sinh D they are K sinh a sinh b, K (sinh(a-b) + 1/2 cosh a sinh b |u-v|^2) and the mirror of that; here
    K e^(a+b) multiplies scaled factors. Far out the first one outgrows every float and is held at 1e30.
    """
    half, gap, radial, s, inverse_s, inverse_c = half_distances(
        half_a, down_a, ebb_a, sh_a, half_b, down_b, ebb_b, sh_b, square
    )
    twice, pair = half + half, inverse_s * inverse_c  # with D first, the products below could overflow
    by_chord = tl.minimum(of_rows(sh_a) * (of_columns(sh_b) * (half * pair)), LARGEST_SLOPE)
    by_chord = tl.where(square > 0.0, by_chord, 0.0)
    radial = twice * (pair * (radial * (of_rows(ebb_a) + of_columns(ebb_b))))
    radial = tl.where(s > SMALLEST, radial, 2.0 * gap)
    angular = half * (pair * square)
    with_a, with_b = of_rows(0.5 * sh_a) * angular, of_columns(0.5 * sh_b) * angular  # e^-x cosh x = 1 - sh(x)
    by_a = radial + (with_b - of_rows(sh_a) * with_b)
    by_b = (with_a - of_columns(sh_b) * with_a) - radial
    return twice * twice, by_chord, by_a, by_b
