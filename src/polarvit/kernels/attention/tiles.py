"""What the attention kernels compute for a tile of [rows, columns] pairs: chords, distances and their gradients.

A tile never sees an ambient coordinate. Angles enter as the chord 1/2|u - v|^2, added up from differences of single
coordinates; a product u.v would leave nothing of a small angle. Where all radii of a tile add up to at most `NEAR`, the
haversine form is evaluated as it stands; beyond it everything is scaled in the log domain. The choice is one
branch for a whole tile.
"""

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import (
    asinh_of_root,
    cosh,
    expm1,
    scaled_cosh,
    scaled_sinh,
    sinh,
    sinh_series,
)

NEAR = tl.constexpr(80.0)
LARGEST_EXPONENT = tl.constexpr(80.0)


@triton.jit
def chord_tile(x, y, x_offset, y_offset, x_valid, y_valid, x_step, y_step, WIDTH: tl.constexpr):
    """1/2|x_i - y_j|^2 for directions stored at x + x_offset + d x_step, y likewise."""
    total = tl.zeros([x_offset.shape[0], y_offset.shape[0]], tl.float32)
    for d in tl.static_range(WIDTH):
        left = tl.load(x + x_offset + d * x_step, mask=x_valid, other=0.0).to(tl.float32)
        right = tl.load(y + y_offset + d * y_step, mask=y_valid, other=0.0).to(tl.float32)
        step = left[:, None] - right[None, :]
        total += step * step
    return 0.5 * total


@triton.jit
def radial_gap(a, b):
    """sinh((a - b)/2) and cosh((a - b)/2) for a column a and a row b, a + b <= NEAR: no exponential for a pair."""
    half = 0.5 * (a[:, None] - b[None, :])
    up = tl.exp(0.5 * a)[:, None] * tl.exp(-0.5 * b)[None, :]
    down = tl.exp(-0.5 * a)[:, None] * tl.exp(0.5 * b)[None, :]
    return tl.where(tl.abs(half) < 1.0, sinh_series(half), 0.5 * (up - down)), 0.5 * (up + down)


@triton.jit
def far_distance(a, b, chord):
    """The distance at any radius: haversine form with the largest exponent S taken out."""
    gap = tl.abs(a[:, None] - b[None, :])
    both = a[:, None] + b[None, :]
    exponent = tl.maximum(gap, both + tl.log(0.5 * chord))
    root = tl.sqrt(chord) * tl.exp(tl.minimum(0.5 * (both - exponent), LARGEST_EXPONENT))
    shrink = expm1(-gap)
    square = 0.25 * shrink * shrink * tl.exp(gap - exponent)
    square += 0.5 * scaled_sinh(a)[:, None] * scaled_sinh(b)[None, :] * root * root
    near = 2.0 * asinh_of_root(square * tl.exp(tl.minimum(exponent, 40.0)))
    far = exponent + 2.0 * tl.log(tl.sqrt(square) + tl.sqrt(square + tl.exp(-exponent)))
    return tl.where(exponent <= 40.0, near, far)


@triton.jit
def squared_distance(a, b, chord):
    """D^2 of rows a and columns b, D the distance for curvature -1."""
    if tl.max(a, 0) + tl.max(b, 0) <= NEAR:
        radial, _ = radial_gap(a, b)
        half = asinh_of_root(radial * radial + (0.5 * sinh(a))[:, None] * (sinh(b)[None, :] * chord))
        square = 4.0 * half * half
    else:
        distance = far_distance(a, b, chord)
        square = distance * distance
    return square


@triton.jit
def squared_distance_gradients(a, b, chord):
    """D^2 and half its derivatives by the chord, by a and by b.

    With K = D / sinh D they are K sinh a sinh b, K (sinh(a-b) + cosh a sinh b chord) and the mirror of that. Far out
    the first one outgrows every float and is held at e^80.
    """
    if tl.max(a, 0) + tl.max(b, 0) <= NEAR:
        sinh_gap, cosh_gap = radial_gap(a, b)
        sinh_a = sinh(a)[:, None]
        sinh_b = sinh(b)[None, :]
        square = sinh_gap * sinh_gap + 0.5 * sinh_a * (sinh_b * chord)
        half = asinh_of_root(square)
        slope = half / tl.where(square > 0.0, tl.sqrt(square * (1.0 + square)), 1.0)
        slope = tl.where(square > 0.0, slope, 1.0)
        distance2 = 4.0 * half * half
        by_chord = slope * sinh_a * sinh_b
        radial = slope * (2.0 * sinh_gap * cosh_gap)
        by_a = radial + slope * (cosh(a)[:, None] * sinh_b * chord)
        by_b = slope * (cosh(b)[None, :] * sinh_a * chord) - radial
    else:
        distance = far_distance(a, b, chord)
        both = a[:, None] + b[None, :]
        signed = a[:, None] - b[None, :]
        gap = tl.abs(signed)
        shrunk = scaled_sinh(distance)
        slope = tl.where(shrunk > 0.0, distance / tl.where(shrunk > 0.0, shrunk, 1.0), 1.0)
        distance2 = distance * distance
        sh_a = scaled_sinh(a)[:, None]
        sh_b = scaled_sinh(b)[None, :]
        growth = tl.exp(tl.minimum(both - distance, LARGEST_EXPONENT))
        by_chord = tl.where(chord > 0.0, slope * sh_a * sh_b * growth, 0.0)
        radial = slope * scaled_sinh(gap) * tl.exp(tl.minimum(gap - distance, 0.0))
        radial = tl.where(signed < 0.0, -radial, radial)
        angular = slope * tl.exp(tl.minimum(both - distance + tl.log(chord), LARGEST_EXPONENT))
        by_a = radial + scaled_cosh(a)[:, None] * sh_b * angular
        by_b = scaled_cosh(b)[None, :] * sh_a * angular - radial
    return distance2, by_chord, by_a, by_b
