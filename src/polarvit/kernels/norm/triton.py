"""Forward kernel of the gyro layer norm: one program for one sample, five walks over the columns of its directions.

1. the mean direction ubar, by offsets from the farthest token, and the spread around it: the centroid;
2. chord and overlap of every token with the mean: the centred tokens' radii, their variance, the scaled radii;
3. chord and overlap of every centred direction with the bias: the results' radii;
4. the lengths of the results' directions, a few eps off 1;
5. the results.

Numbers of a token stay in registers, and so do its directions where the sample is small enough: then the pieces cover
the width, every walk is unrolled, and memory is read once. Else a walk takes a piece at a time, from the cache.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_sinh
from polarvit.kernels.norm.rows import ORIGIN, centroid_radius, frame, landed
from polarvit.kernels.pieces import (
    fold,
    load_piece,
    load_rows,
    per_row,
    piece_columns,
    store_piece,
    sum_columns,
    sum_two,
)


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
    """Length of the bias. Every row adds it up for itself: that takes no exchange between warps."""
    largest = tl.zeros_like(rows).to(tl.float32)
    for start in range(0, WIDTH, LANES * HEIGHT * PIECES):
        for i in tl.static_range(PIECES):
            columns = start + piece_columns(i, LANES, HEIGHT)
            v = load_piece(bias, rows, rows >= 0, columns, 0, WIDTH, LANES, EXACT)
            largest = tl.maximum(largest, tl.max(tl.max(tl.abs(v), 1), 1))
    unit = 1.0 / tl.where(largest > 0.0, largest, 1.0)
    square = tl.zeros_like(rows).to(tl.float32)
    for start in range(0, WIDTH, LANES * HEIGHT * PIECES):
        for i in tl.static_range(PIECES):
            columns = start + piece_columns(i, LANES, HEIGHT)
            v = load_piece(bias, rows, rows >= 0, columns, 0, WIDTH, LANES, EXACT) * per_row(unit)
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
def centred_rows(mean_radius, radius, valid, chord, overlap, gain, eps, N):
    """The centred tokens (-mean) (+) x, their variance and the scaled radii.

    The last two numbers are the coefficients of u - uhat and of uhat in the centred token's direction. `overlap` is
    (u - uhat).uhat, which is -chord but for rounding: with it t is perpendicular to uhat to the last bit, and the
    direction of a token close to the mean comes out with length 1.
    """
    r, q, cosh_b, slope, lift, turn, s = frame(mean_radius, radius, chord, -1.0 - overlap)
    sine2 = tl.maximum(2.0 * chord - overlap * overlap, 0.0)
    r, n, cosh_c, centred, zero = landed(r, q, sine2, s)
    turned = sine2 > 0.0
    alpha = tl.where(turned, q / n, 0.0)
    beta = -(r / n + alpha * overlap)
    variance = tl.sum(tl.where(valid, centred * centred, 0.0), 0) / N + eps
    factor = gain / tl.sqrt(variance)
    return r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, zero, centred, variance, factor, alpha, beta


@triton.jit
def take_rows(
    held, i: tl.constexpr, pointer, rows, valid, columns,
    WIDTH: tl.constexpr, LANES: tl.constexpr, HELD: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Piece i of some rows: from registers or from memory."""
    if HELD:
        return held[i]
    else:
        return load_piece(pointer, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT)


@triton.jit
def take_axis(
    held, i: tl.constexpr, pointer, rows, columns, inverse, pole,
    WIDTH: tl.constexpr, LANES: tl.constexpr, HELD: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Piece i of a direction, for all rows: from registers or from memory."""
    if HELD:
        return held[i]
    else:
        return load_axis(pointer, rows, columns, inverse, pole, WIDTH, LANES, EXACT)


@triton.jit
def norm_forward_kernel(
    a, u, gain, bias, eps, out_radius, out, mean, token_stats, stats, N, EPS,
    WIDTH: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
    HAS_EPS: tl.constexpr,
):  # fmt: skip
    GROUP: tl.constexpr = LANES * HEIGHT * PIECES
    HELD: tl.constexpr = GROUP >= WIDTH
    EXACT: tl.constexpr = WIDTH % GROUP == 0
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, COUNT)
    valid = rows < N
    a += sample * N
    u += sample * N * WIDTH
    out += sample * N * WIDTH
    mean += sample * WIDTH
    radius = tl.load(a + rows, mask=valid, other=0.0)
    xs = ()
    if HELD:
        xs = load_rows(u, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    bias_norms = load_bias(bias, rows, WIDTH, LANES, HEIGHT, PIECES, EXACT)
    bias_inverses, bias_poles = inverse_length(bias_norms)
    strength = tl.load(gain)
    if HAS_EPS:
        EPS = tl.load(eps)

    low = tl.where(valid, radius, float("inf"))
    high = tl.where(valid, radius, -1.0)
    highest, farthest, lowest, bias_norm = tl.reduce((high, rows, low, bias_norms), 0, farther)
    bias_radius = tl.where(bias_norm == 0.0, ORIGIN, bias_norm)
    mass = tl.where(valid, scaled_sinh(radius) * tl.exp(radius - highest), 0.0)
    total, radial = sum_two(mass, tl.where(valid, tl.exp(lowest - radius), 0.0))
    share = mass / tl.where(total > 0.0, total, 1.0)
    squares = tl.zeros([COUNT, LANES], tl.float32)
    length = 0.0
    ubars = ()
    if HELD:
        steps = ()
        for i in tl.static_range(PIECES):
            centre = load_columns(u + farthest * WIDTH, piece_columns(i, LANES, HEIGHT), WIDTH, EXACT)
            steps = steps + (per_row(share) * (xs[i] - centre[None, :, :]),)
        steps = sum_columns(steps, PIECES)
        for i in tl.static_range(PIECES):
            columns = piece_columns(i, LANES, HEIGHT)
            centre = load_columns(u + farthest * WIDTH, columns, WIDTH, EXACT)
            away = (xs[i] - centre[None, :, :]) - steps[i][None, :, :]
            squares += fold(away * away)
            ubar = centre + steps[i]
            length += tl.sum(tl.sum(ubar * ubar, 0), 0)
            ubars = ubars + (ubar,)
            tl.store(mean + columns, ubar, mask=columns < WIDTH)
    else:
        for start in range(0, WIDTH, GROUP):
            columns = start + piece_columns(0, LANES, HEIGHT)
            centre = load_columns(u + farthest * WIDTH, columns, WIDTH, EXACT)
            offset = load_piece(u, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT) - centre[None, :, :]
            step = tl.sum(per_row(share) * offset, 0)
            away = offset - step[None, :, :]
            squares += fold(away * away)
            ubar = centre + step
            length += tl.sum(tl.sum(ubar * ubar, 0), 0)
            tl.store(mean + columns, ubar, mask=columns < WIDTH)
        tl.debug_barrier()  # other threads read what was stored to `mean`
    spread = tl.sum(mass * tl.sum(squares, 1), 0)
    length = tl.sqrt(length)
    mean_radius, log_plus, log_minus, size = centroid_radius(total, length, spread, radial, highest, lowest)
    length = tl.where(spread == 0.0, 1.0, length)  # equal directions: the mean is theirs to the last bit
    inverse, pole = inverse_length(length)
    inverses, poles = inverse_length(length + tl.zeros_like(radius))
    uhats, ws = (), ()
    if HELD:
        for i in tl.static_range(PIECES):
            columns = piece_columns(i, LANES, HEIGHT)
            uhats = uhats + (axis_of(ubars[i], columns, inverse, pole)[None, :, :],)
            ws = ws + (load_axis(bias, rows, columns, bias_inverses, bias_poles, WIDTH, LANES, EXACT),)

    chords = tl.zeros([COUNT, LANES], tl.float32)
    overlaps = tl.zeros([COUNT, LANES], tl.float32)
    for start in range(0, WIDTH, GROUP):
        for i in tl.static_range(PIECES):
            columns = start + piece_columns(i, LANES, HEIGHT)
            uhat = take_axis(uhats, i, mean, rows, columns, inverses, poles, WIDTH, LANES, HELD, EXACT)
            d = take_rows(xs, i, u, rows, valid, columns, WIDTH, LANES, HELD, EXACT) - uhat
            chords += fold(d * d)
            overlaps += fold(d * uhat)
    chord = tl.where(valid, 0.5 * tl.sum(chords, 1), 0.0)
    overlap = tl.where(valid, tl.sum(overlaps, 1), 0.0)
    _, _, _, _, _, _, _, _, _, _, centred, _, factor, alpha, beta = centred_rows(
        mean_radius, radius, valid, chord, overlap, strength, EPS, N
    )

    chords = tl.zeros([COUNT, LANES], tl.float32)
    overlaps = tl.zeros([COUNT, LANES], tl.float32)
    for start in range(0, WIDTH, GROUP):
        for i in tl.static_range(PIECES):
            columns = start + piece_columns(i, LANES, HEIGHT)
            uhat = take_axis(uhats, i, mean, rows, columns, inverses, poles, WIDTH, LANES, HELD, EXACT)
            w = take_axis(ws, i, bias, rows, columns, bias_inverses, bias_poles, WIDTH, LANES, HELD, EXACT)
            d = take_rows(xs, i, u, rows, valid, columns, WIDTH, LANES, HELD, EXACT) - uhat
            both = per_row(alpha) * d + (per_row(beta) * uhat + w)
            chords += fold(both * both)
            overlaps += fold(both * w)
    bias_chord, bias_overlap = 0.5 * tl.sum(chords, 1), tl.sum(overlaps, 1)
    r, q, _, _, _, turn, s = frame(bias_radius, factor * centred, bias_chord, bias_overlap - 1.0)
    _, n, _, moved, zero = landed(r, q, tl.maximum(2.0 * bias_chord - bias_overlap * bias_overlap, 0.0), s)

    # Every result is a combination of u - uhat, uhat and w. Rounding of the coefficients leaves its length a few eps
    # off 1, which sinh of the radius would multiply: it is measured first.
    sideways, straight = tl.where(zero, 0.0, q / n), tl.where(zero, 1.0, turn / n)
    alpha, beta = sideways * alpha, sideways * beta
    squares = tl.zeros([COUNT, LANES], tl.float32)
    for start in range(0, WIDTH, GROUP):
        for i in tl.static_range(PIECES):
            columns = start + piece_columns(i, LANES, HEIGHT)
            uhat = take_axis(uhats, i, mean, rows, columns, inverses, poles, WIDTH, LANES, HELD, EXACT)
            w = take_axis(ws, i, bias, rows, columns, bias_inverses, bias_poles, WIDTH, LANES, HELD, EXACT)
            d = take_rows(xs, i, u, rows, valid, columns, WIDTH, LANES, HELD, EXACT) - uhat
            result = per_row(alpha) * d + (per_row(beta) * uhat + per_row(straight) * w)
            squares += fold(result * result)
    scale = 1.0 / tl.sqrt(tl.sum(squares, 1))
    for start in range(0, WIDTH, GROUP):
        for i in tl.static_range(PIECES):
            columns = start + piece_columns(i, LANES, HEIGHT)
            uhat = take_axis(uhats, i, mean, rows, columns, inverses, poles, WIDTH, LANES, HELD, EXACT)
            w = take_axis(ws, i, bias, rows, columns, bias_inverses, bias_poles, WIDTH, LANES, HELD, EXACT)
            d = take_rows(xs, i, u, rows, valid, columns, WIDTH, LANES, HELD, EXACT) - uhat
            result = per_row(alpha) * d + (per_row(beta) * uhat + per_row(straight) * w)
            store_piece(out, rows, valid, columns, result * per_row(scale), WIDTH, WIDTH, LANES, EXACT)

    tl.store(out_radius + sample * N + rows, moved, mask=valid)
    four = tl.arange(0, 4)[None, :]
    tokens = tl.join(tl.join(chord, bias_chord), tl.join(overlap, bias_overlap))  # [rows, 2, 2]: chord, overlap, ...
    tl.store(token_stats + sample * 4 * N + rows[:, None] * 4 + four, tokens.reshape([COUNT, 4]), mask=valid[:, None])
    stats += sample * 8
    tl.store(stats, mean_radius)
    tl.store(stats + 1, log_plus)
    tl.store(stats + 2, log_minus)
    tl.store(stats + 3, size)
    tl.store(stats + 4, length)
    tl.store(stats + 5, bias_norm)
    tl.store(stats + 6, highest)
