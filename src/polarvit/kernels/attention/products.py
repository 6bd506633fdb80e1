"""Products on the tensor cores that lose nothing float32 has: sums of weighted directions, and squared chords.

The tensor cores multiply numbers of 11 bits (float16 or TF32) exactly and add the products in float32. Sums of weighted
directions need their factors split once (`sharp_product`). A chord asks for more: at radius 8, only what is left of

    1/2|x-y|^2 = 1/2|x|^2 + 1/2|y|^2 - x.y

below 2^-22 counts. So offsets x from a centre, up to 2 in size, are split on fixed grids, x = x1 + x2 + 2^-24 x3: x1 is
a multiple of 2^-10, x2 one of 2^-22, x3 the rest, and each fits into a float16. Sums of x1 y1 are multiples of 2^-20
below 4, which float32 adds without rounding in any order; once 1/2|x1|^2 + 1/2|y1|^2 is taken off, what is left is as
small as the chord or as the next sums, multiples of 2^-32 below about 2^-9, and these do not round either. The result
is right to 2^-38 or to the last places of itself. Multiplied by sinh a sinh b, that is a distance as good as float32
coordinates allow where a + b is up to 16, and `attention_reach_kernel` marks the heads for which it is.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

NEAR = tl.constexpr(16.0)
GRID = tl.constexpr(12288.0)  # 1.5 2^13: what is added to it is rounded to multiples of 2^-10
FINE_GRID = tl.constexpr(3.0)  # 1.5 2: multiples of 2^-22
REST = tl.constexpr(2.0**24)


@triton.jit
def leading_bits(x):
    """x rounded to 11 bits, what the tensor cores read of a float32; half a unit is added and 13 bits are cut off."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def sharp_product(x, y, total):
    """total + x y by three products of leading bits and rests: as good as products in float32.

    What is left out, the product of both rests, is at most 2^-24 of a term, and of either sign.
    """
    high_x, high_y = leading_bits(x), leading_bits(y)
    total = tl.dot(x - high_x, high_y, total, input_precision="tf32")
    total = tl.dot(high_x, y - high_y, total, input_precision="tf32")
    return tl.dot(high_x, high_y, total, input_precision="tf32")


@triton.jit
def grid_pieces(x):
    """x1, x2, 2^-24 x3 of x in float32."""
    first = (x + GRID) - GRID
    x -= first
    second = (x + FINE_GRID) - FINE_GRID
    return first, second, x - second


@triton.jit
def pieces(x):
    """x1, x2, x3 of x [dims, points], |x| <= 2, in float16.

    And 1/2|x|^2 of every point in three parts, each on the grid of the products it will meet.
    """
    first, second, third = grid_pieces(x)
    squares = tl.sum(0.5 * first * first, 0)
    crossed = tl.sum(first * second, 0)
    rest = tl.sum(0.5 * second * second + third * (first + second), 0)
    return first.to(tl.float16), second.to(tl.float16), (third * REST).to(tl.float16), squares, crossed, rest


@triton.jit
def halves(x):
    """x = high + low in float16, to 2^-22 of itself or 2^-25."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def half_squared_chords(x1, x2, x3, y1, y2, y3, first_x, second_x, third_x, first_y, second_y, third_y):
    """1/2|x_i - y_j|^2 for x [rows, dims] and y [dims, columns] in `pieces`, with their squares."""
    total = tl.dot(x1, y1, -(first_x[:, None] + first_y[None, :]))
    total -= second_x[:, None] + second_y[None, :]
    total = tl.dot(x1, y2, total)
    total = tl.dot(x2, y1, total)
    total -= third_x[:, None] + third_y[None, :]
    total = tl.dot(x2, y2, total) * REST
    total = tl.dot(x1, y3, total)
    total = tl.dot(x3, y1, total)
    total = tl.dot(x2, y3, total)
    total = tl.dot(x3, y2, total)
    return tl.maximum(total * (-1.0 / REST), 0.0)


@triton.jit
def largest(x, COUNT):
    """The largest size among COUNT numbers."""
    top = tl.zeros([256], tl.float32)
    for first in range(0, COUNT, 256):
        place = first + tl.arange(0, 256)
        top = tl.maximum(top, tl.abs(tl.load(x + place, mask=place < COUNT, other=0.0).to(tl.float32)))
    return tl.max(top, 0)


@triton.jit
def attention_reach_kernel(query_radius, key_radius, value_radius, near, N, M):
    """For each head 1 if it is near: queries and keys no farther out than a + b = 16, values than 8; else 0."""
    head = tl.program_id(0).to(tl.int64)
    pairs = largest(query_radius + head * N, N) + largest(key_radius + head * M, M) - NEAR
    beyond = tl.maximum(pairs, largest(value_radius + head * M, M) - 0.5 * NEAR)
    tl.store(near + head, (beyond <= 0.0).to(tl.int32))
