"""Backward kernels of the gyro layer norm for large samples: several programs share one, and meet between kernels.

1. `divided_dots_kernel`, rows: dot products and the chain as far as the bias (`chain.py`);
2. `divided_chain_kernel`, a number for each token: the scale and the centring;
3. `divided_columns_kernel`, columns: the gradients of the bias and of the mean's direction;
4. `divided_tokens_kernel`, rows: the tokens' gradients.

Thirteen numbers a token go from one to the next in `notes` [B, 13, N]: rho, kappa, lambda and f of the bias, alpha,
beta, the gradients by the scaled radius, of e by uhat and by d; then, from (2), that by the token's radius and rho,
kappa and lambda of the centring. No kernel writes where it reads: warps without rows of their own read others' rows.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.norm.axes import axis_of, inverse_length, load_axis, load_columns, store_bias
from polarvit.kernels.norm.chain import (
    both_rows,
    dot_rows,
    pulled_piece,
    through_bias,
    through_centring,
    through_centroid,
)
from polarvit.kernels.norm.divided import sum_parts
from polarvit.kernels.norm.rows import ORIGIN, centred_rows, held
from polarvit.kernels.pieces import fold, load_piece, load_rows, per_row, piece_columns, store_piece, sum_two

NOTES = tl.constexpr(13)


@triton.jit
def divided_dots_kernel(
    a, u, gain, bias, mean, token_stats, stats, grad_radius, grad, notes, parts, N,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Rows' notes; `parts` [B, programs, 4] has sums: gradients by factor and bias radius, and that of w along w."""
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    valid = rows < N
    xs = load_rows(u + sample * N * WIDTH, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    gs = load_rows(grad + sample * N * WIDTH, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    radius = tl.load(a + sample * N + rows, mask=valid, other=0.0)
    by_radius = tl.load(grad_radius + sample * N + rows, mask=valid, other=0.0)
    token_stats += (sample * N + rows) * 4
    chord = tl.load(token_stats, mask=valid, other=0.0)
    overlap = tl.load(token_stats + 1, mask=valid, other=0.0)
    bias_chord = tl.load(token_stats + 2, mask=valid, other=0.0)
    bias_overlap = tl.load(token_stats + 3, mask=valid, other=0.0)
    stats += sample * 8
    mean_radius, length, bias_norm = tl.load(stats), tl.load(stats + 4), tl.load(stats + 5)
    factor = tl.load(gain) / tl.sqrt(tl.load(stats + 7))
    bias_inverse, bias_pole = inverse_length(bias_norm + tl.zeros_like(radius))
    inverse, pole = inverse_length(length + tl.zeros_like(radius))
    mean += sample * WIDTH
    g_w, g_mean, g_d, w_d, w_mean = dot_rows(
        xs, gs, mean, bias, rows, inverse, pole, bias_inverse, bias_pole, WIDTH, LANES, HEIGHT, PIECES
    )
    like = 0.0 * w_mean  # numbers of a token laid out like these sums (see `norm_backward_kernel`)
    radius, by_radius, chord, overlap = radius + like, by_radius + like, chord + like, overlap + like
    bias_chord, bias_overlap = bias_chord + like, bias_overlap + like
    r, _, _, _, _, _, n, _, _, _, centred, alpha, beta = centred_rows(mean_radius, radius, chord, overlap)
    g_both = both_rows(
        xs, gs, alpha, beta, mean, bias, rows, inverse, pole, bias_inverse, bias_pole, WIDTH, LANES, HEIGHT, PIECES
    )
    bias_radius = tl.where(bias_norm == 0.0, ORIGIN, bias_norm)
    f_rho, f_kappa, f_lambda, f_e, by_scaled, to_bias_radius, e_by_mean, e_by_d = through_bias(
        valid, bias_radius, factor * centred, bias_chord, bias_overlap, by_radius,
        g_w, g_mean, g_d, g_both, w_d, w_mean, r, n, chord, overlap, alpha, beta,
    )  # fmt: skip
    notes += sample * NOTES * N + rows
    tl.store(notes, f_rho, mask=valid)
    tl.store(notes + N, f_kappa, mask=valid)
    tl.store(notes + 2 * N, f_lambda, mask=valid)
    tl.store(notes + 3 * N, f_e, mask=valid)
    tl.store(notes + 4 * N, alpha, mask=valid)
    tl.store(notes + 5 * N, beta, mask=valid)
    tl.store(notes + 6 * N, by_scaled, mask=valid)
    tl.store(notes + 7 * N, e_by_mean, mask=valid)
    tl.store(notes + 8 * N, e_by_d, mask=valid)
    parts += (sample * tl.num_programs(1) + tl.program_id(1)) * 4
    tl.store(parts, tl.sum(by_scaled * centred, 0))
    tl.store(parts + 1, tl.sum(to_bias_radius, 0))
    tl.store(parts + 2, tl.sum(tl.where(valid, f_kappa * g_w + f_lambda * bias_overlap, 0.0), 0))


@triton.jit
def divided_chain_kernel(
    a, gain, token_stats, stats, notes, parts, blocks, partials, N, PARTS, COLUMNS,
    WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The rest of the notes; `blocks` [B, programs, 2] has sums: gradients by the mean's radius, of uhat along uhat."""
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    valid = rows < N
    radius = tl.load(a + sample * N + rows, mask=valid, other=0.0)
    token_stats += (sample * N + rows) * 4
    chord = tl.load(token_stats, mask=valid, other=0.0)
    overlap = tl.load(token_stats + 1, mask=valid, other=0.0)
    mean_radius, variance = tl.load(stats + sample * 8), tl.load(stats + sample * 8 + 7)
    notes += sample * NOTES * N + rows
    by_scaled = tl.load(notes + 6 * N, mask=valid, other=0.0)
    e_by_mean = tl.load(notes + 7 * N, mask=valid, other=0.0)
    e_by_d = tl.load(notes + 8 * N, mask=valid, other=0.0)
    by_factor = sum_parts(parts + sample * PARTS * 4, PARTS, 4, 32)
    factor = tl.load(gain) / tl.sqrt(variance)
    by_variance = -0.5 * by_factor * factor / variance
    r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, zero, centred, _, _ = centred_rows(
        mean_radius, radius, chord, overlap
    )
    by_centred = factor * by_scaled + (2.0 / N) * by_variance * centred
    to_mean_radius, by_token, rho, kappa, bend = through_centring(
        valid, r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, zero, overlap, by_centred, e_by_mean, e_by_d
    )
    tl.store(notes + 9 * N, by_token, mask=valid)
    tl.store(notes + 10 * N, rho, mask=valid)
    tl.store(notes + 11 * N, kappa, mask=valid)
    tl.store(notes + 12 * N, bend, mask=valid)
    to_mean_radius, along_mean = sum_two(to_mean_radius, kappa * e_by_mean + bend * overlap)
    blocks += (sample * tl.num_programs(1) + tl.program_id(1)) * 2
    tl.store(blocks, to_mean_radius)
    tl.store(blocks + 1, along_mean)
    if tl.program_id(1) == 0:
        tl.store(partials + sample * COLUMNS + WIDTH, by_factor / tl.sqrt(variance))
        tl.store(partials + sample * COLUMNS + WIDTH + 1, by_variance)


@triton.jit
def divided_columns_kernel(
    u, bias, mean, stats, grad, notes, parts, blocks, to_mean, partials, N, PARTS, BLOCKS, COLUMNS,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Some columns of the bias' gradient, in `partials`, and of the mean's direction's, in `to_mean`."""
    EXACT: tl.constexpr = WIDTH % LANES == 0
    sample = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, ROWS)
    columns = tl.program_id(1) * LANES + piece_columns(0, LANES, 1)
    u += sample * N * WIDTH
    grad += sample * N * WIDTH
    notes += sample * NOTES * N
    bias_norm, length = tl.load(stats + sample * 8 + 5), tl.load(stats + sample * 8 + 4)
    inverse, pole = inverse_length(length)
    bias_inverse, bias_pole = inverse_length(bias_norm)
    uhat = axis_of(load_columns(mean + sample * WIDTH, columns, WIDTH, EXACT), columns, inverse, pole)
    w = axis_of(load_columns(bias, columns, WIDTH, EXACT), columns, bias_inverse, bias_pole)
    to_ws, to_uhats = tl.zeros([ROWS, 1, LANES], tl.float32), tl.zeros([ROWS, 1, LANES], tl.float32)
    for start in range(0, N, ROWS):
        rows = start + lanes
        valid = rows < N
        x = load_piece(u, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT)
        g = load_piece(grad, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT)
        f_rho = tl.load(notes + rows, mask=valid, other=0.0)
        f_kappa = tl.load(notes + N + rows, mask=valid, other=0.0)
        f_lambda = tl.load(notes + 2 * N + rows, mask=valid, other=0.0)
        f_e = tl.load(notes + 3 * N + rows, mask=valid, other=0.0)
        alpha = tl.load(notes + 4 * N + rows, mask=valid, other=0.0)
        beta = tl.load(notes + 5 * N + rows, mask=valid, other=0.0)
        kappa = tl.load(notes + 11 * N + rows, mask=valid, other=0.0)
        bend = tl.load(notes + 12 * N + rows, mask=valid, other=0.0)
        d, both, e = pulled_piece(x, g, uhat[None, :, :], w[None, :, :], alpha, beta, f_rho, f_lambda, f_e)
        to_ws += per_row(f_kappa) * g + both
        to_uhats += per_row(kappa) * e + per_row(bend) * d
    to_w, to_uhat = sum_two(to_ws, to_uhats)
    parts += sample * PARTS * 4
    to_bias_radius, along_w = sum_parts(parts + 1, PARTS, 4, 32), sum_parts(parts + 2, PARTS, 4, 32)
    along_mean = sum_parts(blocks + sample * BLOCKS * 2 + 1, BLOCKS, 2, 16)
    store_bias(partials + sample * COLUMNS, bias, columns, to_w, along_w, to_bias_radius, bias_norm, WIDTH, EXACT)
    tl.store(to_mean + sample * WIDTH + columns, along_mean * uhat - to_uhat, mask=columns < WIDTH)


@triton.jit
def divided_tokens_kernel(
    a, u, bias, mean, token_stats, stats, grad, notes, blocks, to_mean, to_a, to_u, N, BLOCKS,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Gradients of some rows."""
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    valid = rows < N
    xs = load_rows(u + sample * N * WIDTH, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    gs = load_rows(grad + sample * N * WIDTH, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    radius = tl.load(a + sample * N + rows, mask=valid, other=0.0)
    chord = tl.load(token_stats + (sample * N + rows) * 4, mask=valid, other=0.0)
    notes += sample * NOTES * N + rows
    f_rho = tl.load(notes, mask=valid, other=0.0)
    f_lambda = tl.load(notes + 2 * N, mask=valid, other=0.0)
    f_e = tl.load(notes + 3 * N, mask=valid, other=0.0)
    alpha = tl.load(notes + 4 * N, mask=valid, other=0.0)
    beta = tl.load(notes + 5 * N, mask=valid, other=0.0)
    by_token = tl.load(notes + 9 * N, mask=valid, other=0.0)
    rho = tl.load(notes + 10 * N, mask=valid, other=0.0)
    bend = tl.load(notes + 12 * N, mask=valid, other=0.0)
    stats += sample * 8
    length, bias_norm = tl.load(stats + 4), tl.load(stats + 5)
    to_mean_radius = sum_parts(blocks + sample * BLOCKS * 2, BLOCKS, 2, 16)
    by_token, bend_all, share, spin = through_centroid(
        valid, radius, chord, tl.load(stats + 6), tl.load(stats + 1), tl.load(stats + 2), tl.load(stats + 3),
        to_mean_radius, by_token, bend,
    )  # fmt: skip
    inverse, pole = inverse_length(length + tl.zeros_like(radius))
    bias_inverse, bias_pole = inverse_length(bias_norm + tl.zeros_like(radius))
    sides = tl.zeros([ROWS, LANES], tl.float32)
    alongs = tl.zeros([ROWS, LANES], tl.float32)
    tokens = ()
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        uhat = load_axis(mean + sample * WIDTH, rows, columns, inverse, pole, WIDTH, LANES, EXACT)
        w = load_axis(bias, rows, columns, bias_inverse, bias_pole, WIDTH, LANES, EXACT)
        to_uhat = load_piece(to_mean + sample * WIDTH, rows, rows >= 0, columns, 0, WIDTH, LANES, EXACT)
        d, _, e = pulled_piece(xs[i], gs[i], uhat, w, alpha, beta, f_rho, f_lambda, f_e)
        token = per_row(rho) * e + (per_row(bend_all) * d + per_row(share) * to_uhat)
        sides += fold(d * to_uhat)
        alongs += fold(token * xs[i])
        tokens = tokens + (token,)
    along = tl.sum(alongs, 1)
    to_u += sample * N * WIDTH
    for i in tl.static_range(PIECES):
        token = tokens[i] - per_row(along) * xs[i]
        store_piece(to_u, rows, valid, piece_columns(i, LANES, HEIGHT), token, WIDTH, WIDTH, LANES, EXACT)
    tl.store(to_a + sample * N + rows, by_token + held(spin * tl.sum(sides, 1)), mask=valid)
