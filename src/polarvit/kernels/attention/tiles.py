"""What the attention kernels compute for a tile of [rows, columns] pairs: chords, distances and their gradients.

A tile never sees an ambient coordinate. Angles enter as the chord 1/2|u - v|^2, added up from differences of single
coordinates; a product u.v would leave nothing of a small angle. Distances come from the haversine form

    sinh^2(D/2) = sinh^2((a-b)/2) + sinh a sinh b chord/2

with radii held at 85 so that nothing becomes NaN. Only a tile with radii that large enters a branch that replaces the
pairs whose D is beyond 60 by the asymptote e^D = e^|a-b| + 2 sinh a sinh b chord, in the log domain; those closer
than 60 were not touched by the hold, as no chord of float32 is smaller than e^-104.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import (
    LOG2E,
    asinh_of_root,
    cosh,
    log1p,
    log_twice_cosh,
    log_twice_sinh,
    sinh,
    sinh_series,
)
from polarvit.kernels.attention.keys import HELD
from polarvit.kernels.attention.rows import LARGEST_SLOPE

FAR = tl.constexpr(60.0)


@triton.jit
def product_zeros(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile of zeros, laid out over the threads as the result of a product.

    The compiler spreads a plain tile so that each thread reloads every row; in the layout of the tensor cores a row
    stays with four threads, its reductions are two shuffles, and the tile feeds the next product from registers.
    """
    return tl.dot(tl.zeros([ROWS, 16], tl.float32), tl.zeros([16, COLUMNS], tl.float32), input_precision="tf32")


@triton.jit
def chord_tile(
    total, x, y, x_offset, y_offset, x_valid, y_valid, x_step, y_step, WIDTH: tl.constexpr, UNROLL: tl.constexpr
):
    """1/2|x_i - y_j|^2 for directions stored at x + x_offset + d x_step, y likewise; `total` is a tile of zeros."""
    for d in tl.range(0, WIDTH, loop_unroll_factor=UNROLL):
        left = tl.load(x + x_offset + d * x_step, mask=x_valid, other=0.0).to(tl.float32)
        right = tl.load(y + y_offset + d * y_step, mask=y_valid, other=0.0).to(tl.float32)
        step = left[:, None] - right[None, :]
        total += step * step
    return 0.5 * total


@triton.jit
def radial_gap(a, b):
    """sinh((a - b)/2) and cosh((a - b)/2) of rows a and columns b."""
    half = 0.5 * (a[:, None] - b[None, :])
    up = tl.exp2(half * LOG2E)
    down = tl.exp2(half * -LOG2E)
    return tl.where(tl.abs(half) < 1.0, sinh_series(half), 0.5 * (up - down)), 0.5 * (up + down)


@triton.jit
def far_terms(a, b, chord):
    """|a-b|, the logarithm of 2 sinh a sinh b chord, and D of the asymptote, for a tile."""
    gap = tl.abs(a[:, None] - b[None, :])
    angular = log_twice_sinh(a)[:, None] + log_twice_sinh(b)[None, :] + tl.log(0.5 * chord)
    return gap, angular, tl.maximum(gap, angular) + log1p(tl.exp(-tl.abs(gap - angular)))


@triton.jit
def squared_distance(a, b, chord):
    """D^2 of rows a and columns b, D the distance for curvature -1."""
    radial, _ = radial_gap(a, b)
    sinh_a, sinh_b = sinh(tl.minimum(a, HELD)), sinh(tl.minimum(b, HELD))
    half = asinh_of_root(radial * radial + (0.5 * sinh_a)[:, None] * chord * sinh_b[None, :])
    square = 4.0 * half * half
    if tl.max(a, 0) + tl.max(b, 0) > FAR:
        _, _, distance = far_terms(a, b, chord)
        square = tl.where(distance > FAR, distance * distance, square)
    return square


@triton.jit
def squared_distance_gradients(a, b, chord):
    """D^2 and half its derivatives by the chord, by a and by b.

    With K = D / sinh D they are K sinh a sinh b, K (sinh(a-b) + cosh a sinh b chord) and the mirror of that. Far out
    the first one outgrows every float and is held at 1e34.
    """
    sinh_gap, cosh_gap = radial_gap(a, b)
    held_a, held_b = tl.minimum(a, HELD), tl.minimum(b, HELD)
    sinh_a, sinh_b = sinh(held_a)[:, None], sinh(held_b)[None, :]
    square = sinh_gap * sinh_gap + 0.5 * sinh_a * chord * sinh_b
    half = asinh_of_root(square)
    slope = tl.where(square > 0.0, half * tl.rsqrt(square) * tl.rsqrt(1.0 + square), 1.0)
    distance2 = 4.0 * half * half
    by_chord = tl.minimum(slope * sinh_a * sinh_b, LARGEST_SLOPE)
    radial = slope * (2.0 * sinh_gap * cosh_gap)
    angular = slope * chord
    by_a = radial + cosh(held_a)[:, None] * (sinh_b * angular)
    by_b = cosh(held_b)[None, :] * (sinh_a * angular) - radial
    if tl.max(a, 0) + tl.max(b, 0) > FAR:
        gap, angular, distance = far_terms(a, b, chord)
        far = distance > FAR
        distance2 = tl.where(far, distance * distance, distance2)
        growth = log_twice_sinh(a)[:, None] + log_twice_sinh(b)[None, :] - distance
        by_chord = tl.where(far, 0.5 * distance * tl.exp(tl.minimum(growth, 72.0)), by_chord)
        by_chord = tl.where(chord > 0.0, by_chord, 0.0)
        radial = distance * tl.exp(gap - distance)
        radial = tl.where(a[:, None] < b[None, :], -radial, radial)
        angular = tl.log(0.5 * chord) - distance
        by_a_far = radial + distance * tl.exp(log_twice_cosh(a)[:, None] + log_twice_sinh(b)[None, :] + angular)
        by_b_far = distance * tl.exp(log_twice_sinh(a)[:, None] + log_twice_cosh(b)[None, :] + angular) - radial
        by_a = tl.where(far, by_a_far, by_a)
        by_b = tl.where(far, by_b_far, by_b)
    return distance2, by_chord, by_a, by_b
