"""Forward and backward kernel of the polar linear layer's epilogue: rows are tokens, columns output features."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment,misc"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import normal_share, scaled_cosh, scaled_sinh
from polarvit.kernels.pieces import fold, load_piece, per_row, piece_columns, store_piece, sum_columns, sum_three

ORIGIN = tl.constexpr(2.0**-60)
NONE, RELU, GELU = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def radius_of_log_sinh(l):
    """asinh(e^l): max(l, 0) + ln(e^min(l, 0) + sqrt(1 + e^-2|l|)), and its series where e^l is below 1/2."""
    near = tl.exp(tl.minimum(l, 0.0))
    away = tl.exp(-tl.abs(l))
    square = away * away
    far = tl.maximum(l, 0.0) + tl.log(near + tl.sqrt(1.0 + square))
    series = 0.028076207874594025 - square * 0.013099914532999208
    series = -0.04436184388877733 + square * series
    series = 0.07498412604260289 + square * series
    series = -0.16666633460773211 + square * series
    return tl.where(l < -0.6931472, near + near * (square * series), far)


@triton.jit
def activated(z, c, ACTIVATION: tl.constexpr):
    """phi(c z)/c and its slope by z."""
    if ACTIVATION == RELU:
        return tl.maximum(z, 0.0), tl.where(z > 0.0, 1.0, 0.0)
    elif ACTIVATION == GELU:
        x = per_row(c) * z
        share, density = normal_share(x)
        return z * share, share + x * density
    else:
        return z, z


@triton.jit
def growth(a, ROOT_K: tl.constexpr):
    """sqrt(k) cosh a; GELU has saturated long before the cap on a matters."""
    grown = tl.exp(tl.minimum(a, 40.0))
    return 0.5 * ROOT_K * (grown + 1.0 / grown)


@triton.jit
def point_of(
    product, a_in, time_weight, beta, slope, phi0, rows, valid,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
    ACTIVATION: tl.constexpr, ROOT_K: tl.constexpr,
):  # fmt: skip
    """Directions by pieces, radii and |h| of some rows."""
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    a = tl.load(a_in + rows, mask=valid, other=0.0)
    dot = tl.load(product + rows * STRIDE + WIDTH, mask=valid, other=0.0).to(tl.float32)
    ch = scaled_cosh(a)
    klein = scaled_sinh(a) / ch
    c = growth(a, ROOT_K)
    hs = ()
    squares = tl.zeros([rows.shape[0], LANES], tl.float32)
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        p = load_piece(product, rows, valid, columns, STRIDE, WIDTH, LANES, EXACT)
        weight = load_piece(time_weight, rows, valid, columns, 0, WIDTH, LANES, EXACT)
        h, _ = activated(per_row(klein) * p + weight, c, ACTIVATION)
        squares += fold(h * h)
        hs = hs + (h,)
    norm = tl.sqrt(tl.sum(squares, 1))
    zero = norm == 0.0
    length = tl.where(zero, ORIGIN, norm)
    inverse = 1.0 / length
    lone = per_row(zero) & (piece_columns(0, LANES, HEIGHT) == 0)[None, :, :]
    us = (hs[0] * per_row(inverse) + tl.where(lone, 1.0, 0.0),)
    for i in tl.static_range(1, PIECES):
        us = us + (hs[i] * per_row(inverse),)
    l = tl.load(beta) * (a + tl.log(length * ch)) + tl.load(slope) * a + klein * dot + tl.load(phi0)
    return us, radius_of_log_sinh(l), norm


@triton.jit
def linear_forward_kernel(
    product, a_in, time_weight, beta, slope, phi0, out_radius, out, out_norm, ROWS,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
    BLOCK: tl.constexpr, ACTIVATION: tl.constexpr, ROOT_K: tl.constexpr,
):  # fmt: skip
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    first = tl.program_id(0).to(tl.int64) * BLOCK
    rows = tl.arange(0, BLOCK)
    valid = first + rows < ROWS
    us, radius, norm = point_of(
        product + first * STRIDE, a_in + first, time_weight, beta, slope, phi0, rows, valid,
        WIDTH, STRIDE, LANES, HEIGHT, PIECES, ACTIVATION, ROOT_K,
    )  # fmt: skip
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        store_piece(out + first * WIDTH, rows, valid, columns, us[i], WIDTH, WIDTH, LANES, EXACT)
    tl.store(out_radius + first + rows, radius, mask=valid)
    tl.store(out_norm + first + rows, norm, mask=valid)


@triton.jit
def store_tail(to_product, rows, valid, first, WIDTH: tl.constexpr, STRIDE: tl.constexpr, EXTRA: tl.constexpr):
    """Beyond its first WIDTH columns the product's gradient has one number a row, and zeros for the padding."""
    extra = tl.arange(0, EXTRA)
    place = to_product + rows[:, None] * STRIDE + WIDTH + extra[None, :]
    tail = tl.where(extra[None, :] == 0, first[:, None], 0.0)
    tl.store(place, tail, mask=valid[:, None] & (extra < STRIDE - WIDTH)[None, :])


@triton.jit
def store_sums(
    partials, sums, sum_beta, sum_slope, sum_phi0,
    WIDTH: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """A program's row: sums over its rows for w_0, then beta, slope and phi_0."""
    to_weight = sum_columns(sums, PIECES)
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        tl.store(partials + columns, to_weight[i], mask=columns < WIDTH)
    to_beta, to_slope, to_phi0 = sum_three(sum_beta, sum_slope, sum_phi0)
    tl.store(partials + WIDTH, to_beta)
    tl.store(partials + WIDTH + 1, to_slope)
    tl.store(partials + WIDTH + 2, to_phi0)


@triton.jit
def linear_backward_kernel(
    product, a_in, time_weight, beta, slope, in_radius, in_norm, grad_radius, grad, to_product, to_a, partials,
    ROWS, COLUMNS, WIDTH: tl.constexpr, STRIDE: tl.constexpr, EXTRA: tl.constexpr, LANES: tl.constexpr,
    HEIGHT: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr, TURNS: tl.constexpr,
    ACTIVATION: tl.constexpr, ROOT_K: tl.constexpr,
):  # fmt: skip
    """A program takes TURNS blocks of rows; its row of `partials` has the sums for w_0, beta, slope and phi0."""
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    program = tl.program_id(0).to(tl.int64)
    power, gain = tl.load(beta), tl.load(slope)
    rows = tl.arange(0, BLOCK)
    sums = ()
    for _ in tl.static_range(PIECES):
        sums = sums + (tl.zeros([BLOCK, HEIGHT, LANES], tl.float32),)
    sum_beta = tl.zeros([BLOCK], tl.float32)
    sum_slope = tl.zeros([BLOCK], tl.float32)
    sum_phi0 = tl.zeros([BLOCK], tl.float32)
    for turn in range(TURNS):
        first = (program * TURNS + turn) * BLOCK
        valid = first + rows < ROWS
        a = tl.load(a_in + first + rows, mask=valid, other=0.0)
        radius = tl.load(in_radius + first + rows, mask=valid, other=0.0)
        norm = tl.load(in_norm + first + rows, mask=valid, other=0.0)
        dot = tl.load(product + (first + rows) * STRIDE + WIDTH, mask=valid, other=0.0).to(tl.float32)
        g_l = tl.load(grad_radius + first + rows, mask=valid, other=0.0)
        g_l *= scaled_sinh(radius) / scaled_cosh(radius)
        ch = scaled_cosh(a)
        klein = scaled_sinh(a) / ch
        c = growth(a, ROOT_K)
        zero = norm == 0.0
        length = tl.where(zero, ORIGIN, norm)
        inverse = 1.0 / length

        ps, gs, us, slopes = (), (), (), ()
        alongs = tl.zeros([BLOCK, LANES], tl.float32)
        for i in tl.static_range(PIECES):
            columns = piece_columns(i, LANES, HEIGHT)
            p = load_piece(product + first * STRIDE, rows, valid, columns, STRIDE, WIDTH, LANES, EXACT)
            g = load_piece(grad + first * WIDTH, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT)
            weight = load_piece(time_weight, rows, valid, columns, 0, WIDTH, LANES, EXACT)
            h, steep = activated(per_row(klein) * p + weight, c, ACTIVATION)
            u = h * per_row(inverse)
            if i == 0:
                u += tl.where(per_row(zero) & (columns == 0)[None, :, :], 1.0, 0.0)
            alongs += fold(g * u)
            ps, gs, us, slopes = ps + (p,), gs + (g,), us + (u,), slopes + (steep,)
        pull = g_l * power - tl.sum(alongs, 1)
        products = tl.zeros([BLOCK, LANES], tl.float32)
        weights = tl.zeros([BLOCK, LANES], tl.float32)
        totals = ()
        for i in tl.static_range(PIECES):
            columns = piece_columns(i, LANES, HEIGHT)
            g = (per_row(pull) * us[i] + gs[i]) * per_row(inverse)
            if ACTIVATION != NONE:
                g *= slopes[i]
            products += fold(g * ps[i])
            if ACTIVATION == GELU:
                weights += fold(g * load_piece(time_weight, rows, valid, columns, 0, WIDTH, LANES, EXACT))
            totals = totals + (sums[i] + g,)
            g *= per_row(klein)
            store_piece(to_product + first * STRIDE, rows, valid, columns, g, STRIDE, WIDTH, LANES, EXACT)
        sums = totals
        store_tail(to_product + first * STRIDE, rows, valid, klein * g_l, WIDTH, STRIDE, EXTRA)

        by_klein = tl.sum(products, 1)
        g_a = (by_klein + g_l * dot) * tl.exp(-2.0 * a) / (ch * ch) + g_l * (power * klein + gain)
        if ACTIVATION == GELU:
            # h(z, c) is of degree 1 in (z, 1/c): c dh/dc = z dh/dz - h, and the gradient of h along h is g_l beta.
            by_c = klein * by_klein + tl.sum(weights, 1) - g_l * power
            g_a += tl.where(a < 40.0, klein * by_c, 0.0)
        tl.store(to_a + first + rows, g_a, mask=valid)
        sum_beta += g_l * (a + tl.log(length * ch))
        sum_slope += g_l * a
        sum_phi0 += g_l
    partials += program * COLUMNS
    store_sums(partials, sums, sum_beta, sum_slope, sum_phi0, WIDTH, LANES, HEIGHT, PIECES)
