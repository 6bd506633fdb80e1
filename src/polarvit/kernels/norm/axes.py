"""What the norm's kernels read of the mean and of the bias: vectors of a sample, or of all, as directions."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"

import triton
import triton.language as tl

from polarvit.kernels.norm.rows import ORIGIN, SMALLEST
from polarvit.kernels.pieces import fold, load_piece, per_row, piece_columns


@triton.jit
def load_columns(pointer, columns, WIDTH: tl.constexpr, EXACT: tl.constexpr):
    """Numbers [chunks, LANES] of a vector; zeros outside."""
    if EXACT:
        return tl.load(pointer + columns)
    else:
        return tl.load(pointer + columns, mask=columns < WIDTH, other=0.0)


@triton.jit
def load_bias(
    bias, rows,
    WIDTH: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Length of the bias, 0 where its inverse is no float. Every row adds it up for itself, without the other warps."""
    largest = tl.zeros_like(rows).to(tl.float32)
    for i in tl.static_range(PIECES):
        v = load_piece(bias, rows, rows >= 0, piece_columns(i, LANES, HEIGHT), 0, WIDTH, LANES, EXACT)
        largest = tl.maximum(largest, tl.max(tl.max(tl.abs(v), 1), 1))
    largest = tl.where(largest >= SMALLEST, largest, 0.0)
    unit = 1.0 / tl.where(largest > 0.0, largest, 1.0)
    square = tl.zeros_like(rows).to(tl.float32)
    for i in tl.static_range(PIECES):
        v = load_piece(bias, rows, rows >= 0, piece_columns(i, LANES, HEIGHT), 0, WIDTH, LANES, EXACT) * per_row(unit)
        square += tl.sum(fold(v * v), 1)
    return largest * tl.sqrt(square)


@triton.jit
def axis_of(vector, columns, inverse, pole):
    """Direction of a vector of length 1/inverse, or e_0 where there is none (inverse 0, pole 1)."""
    return vector * inverse + tl.where(columns == 0, pole, 0.0)


@triton.jit
def load_axis(pointer, rows, columns, inverse, pole, WIDTH: tl.constexpr, LANES: tl.constexpr, EXACT: tl.constexpr):
    """A piece of the direction of the vector at `pointer`, the same for every row."""
    vector = load_piece(pointer, rows, rows >= 0, columns, 0, WIDTH, LANES, EXACT)
    return axis_of(vector, columns[None, :, :], per_row(inverse), per_row(pole))


@triton.jit
def inverse_length(length):
    """1/length and 0, or 0 and 1 where the length is 0."""
    there = length > 0.0
    return tl.where(there, 1.0 / tl.where(there, length, 1.0), 0.0), tl.where(there, 0.0, 1.0)


@triton.jit
def farther(a, place_a, low_a, bias_a, b, place_b, low_b, bias_b):
    """Largest radius, the first row that has it, smallest radius; and the length of the bias, which all rows know."""
    take_b = (b > a) | ((b == a) & (place_b < place_a))
    return (
        tl.where(take_b, b, a),
        tl.where(take_b, place_b, place_a),
        tl.minimum(low_a, low_b),
        tl.maximum(bias_a, bias_b),
    )


@triton.jit
def store_bias(
    pointer, bias, columns, to_w, along_w, to_bias_radius, bias_norm, WIDTH: tl.constexpr, EXACT: tl.constexpr
):
    """The bias' gradient, from that of its direction w and of its radius."""
    inverse, pole = inverse_length(bias_norm)
    w = axis_of(load_columns(bias, columns, WIDTH, EXACT), columns, inverse, pole)
    to_w = (to_w - along_w * w) / tl.where(bias_norm == 0.0, ORIGIN, bias_norm) + to_bias_radius * w
    tl.store(pointer + columns, to_w, mask=columns < WIDTH)
