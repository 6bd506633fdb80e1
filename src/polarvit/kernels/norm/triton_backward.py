"""Backward kernel of the gyro layer norm: one program for one sample, three walks over the columns.

1. every dot product that the chain of scalars needs (upstream gradient with the bias, the centred direction, the mean,
   the token); then the chain: bias, scale, centring, centroid radius;
2. the gradients of the bias, of the mean's direction and of the tokens;
3. what is left of a token's gradient along itself is taken off.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh, scaled_sinh
from polarvit.kernels.norm.rows import ORIGIN, capped, frame, held, landed, pulled_back
from polarvit.kernels.norm.triton import (
    axis_of,
    centred_rows,
    inverse_length,
    load_axis,
    load_columns,
    take_rows,
)
from polarvit.kernels.pieces import (
    fold,
    load_piece,
    load_rows,
    per_row,
    piece_columns,
    store_piece,
    sum_columns,
    sum_three,
    sum_two,
)

SMALLEST = tl.constexpr(1.1754944e-38)


@triton.jit
def pulled_piece(x, g, uhat, w, alpha, beta, f_rho, f_kappa, f_lambda, f_e, kappa, bend):
    """A piece of what is summed over tokens for the direction of bias and of mean, and the gradient of e."""
    d = x - uhat
    e = per_row(alpha) * d + per_row(beta) * uhat
    both = per_row(f_lambda) * (e + w)
    to_w = per_row(f_kappa) * g + both
    g = per_row(f_rho) * g + (both - per_row(f_e) * e)
    return to_w, per_row(kappa) * g + per_row(bend) * d, g


@triton.jit
def store_bias(
    pointer, bias, columns, to_w, along_w, to_bias_radius, bias_norm, WIDTH: tl.constexpr, EXACT: tl.constexpr
):
    """The bias' gradient, from that of its direction w and of its radius."""
    inverse, pole = inverse_length(bias_norm)
    w = axis_of(load_columns(bias, columns, WIDTH, EXACT), columns, inverse, pole)
    to_w = (to_w - along_w * w) / tl.where(bias_norm == 0.0, ORIGIN, bias_norm) + to_bias_radius * w
    tl.store(pointer + columns, to_w, mask=columns < WIDTH)


@triton.jit
def norm_backward_kernel(
    a, u, gain, bias, eps, mean, token_stats, stats, grad_radius, grad, to_a, to_u, partials, N, EPS, COLUMNS,
    WIDTH: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
    HAS_EPS: tl.constexpr,
):  # fmt: skip
    """The sample's row of `partials` has the gradients of the bias, of gain and of eps."""
    GROUP: tl.constexpr = LANES * HEIGHT * PIECES
    HELD: tl.constexpr = GROUP >= WIDTH
    EXACT: tl.constexpr = WIDTH % GROUP == 0
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
    xs, gs = (), ()
    if HELD:
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
    strength = tl.load(gain)
    if HAS_EPS:
        EPS = tl.load(eps)
    bias_radius = tl.where(bias_norm == 0.0, ORIGIN, bias_norm)
    bias_inverse, bias_pole = inverse_length(bias_norm + tl.zeros_like(radius))
    inverse, pole = inverse_length(length + tl.zeros_like(radius))

    by_w = tl.zeros([COUNT, LANES], tl.float32)
    by_mean = tl.zeros([COUNT, LANES], tl.float32)
    by_d = tl.zeros([COUNT, LANES], tl.float32)
    w_d = tl.zeros([COUNT, LANES], tl.float32)
    w_mean = tl.zeros([COUNT, LANES], tl.float32)
    for start in range(0, WIDTH, GROUP):
        for i in tl.static_range(PIECES):
            columns = start + piece_columns(i, LANES, HEIGHT)
            uhat = load_axis(mean, rows, columns, inverse, pole, WIDTH, LANES, EXACT)
            w = load_axis(bias, rows, columns, bias_inverse, bias_pole, WIDTH, LANES, EXACT)
            d = take_rows(xs, i, u, rows, valid, columns, WIDTH, LANES, HELD, EXACT) - uhat
            g = take_rows(gs, i, grad, rows, valid, columns, WIDTH, LANES, HELD, EXACT)
            by_w += fold(g * w)
            by_mean += fold(g * uhat)
            by_d += fold(g * d)
            w_d += fold(d * w)
            w_mean += fold(w * uhat)
    g_w, g_mean, g_d, w_d, w_mean = (
        tl.sum(by_w, 1),
        tl.sum(by_mean, 1),
        tl.sum(by_d, 1),
        tl.sum(w_d, 1),
        tl.sum(w_mean, 1),
    )

    # What follows has a number for each token. It is to be laid out like these sums: else the compiler would choose
    # another layout and carry every result through shared memory.
    if HELD:
        like = 0.0 * w_mean
        radius, by_radius, chord, overlap = radius + like, by_radius + like, chord + like, overlap + like
        bias_chord, bias_overlap = bias_chord + like, bias_overlap + like
    r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, zero, centred, variance, factor, alpha, beta = centred_rows(
        mean_radius, radius, valid, chord, overlap, strength, EPS, N
    )
    by_both = tl.zeros([COUNT, LANES], tl.float32)
    for start in range(0, WIDTH, GROUP):
        for i in tl.static_range(PIECES):
            columns = start + piece_columns(i, LANES, HEIGHT)
            uhat = load_axis(mean, rows, columns, inverse, pole, WIDTH, LANES, EXACT)
            w = load_axis(bias, rows, columns, bias_inverse, bias_pole, WIDTH, LANES, EXACT)
            d = take_rows(xs, i, u, rows, valid, columns, WIDTH, LANES, HELD, EXACT) - uhat
            g = take_rows(gs, i, grad, rows, valid, columns, WIDTH, LANES, HELD, EXACT)
            by_both += fold(g * (per_row(alpha) * d + (per_row(beta) * uhat + w)))
    g_both = tl.sum(by_both, 1)

    # bias (+) scaled token
    f_r, f_q, f_cosh_b, f_slope, f_lift, f_turn, s = frame(
        bias_radius, factor * centred, bias_chord, bias_overlap - 1.0
    )
    f_sine2 = tl.maximum(2.0 * bias_chord - bias_overlap * bias_overlap, 0.0)
    f_r, f_n, f_cosh_c, _, _ = landed(f_r, f_q, f_sine2, s)
    by_t = g_both - bias_overlap * g_w
    to_bias_radius, by_scaled, f_rho, f_kappa, f_lambda = pulled_back(
        f_r, f_q, f_cosh_b, f_slope, f_lift, f_turn, f_n, f_cosh_c, f_sine2, by_radius, g_w, by_t, False
    )
    f_rho, f_kappa = tl.where(valid, f_rho, 0.0), tl.where(valid, f_kappa, 0.0)
    f_lambda, by_scaled = tl.where(valid, f_lambda, 0.0), tl.where(valid, by_scaled, 0.0)
    # The gradient of the centred direction e is f_rho g + f_lambda (e + w) - f_e e, perpendicular to e.
    f_e = f_rho * (g_both - g_w) + f_lambda * bias_chord
    e_mean, e_d = -r / n, 2.0 * alpha * chord + beta * overlap
    e_by_mean = f_rho * g_mean + f_lambda * (e_mean + w_mean) - f_e * e_mean
    e_by_d = f_rho * g_d + f_lambda * (e_d + w_d) - f_e * e_d

    # scale
    by_factor, to_bias_radius = sum_two(by_scaled * centred, tl.where(valid, to_bias_radius, 0.0))
    by_variance = -0.5 * by_factor * factor / variance
    by_centred = factor * by_scaled + (2.0 / N) * by_variance * centred
    tl.store(partials + WIDTH, by_factor / tl.sqrt(variance))
    tl.store(partials + WIDTH + 1, by_variance)

    # (-mean) (+) token: x is -uhat, y the token, t = d - overlap uhat
    by_t = tl.where(zero, 0.0, e_by_d - overlap * e_by_mean)
    to_mean_radius, by_token, rho, kappa, bend = pulled_back(
        r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, by_centred, -e_by_mean, by_t, True
    )
    to_mean_radius = tl.where(valid, to_mean_radius, 0.0)
    rho, kappa, bend = tl.where(valid, rho, 0.0), tl.where(valid, kappa, 0.0), tl.where(valid, bend, 0.0)
    along_w, along_mean = f_kappa * g_w + f_lambda * bias_overlap, kappa * e_by_mean + bend * overlap
    to_mean_radius, along_w, along_mean = sum_three(to_mean_radius, along_w, along_mean)

    # centroid
    sinh, cosh = scaled_sinh(radius), scaled_cosh(radius)
    up, over = capped(radius - highest - log_plus), capped(radius - highest - log_minus)
    under = capped(-radius - highest - log_minus)
    spin = tl.where(size >= SMALLEST, tl.exp(radius - highest) / tl.maximum(size, SMALLEST), 0.0)
    spin = tl.where(valid, held(spin), 0.0)
    by_token += held(to_mean_radius * (0.5 * (up * (1.0 - cosh * chord) + under - cosh * chord * over)))
    bend_all = bend - held(to_mean_radius * (0.5 * sinh * (up + over)))
    share = tl.minimum(sinh * spin, 1e9)

    sides = tl.zeros([COUNT, LANES], tl.float32)
    alongs = tl.zeros([COUNT, LANES], tl.float32)
    if HELD:
        to_ws, to_uhats, es = (), (), ()
        for i in tl.static_range(PIECES):
            columns = piece_columns(i, LANES, HEIGHT)
            uhat = load_axis(mean, rows, columns, inverse, pole, WIDTH, LANES, EXACT)
            w = load_axis(bias, rows, columns, bias_inverse, bias_pole, WIDTH, LANES, EXACT)
            to_w, to_uhat, g = pulled_piece(
                xs[i], gs[i], uhat, w, alpha, beta, f_rho, f_kappa, f_lambda, f_e, kappa, bend
            )
            to_ws, to_uhats, es = to_ws + (to_w,), to_uhats + (to_uhat,), es + (g,)
        to_ws, to_uhats = sum_columns(to_ws, PIECES), sum_columns(to_uhats, PIECES)
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
    else:
        for start in range(0, WIDTH, GROUP):
            columns = start + piece_columns(0, LANES, HEIGHT)
            x = load_piece(u, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT)
            g = load_piece(grad, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT)
            uhat = load_axis(mean, rows, columns, inverse, pole, WIDTH, LANES, EXACT)
            w = load_axis(bias, rows, columns, bias_inverse, bias_pole, WIDTH, LANES, EXACT)
            to_w, to_uhat, g = pulled_piece(x, g, uhat, w, alpha, beta, f_rho, f_kappa, f_lambda, f_e, kappa, bend)
            to_w, to_uhat = sum_two(to_w, to_uhat)
            store_bias(partials, bias, columns, to_w, along_w, to_bias_radius, bias_norm, WIDTH, EXACT)
            to_uhat = along_mean * uhat - to_uhat[None, :, :]
            token = per_row(rho) * g + (per_row(bend_all) * (x - uhat) + per_row(share) * to_uhat)
            sides += fold((x - uhat) * to_uhat)
            alongs += fold(token * x)
            store_piece(to_u, rows, valid, columns, token, WIDTH, WIDTH, LANES, EXACT)
        along = tl.sum(alongs, 1)
        for start in range(0, WIDTH, GROUP):
            columns = start + piece_columns(0, LANES, HEIGHT)
            x = load_piece(u, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT)
            token = load_piece(to_u, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT) - per_row(along) * x
            store_piece(to_u, rows, valid, columns, token, WIDTH, WIDTH, LANES, EXACT)
    tl.store(to_a + sample * N + rows, by_token + held(cosh * spin * tl.sum(sides, 1)), mask=valid)
