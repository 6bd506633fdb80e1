"""Backward kernel of the gyro layer norm for samples that one program keeps in registers.

1. every dot product that the chain of scalars needs (upstream gradient with the bias, the centred direction, the mean,
   the token); then the chain: bias, scale, centring, centroid radius (`chain.py`);
2. the gradients of the bias, of the mean's direction and of the tokens;
3. what is left of a token's gradient along itself is taken off.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.norm.axes import inverse_length, load_axis, store_bias
from polarvit.kernels.norm.chain import (
    both_rows,
    dot_rows,
    pulled_piece,
    through_bias,
    through_centring,
    through_centroid,
)
from polarvit.kernels.norm.rows import ORIGIN, centred_rows, held, thread_a_row
from polarvit.kernels.pieces import (
    fold,
    load_rows,
    per_row,
    piece_columns,
    store_piece,
    sum_columns,
    sum_three,
    sum_two,
)


@triton.jit
def norm_backward_kernel(
    a, u, gain, bias, mean, token_stats, stats, grad_radius, grad, to_a, to_u, partials, N, COLUMNS,
    WIDTH: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """The sample's row of `partials` has the gradients of the bias, of gain and of eps."""
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, COUNT)
    valid = rows < N
    u += sample * N * WIDTH
    grad += sample * N * WIDTH
    to_u += sample * N * WIDTH
    mean += sample * WIDTH
    partials += sample * COLUMNS
    radius = tl.load(a + sample * N + rows, mask=valid, other=0.0)
    by_radius = tl.load(grad_radius + sample * N + rows, mask=valid, other=0.0)
    xs = load_rows(u, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    gs = load_rows(grad, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    token_stats += sample * 4 * N + rows * 4
    chord = tl.load(token_stats, mask=valid, other=0.0)
    overlap = tl.load(token_stats + 1, mask=valid, other=0.0)
    bias_chord = tl.load(token_stats + 2, mask=valid, other=0.0)
    bias_overlap = tl.load(token_stats + 3, mask=valid, other=0.0)
    stats += sample * 8
    mean_radius = tl.load(stats)
    log_plus = tl.load(stats + 1)
    log_minus = tl.load(stats + 2)
    size = tl.load(stats + 3)
    length = tl.load(stats + 4)
    bias_norm = tl.load(stats + 5)
    highest = tl.load(stats + 6)
    variance = tl.load(stats + 7)
    strength = tl.load(gain)
    bias_radius = tl.where(bias_norm == 0.0, ORIGIN, bias_norm)
    bias_inverse, bias_pole = inverse_length(bias_norm + tl.zeros_like(radius))
    inverse, pole = inverse_length(length + tl.zeros_like(radius))

    g_w, g_mean, g_d, w_d, w_mean = dot_rows(
        xs, gs, mean, bias, rows, inverse, pole, bias_inverse, bias_pole, WIDTH, LANES, HEIGHT, PIECES
    )
    factor = strength / tl.sqrt(variance)
    g_w, g_mean, g_d = thread_a_row(g_w), thread_a_row(g_mean), thread_a_row(g_d)
    w_d, w_mean = thread_a_row(w_d), thread_a_row(w_mean)
    r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, zero, centred, alpha, beta = centred_rows(
        mean_radius, radius, chord, overlap
    )
    alphas, betas = thread_a_row(alpha), thread_a_row(beta)
    g_both = both_rows(
        xs, gs, alphas, betas, mean, bias, rows, inverse, pole, bias_inverse, bias_pole, WIDTH, LANES, HEIGHT, PIECES
    )
    g_both = thread_a_row(g_both)
    f_rho, f_kappa, f_lambda, f_e, by_scaled, to_bias_radius, e_by_mean, e_by_d = through_bias(
        valid, bias_radius, factor * centred, bias_chord, bias_overlap, by_radius,
        g_w, g_mean, g_d, g_both, w_d, w_mean, r, n, chord, overlap, alpha, beta,
    )  # fmt: skip
    by_factor, to_bias_radius = sum_two(by_scaled * centred, to_bias_radius)
    by_variance = -0.5 * by_factor * factor / variance
    by_centred = factor * by_scaled + (2.0 / N) * by_variance * centred
    tl.store(partials + WIDTH, by_factor / tl.sqrt(variance))
    tl.store(partials + WIDTH + 1, by_variance)
    to_mean_radius, by_token, rho, kappa, bend = through_centring(
        valid, r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, zero, overlap, by_centred, e_by_mean, e_by_d
    )
    along_w, along_mean = f_kappa * g_w + f_lambda * bias_overlap, kappa * e_by_mean + bend * overlap
    to_mean_radius, along_w, along_mean = sum_three(to_mean_radius, along_w, along_mean)
    by_token, bend_all, share, spin = through_centroid(
        valid, radius, chord, highest, log_plus, log_minus, size, to_mean_radius, by_token, bend
    )

    f_rho, f_kappa, f_lambda, f_e = (
        thread_a_row(f_rho), thread_a_row(f_kappa), thread_a_row(f_lambda), thread_a_row(f_e)
    )  # fmt: skip
    rho, kappa, bend = thread_a_row(rho), thread_a_row(kappa), thread_a_row(bend)
    bend_all, share = thread_a_row(bend_all), thread_a_row(share)
    to_ws, to_uhats, es = (), (), ()
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        uhat = load_axis(mean, rows, columns, inverse, pole, WIDTH, LANES, EXACT)
        w = load_axis(bias, rows, columns, bias_inverse, bias_pole, WIDTH, LANES, EXACT)
        d, both, e = pulled_piece(xs[i], gs[i], uhat, w, alphas, betas, f_rho, f_lambda, f_e)
        to_ws = to_ws + (per_row(f_kappa) * gs[i] + both,)
        to_uhats = to_uhats + (per_row(kappa) * e + per_row(bend) * d,)
        es = es + (e,)
    to_ws, to_uhats = sum_columns(to_ws, PIECES), sum_columns(to_uhats, PIECES)
    sides = tl.zeros([COUNT, LANES], tl.float32)
    alongs = tl.zeros([COUNT, LANES], tl.float32)
    tokens = ()
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        store_bias(partials, bias, columns, to_ws[i], along_w, to_bias_radius, bias_norm, WIDTH, EXACT)
        uhat = load_axis(mean, rows, columns, inverse, pole, WIDTH, LANES, EXACT)
        d = xs[i] - uhat
        to_uhat = along_mean * uhat - to_uhats[i][None, :, :]
        token = per_row(rho) * es[i] + (per_row(bend_all) * d + per_row(share) * to_uhat)
        sides += fold(d * to_uhat)
        alongs += fold(token * xs[i])
        tokens = tokens + (token,)
    along = tl.sum(alongs, 1)
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        token = tokens[i] - per_row(along) * xs[i]
        store_piece(to_u, rows, valid, columns, token, WIDTH, WIDTH, LANES, EXACT)
    tl.store(to_a + sample * N + rows, by_token + held(spin * tl.sum(sides, 1)), mask=valid)
