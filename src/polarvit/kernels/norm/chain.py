"""The chain of scalars of the norm's backward: numbers of each token, from the bias to the centroid.

Upstream is g of a result's direction and a number of its radius. g enters by its products with the bias' direction w,
the mean's uhat, d = u - uhat and e + w (e is the centred direction); these are all the chain needs.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh, scaled_sinh
from polarvit.kernels.norm.axes import load_axis
from polarvit.kernels.norm.rows import SMALLEST, capped, frame, held, landed, pulled_back
from polarvit.kernels.pieces import fold, per_row, piece_columns


@triton.jit
def dot_rows(
    xs, gs, mean, bias, rows, inverse, pole, bias_inverse, bias_pole,
    WIDTH: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """g.w, g.uhat, g.d, w.d and w.uhat."""
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    by_w, by_mean = tl.zeros([rows.shape[0], LANES], tl.float32), tl.zeros([rows.shape[0], LANES], tl.float32)
    by_d, w_d = tl.zeros([rows.shape[0], LANES], tl.float32), tl.zeros([rows.shape[0], LANES], tl.float32)
    w_mean = tl.zeros([rows.shape[0], LANES], tl.float32)
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        uhat = load_axis(mean, rows, columns, inverse, pole, WIDTH, LANES, EXACT)
        w = load_axis(bias, rows, columns, bias_inverse, bias_pole, WIDTH, LANES, EXACT)
        d = xs[i] - uhat
        by_w += fold(gs[i] * w)
        by_mean += fold(gs[i] * uhat)
        by_d += fold(gs[i] * d)
        w_d += fold(d * w)
        w_mean += fold(w * uhat)
    return tl.sum(by_w, 1), tl.sum(by_mean, 1), tl.sum(by_d, 1), tl.sum(w_d, 1), tl.sum(w_mean, 1)


@triton.jit
def both_rows(
    xs, gs, alpha, beta, mean, bias, rows, inverse, pole, bias_inverse, bias_pole,
    WIDTH: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """g.(e + w), for e = alpha d + beta uhat: e and w may nearly cancel, so they are added first."""
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    by_both = tl.zeros([rows.shape[0], LANES], tl.float32)
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        uhat = load_axis(mean, rows, columns, inverse, pole, WIDTH, LANES, EXACT)
        w = load_axis(bias, rows, columns, bias_inverse, bias_pole, WIDTH, LANES, EXACT)
        by_both += fold(gs[i] * (per_row(alpha) * (xs[i] - uhat) + (per_row(beta) * uhat + w)))
    return tl.sum(by_both, 1)


@triton.jit
def through_bias(
    valid, bias_radius, scaled, bias_chord, bias_overlap, by_radius, g_w, g_mean, g_d, g_both, w_d, w_mean,
    r, n, chord, overlap, alpha, beta,
):  # fmt: skip
    """bias (+) scaled token. The gradient of e is rho g + lambda (e + w) - f e, perpendicular to e.

    Returns rho, kappa, lambda, f, the gradients by scaled radius and bias radius, and that of e by uhat and by d.
    """
    f_r, f_q, f_cosh_b, f_slope, f_lift, f_turn, s = frame(bias_radius, scaled, bias_chord, bias_overlap - 1.0)
    f_sine2 = tl.maximum(2.0 * bias_chord - bias_overlap * bias_overlap, 0.0)
    f_r, f_n, f_cosh_c, _, _ = landed(f_r, f_q, f_sine2, s)
    by_t = g_both - bias_overlap * g_w
    to_bias_radius, by_scaled, f_rho, f_kappa, f_lambda = pulled_back(
        f_r, f_q, f_cosh_b, f_slope, f_lift, f_turn, f_n, f_cosh_c, f_sine2, by_radius, g_w, by_t, False
    )
    f_rho, f_kappa = tl.where(valid, f_rho, 0.0), tl.where(valid, f_kappa, 0.0)
    f_lambda, by_scaled = tl.where(valid, f_lambda, 0.0), tl.where(valid, by_scaled, 0.0)
    to_bias_radius = tl.where(valid, to_bias_radius, 0.0)
    f_e = f_rho * (g_both - g_w) + f_lambda * bias_chord
    e_mean, e_d = -r / n, 2.0 * alpha * chord + beta * overlap
    e_by_mean = f_rho * g_mean + f_lambda * (e_mean + w_mean) - f_e * e_mean
    e_by_d = f_rho * g_d + f_lambda * (e_d + w_d) - f_e * e_d
    return f_rho, f_kappa, f_lambda, f_e, by_scaled, to_bias_radius, e_by_mean, e_by_d


@triton.jit
def through_centring(
    valid, r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, zero, overlap, by_centred, e_by_mean, e_by_d
):
    """(-mean) (+) token: x is -uhat, y the token, t = d - overlap uhat.

    Returns the gradients by the mean's radius and the token's, then rho, kappa and lambda of `pulled_back`.
    """
    by_t = tl.where(zero, 0.0, e_by_d - overlap * e_by_mean)
    to_mean_radius, by_token, rho, kappa, bend = pulled_back(
        r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, by_centred, -e_by_mean, by_t, True
    )
    to_mean_radius = tl.where(valid, to_mean_radius, 0.0)
    rho, kappa, bend = tl.where(valid, rho, 0.0), tl.where(valid, kappa, 0.0), tl.where(valid, bend, 0.0)
    return to_mean_radius, by_token, rho, kappa, bend


@triton.jit
def through_centroid(valid, radius, chord, highest, log_plus, log_minus, size, to_mean_radius, by_token, bend):
    """The centroid's radius: gradient by the token's, coefficient of d; then what its direction gives u and a."""
    sinh, cosh = scaled_sinh(radius), scaled_cosh(radius)
    up, over = capped(radius - highest - log_plus), capped(radius - highest - log_minus)
    under = capped(-radius - highest - log_minus)
    spin = tl.where(size >= SMALLEST, tl.exp(radius - highest) / tl.maximum(size, SMALLEST), 0.0)
    spin = tl.where(valid, held(spin), 0.0)
    by_token += held(to_mean_radius * (0.5 * (up * (1.0 - cosh * chord) + under - cosh * chord * over)))
    bend -= held(to_mean_radius * (0.5 * sinh * (up + over)))
    return by_token, bend, tl.minimum(sinh * spin, 1e9), cosh * spin


@triton.jit
def pulled_piece(x, g, uhat, w, alpha, beta, f_rho, f_lambda, f_e):
    """Pieces of d, of lambda (e + w) and of the gradient of e."""
    d = x - uhat
    e = per_row(alpha) * d + per_row(beta) * uhat
    both = per_row(f_lambda) * (e + w)
    return d, both, per_row(f_rho) * g + (both - per_row(f_e) * e)
