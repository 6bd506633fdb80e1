"""Backward kernel of the gyro layer norm: one program for one sample, three walks over the columns.

1. every dot product that the chain of scalars needs (upstream gradient with the bias, the centred direction, the mean,
   the token); then the chain: bias, scale, centring, centroid radius;
2. the gradients of the bias, of the mean's direction and of the tokens;
3. what is left of a token's gradient along itself is taken off.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh, scaled_sinh
from polarvit.kernels.norm.rows import capped, frame, held, landed, pulled_back
from polarvit.kernels.norm.triton import centred_rows, load_axes, load_bias, load_tile

SMALLEST = tl.constexpr(1.1754944e-38)


@triton.jit
def backward_kernel(
    a, u, gain, bias, eps, mean, token_stats, stats, grad_radius, grad, to_a, to_u, to_bias, to_scalars, N, EPS,
    WIDTH: tl.constexpr, PAD: tl.constexpr, COUNT: tl.constexpr, CHUNK: tl.constexpr, HAS_EPS: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, COUNT)
    lanes = tl.arange(0, CHUNK)
    valid = rows < N
    u += sample * N * WIDTH
    grad += sample * N * WIDTH
    to_u += sample * N * WIDTH
    mean += sample * WIDTH
    radius = tl.load(a + sample * N + rows, mask=valid, other=0.0)
    by_radius = tl.load(grad_radius + sample * N + rows, mask=valid, other=0.0)
    bias_radius, inverse, pole = load_bias(bias, WIDTH, PAD)
    strength = tl.load(gain)
    if HAS_EPS:
        EPS = tl.load(eps)
    token_stats += sample * 4 * N + rows
    chord = tl.load(token_stats, mask=valid, other=0.0)
    overlap = tl.load(token_stats + N, mask=valid, other=0.0)
    bias_chord = tl.load(token_stats + 2 * N, mask=valid, other=0.0)
    bias_overlap = tl.load(token_stats + 3 * N, mask=valid, other=0.0)
    stats += sample * 5
    mean_radius = tl.load(stats)
    log_plus = tl.load(stats + 1)
    log_minus = tl.load(stats + 2)
    size = tl.load(stats + 3)
    length = tl.load(stats + 4)
    r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, zero, centred, variance, factor, alpha, beta = centred_rows(
        mean_radius, radius, valid, chord, overlap, strength, EPS, N
    )

    by_w = tl.zeros([COUNT, CHUNK], tl.float32)
    by_both = tl.zeros([COUNT, CHUNK], tl.float32)
    by_mean = tl.zeros([COUNT, CHUNK], tl.float32)
    by_d = tl.zeros([COUNT, CHUNK], tl.float32)
    w_d = tl.zeros([COUNT, CHUNK], tl.float32)
    w_mean = tl.zeros([CHUNK], tl.float32)
    for start in range(0, WIDTH, CHUNK):
        columns = start + lanes
        inside = valid[:, None] & (columns < WIDTH)[None, :]
        uhat, w = load_axes(mean, bias, columns, columns < WIDTH, length, inverse, pole)
        d = tl.where(inside, load_tile(u, rows, columns, inside, WIDTH) - uhat[None, :], 0.0)
        g = load_tile(grad, rows, columns, inside, WIDTH)
        both = alpha[:, None] * d + (beta[:, None] * uhat[None, :] + w[None, :])
        by_w += g * w[None, :]
        by_both += g * both
        by_mean += g * uhat[None, :]
        by_d += g * d
        w_d += d * w[None, :]
        w_mean += w * uhat
    g_w, g_both, g_mean, g_d = tl.sum(by_w, 1), tl.sum(by_both, 1), tl.sum(by_mean, 1), tl.sum(by_d, 1)

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
    to_bias_radius = tl.sum(tl.where(valid, to_bias_radius, 0.0), 0)
    f_rho, f_kappa = tl.where(valid, f_rho, 0.0), tl.where(valid, f_kappa, 0.0)
    f_lambda, by_scaled = tl.where(valid, f_lambda, 0.0), tl.where(valid, by_scaled, 0.0)
    # The gradient of the centred direction e is f_rho g + f_lambda (e + w) - f_e e, perpendicular to e.
    f_e = f_rho * (g_both - g_w) + f_lambda * bias_chord
    e_mean, e_d = -r / n, 2.0 * alpha * chord + beta * overlap
    e_by_mean = f_rho * g_mean + f_lambda * (e_mean + tl.sum(w_mean, 0)) - f_e * e_mean
    e_by_d = f_rho * g_d + f_lambda * (e_d + tl.sum(w_d, 1)) - f_e * e_d

    # scale
    by_factor = tl.sum(by_scaled * centred, 0)
    by_variance = -0.5 * by_factor * factor / variance
    by_centred = factor * by_scaled + (2.0 / N) * by_variance * centred
    tl.store(to_scalars + sample * 2, by_factor / tl.sqrt(variance))
    tl.store(to_scalars + sample * 2 + 1, by_variance)

    # (-mean) (+) token: x is -uhat, y the token, t = d - overlap uhat
    by_t = tl.where(zero, 0.0, e_by_d - overlap * e_by_mean)
    to_mean_radius, by_token, rho, kappa, bend = pulled_back(
        r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, by_centred, -e_by_mean, by_t, True
    )
    to_mean_radius = tl.sum(tl.where(valid, to_mean_radius, 0.0), 0)
    rho, kappa, bend = tl.where(valid, rho, 0.0), tl.where(valid, kappa, 0.0), tl.where(valid, bend, 0.0)

    # centroid
    highest = tl.max(radius, 0)
    sinh, cosh = scaled_sinh(radius), scaled_cosh(radius)
    up, over = capped(radius - highest - log_plus), capped(radius - highest - log_minus)
    under = capped(-radius - highest - log_minus)
    spin = tl.where(size >= SMALLEST, tl.exp(radius - highest) / tl.maximum(size, SMALLEST), 0.0)
    spin = tl.where(valid, held(spin), 0.0)
    by_token += held(to_mean_radius * (0.5 * (up * (1.0 - cosh * chord) + under - cosh * chord * over)))
    bend_all = bend - held(to_mean_radius * (0.5 * sinh * (up + over)))
    share = tl.minimum(sinh * spin, 1e9)

    overlaps = tl.zeros([COUNT, CHUNK], tl.float32)
    alongs = tl.zeros([COUNT, CHUNK], tl.float32)
    for start in range(0, WIDTH, CHUNK):
        columns = start + lanes
        inside = valid[:, None] & (columns < WIDTH)[None, :]
        uhat, w = load_axes(mean, bias, columns, columns < WIDTH, length, inverse, pole)
        x = load_tile(u, rows, columns, inside, WIDTH)
        d = tl.where(inside, x - uhat[None, :], 0.0)
        g = load_tile(grad, rows, columns, inside, WIDTH)
        e = alpha[:, None] * d + beta[:, None] * uhat[None, :]
        both = e + w[None, :]
        to_w = f_kappa[:, None] * (g - g_w[:, None] * w[None, :])
        to_w += f_lambda[:, None] * (both - bias_overlap[:, None] * w[None, :])
        to_w = tl.sum(to_w, 0) / bias_radius + to_bias_radius * w
        tl.store(to_bias + sample * WIDTH + columns, to_w, mask=columns < WIDTH)
        g = f_rho[:, None] * g + f_lambda[:, None] * both - f_e[:, None] * e
        to_uhat = kappa[:, None] * (g - e_by_mean[:, None] * uhat[None, :])
        to_uhat += bend[:, None] * (d - overlap[:, None] * uhat[None, :])
        to_uhat = -tl.sum(to_uhat, 0)
        overlaps += d * to_uhat[None, :]
        token = rho[:, None] * (g - (e_by_d + e_by_mean)[:, None] * x) + bend_all[:, None] * (d - chord[:, None] * x)
        token += share[:, None] * to_uhat[None, :]
        alongs += token * x
        tl.store(to_u + rows[:, None] * WIDTH + columns[None, :], token, mask=inside)
    sideways = tl.sum(overlaps, 1)
    tl.store(to_a + sample * N + rows, by_token + held(cosh * spin * sideways), mask=valid)
    tl.debug_barrier()

    along = tl.sum(alongs, 1)
    for start in range(0, WIDTH, CHUNK):
        columns = start + lanes
        inside = valid[:, None] & (columns < WIDTH)[None, :]
        x = load_tile(u, rows, columns, inside, WIDTH)
        token = load_tile(to_u, rows, columns, inside, WIDTH) - along[:, None] * x
        tl.store(to_u + rows[:, None] * WIDTH + columns[None, :], token, mask=inside)
