"""Forward kernel of the gyro layer norm for samples that one program keeps in registers: memory is read once.

1. the mean direction ubar, by offsets from the farthest token, and the spread around it: the centroid;
2. chord and overlap of every token with the mean: the centred tokens' radii, their variance, the scaled radii;
3. chord and overlap of every centred direction with the bias: the results' radii;
4. the lengths of the results' directions, a few eps off 1;
5. the results.

Larger samples are divided among programs (`divided.py`), which meet between these steps.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_sinh
from polarvit.kernels.norm.axes import axis_of, farther, inverse_length, load_axis, load_bias, load_columns
from polarvit.kernels.norm.rows import (
    ORIGIN,
    centred_rows,
    centroid_radius,
    frame,
    landed,
    store_centroid,
    thread_a_row,
)
from polarvit.kernels.pieces import fold, load_rows, per_row, piece_columns, store_piece, sum_columns, sum_two


@triton.jit
def chord_rows(xs, uhats, PIECES: tl.constexpr):
    """Half the squared distance of tokens from the mean's direction, and (u - uhat).uhat."""
    d = xs[0] - uhats[0]
    chords, overlaps = fold(d * d), fold(d * uhats[0])
    for i in tl.static_range(1, PIECES):
        d = xs[i] - uhats[i]
        chords += fold(d * d)
        overlaps += fold(d * uhats[i])
    return 0.5 * tl.sum(chords, 1), tl.sum(overlaps, 1)


@triton.jit
def placed_rows(xs, uhats, ws, alpha, beta, bias_radius, scaled, PIECES: tl.constexpr, HELD: tl.constexpr):
    """bias (+) scaled tokens: chord and overlap of centred directions with the bias, radii, directions by pieces.

    HELD says that all rows of a sample are here, more than there are threads for their chains of scalars in eight.
    """
    both = per_row(alpha) * (xs[0] - uhats[0]) + (per_row(beta) * uhats[0] + ws[0])
    chords, overlaps = fold(both * both), fold(both * ws[0])
    for i in tl.static_range(1, PIECES):
        both = per_row(alpha) * (xs[i] - uhats[i]) + (per_row(beta) * uhats[i] + ws[i])
        chords += fold(both * both)
        overlaps += fold(both * ws[i])
    chord, overlap = 0.5 * tl.sum(chords, 1), tl.sum(overlaps, 1)
    if HELD:
        chord, overlap = thread_a_row(chord), thread_a_row(overlap)
    r, q, _, _, _, turn, s = frame(bias_radius, scaled, chord, overlap - 1.0)
    _, n, _, moved, zero = landed(r, q, tl.maximum(2.0 * chord - overlap * overlap, 0.0), s)

    # Every result is a combination of u - uhat, uhat and w. Rounding of the coefficients leaves its length a few eps
    # off 1, which sinh of the radius would multiply: it is measured first.
    sideways, straight = tl.where(zero, 0.0, q / n), tl.where(zero, 1.0, turn / n)
    if HELD:
        sideways, straight = thread_a_row(sideways), thread_a_row(straight)
    alpha, beta = sideways * alpha, sideways * beta
    result = per_row(alpha) * (xs[0] - uhats[0]) + (per_row(beta) * uhats[0] + per_row(straight) * ws[0])
    squares = fold(result * result)
    for i in tl.static_range(1, PIECES):
        result = per_row(alpha) * (xs[i] - uhats[i]) + (per_row(beta) * uhats[i] + per_row(straight) * ws[i])
        squares += fold(result * result)
    scale = 1.0 / tl.sqrt(tl.sum(squares, 1))
    results = ()
    for i in tl.static_range(PIECES):
        result = per_row(alpha) * (xs[i] - uhats[i]) + (per_row(beta) * uhats[i] + per_row(straight) * ws[i])
        results = results + (result * per_row(scale),)
    return chord, overlap, moved, results


@triton.jit
def norm_forward_kernel(
    a, u, gain, bias, eps, out_radius, out, mean, token_stats, stats, N, EPS,
    WIDTH: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
    HAS_EPS: tl.constexpr,
):  # fmt: skip
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, COUNT)
    valid = rows < N
    a += sample * N
    u += sample * N * WIDTH
    out += sample * N * WIDTH
    mean += sample * WIDTH
    radius = tl.load(a + rows, mask=valid, other=0.0)
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
    spread = tl.sum(mass * tl.sum(squares, 1), 0)
    length = tl.sqrt(length)
    mean_radius, log_plus, log_minus, size = centroid_radius(total, length, spread, radial, highest, lowest)
    length = tl.where(spread == 0.0, 1.0, length)  # equal directions: the mean is theirs to the last bit
    inverse, pole = inverse_length(length)
    uhats, ws = (), ()
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        uhats = uhats + (axis_of(ubars[i], columns, inverse, pole)[None, :, :],)
        ws = ws + (load_axis(bias, rows, columns, bias_inverses, bias_poles, WIDTH, LANES, EXACT),)

    chord, overlap = chord_rows(xs, uhats, PIECES)
    chord, overlap = thread_a_row(tl.where(valid, chord, 0.0)), thread_a_row(tl.where(valid, overlap, 0.0))
    _, _, _, _, _, _, _, _, _, _, centred, alpha, beta = centred_rows(mean_radius, radius, chord, overlap)
    alpha, beta = thread_a_row(alpha), thread_a_row(beta)
    variance = tl.sum(tl.where(valid, centred * centred, 0.0), 0) / N + EPS
    scaled = strength / tl.sqrt(variance) * centred
    bias_chord, bias_overlap, moved, results = placed_rows(
        xs, uhats, ws, alpha, beta, bias_radius, scaled, PIECES, True
    )
    for i in tl.static_range(PIECES):
        store_piece(out, rows, valid, piece_columns(i, LANES, HEIGHT), results[i], WIDTH, WIDTH, LANES, EXACT)
    tl.store(out_radius + sample * N + rows, moved, mask=valid)
    four = tl.arange(0, 4)[None, :]
    tokens = tl.join(tl.join(chord, bias_chord), tl.join(overlap, bias_overlap))  # [rows, 2, 2]: chord, overlap, ...
    tl.store(token_stats + sample * 4 * N + rows[:, None] * 4 + four, tokens.reshape([COUNT, 4]), mask=valid[:, None])
    stats += sample * 8
    store_centroid(stats, mean_radius, log_plus, log_minus, size, length, highest)
    tl.store(stats + 5, bias_norm)
    tl.store(stats + 7, variance)
