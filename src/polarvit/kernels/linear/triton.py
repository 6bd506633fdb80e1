"""Forward and backward kernel of the polar linear layer's epilogue: rows are tokens, columns output features."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import normal_share, scaled_cosh, scaled_sinh
from polarvit.kernels.chunks import (
    chunk_columns,
    load_chunk,
    load_columns,
    store_chunk,
    store_columns,
    sum_columns,
    sum_three,
    zero_chunks,
)

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
    """phi(c z)/c, its slope by z and, for GELU, by c."""
    if ACTIVATION == RELU:
        steep = tl.where(z > 0.0, 1.0, 0.0)
        return tl.maximum(z, 0.0), steep, steep
    elif ACTIVATION == GELU:
        x = c[:, None] * z
        share, density = normal_share(x)
        return z * share, share + x * density, (z * z) * density
    else:
        return z, z, z


@triton.jit
def growth(a, ROOT_K: tl.constexpr):
    """sqrt(k) cosh a and its derivative; GELU has saturated long before the cap on a matters."""
    grown = tl.exp(tl.minimum(a, 40.0))
    fallen = 1.0 / grown
    return 0.5 * ROOT_K * (grown + fallen), tl.where(a < 40.0, 0.5 * ROOT_K * (grown - fallen), 0.0)


@triton.jit
def linear_forward_kernel(
    product, a_in, time_weight, beta, slope, phi0, out_radius, out, out_norm,
    ROWS, WIDTH: tl.constexpr, STRIDE: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, ROOT_K: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * BLOCK
    rows = tl.arange(0, BLOCK)
    valid = first + rows < ROWS
    product += first * STRIDE
    out += first * WIDTH
    a = tl.load(a_in + first + rows, mask=valid, other=0.0)
    dot = tl.load(product + rows * STRIDE + WIDTH, mask=valid, other=0.0)
    ch = scaled_cosh(a)
    klein = scaled_sinh(a) / ch
    c, _ = growth(a, ROOT_K)
    h = ()
    squares = tl.zeros([BLOCK, LANES], tl.float32)
    for i in tl.static_range((WIDTH + LANES - 1) // LANES):
        columns = chunk_columns(i, LANES)
        p = load_chunk(product, rows, valid, columns, STRIDE, WIDTH, LANES)
        z = klein[:, None] * p + load_columns(time_weight, columns, WIDTH, LANES)[None, :]
        y, _, _ = activated(z, c, ACTIVATION)
        squares += y * y
        h = h + (y,)
    norm = tl.sqrt(tl.sum(squares, 1))
    zero = norm == 0.0
    length = tl.where(zero, ORIGIN, norm)
    inverse = 1.0 / length
    for i in tl.static_range((WIDTH + LANES - 1) // LANES):
        columns = chunk_columns(i, LANES)
        direction = h[i] * inverse[:, None]
        if i == 0:
            direction += tl.where(zero[:, None] & (columns == 0)[None, :], 1.0, 0.0)
        store_chunk(out, rows, valid, columns, direction, WIDTH, WIDTH, LANES)
    l = tl.load(beta) * (a + tl.log(length * ch)) + tl.load(slope) * a + klein * dot + tl.load(phi0)
    tl.store(out_radius + first + rows, radius_of_log_sinh(l), mask=valid)
    tl.store(out_norm + first + rows, norm, mask=valid)


@triton.jit
def linear_backward_kernel(
    product, a_in, time_weight, beta, slope, in_radius, in_norm, grad_radius, grad, to_product, to_a, partials,
    ROWS, COLUMNS, WIDTH: tl.constexpr, STRIDE: tl.constexpr, EXTRA: tl.constexpr, LANES: tl.constexpr,
    BLOCK: tl.constexpr, TURNS: tl.constexpr, ACTIVATION: tl.constexpr, ROOT_K: tl.constexpr,
):  # fmt: skip
    """A program takes TURNS blocks of rows; its row of `partials` has the sums for w_0, beta, slope and phi0."""
    program = tl.program_id(0).to(tl.int64)
    power, gain = tl.load(beta), tl.load(slope)
    rows = tl.arange(0, BLOCK)
    sum_weight = zero_chunks(BLOCK, WIDTH, LANES)
    sum_beta = tl.zeros([BLOCK], tl.float32)
    sum_slope = tl.zeros([BLOCK], tl.float32)
    sum_phi0 = tl.zeros([BLOCK], tl.float32)
    for turn in range(TURNS):
        first = (program * TURNS + turn) * BLOCK
        valid = first + rows < ROWS
        a = tl.load(a_in + first + rows, mask=valid, other=0.0)
        radius = tl.load(in_radius + first + rows, mask=valid, other=0.0)
        norm = tl.load(in_norm + first + rows, mask=valid, other=0.0)
        dot = tl.load(product + (first + rows) * STRIDE + WIDTH, mask=valid, other=0.0)
        g_l = tl.load(grad_radius + first + rows, mask=valid, other=0.0)
        g_l *= scaled_sinh(radius) / scaled_cosh(radius)
        ch = scaled_cosh(a)
        klein = scaled_sinh(a) / ch
        c, rise = growth(a, ROOT_K)
        zero = norm == 0.0
        length = tl.where(zero, ORIGIN, norm)
        inverse = 1.0 / length

        p, g, u, slopes, bends = (), (), (), (), ()
        alongs = tl.zeros([BLOCK, LANES], tl.float32)
        for i in tl.static_range((WIDTH + LANES - 1) // LANES):
            columns = chunk_columns(i, LANES)
            p = p + (load_chunk(product + first * STRIDE, rows, valid, columns, STRIDE, WIDTH, LANES),)
            g = g + (load_chunk(grad + first * WIDTH, rows, valid, columns, WIDTH, WIDTH, LANES),)
            z = klein[:, None] * p[i] + load_columns(time_weight, columns, WIDTH, LANES)[None, :]
            h, steep, bend = activated(z, c, ACTIVATION)
            direction = h * inverse[:, None]
            if i == 0:
                direction += tl.where(zero[:, None] & (columns == 0)[None, :], 1.0, 0.0)
            alongs += g[i] * direction
            u, slopes, bends = u + (direction,), slopes + (steep,), bends + (bend,)
        pull = g_l * power - tl.sum(alongs, 1)
        by_klein = tl.zeros([BLOCK, LANES], tl.float32)
        by_c = tl.zeros([BLOCK, LANES], tl.float32)
        total = ()
        for i in tl.static_range((WIDTH + LANES - 1) // LANES):
            columns = chunk_columns(i, LANES)
            g_z = (pull[:, None] * u[i] + g[i]) * inverse[:, None]
            if ACTIVATION == GELU:
                by_c += g_z * bends[i]
            if ACTIVATION != NONE:
                g_z *= slopes[i]
            by_klein += g_z * p[i]
            total = total + (sum_weight[i] + g_z,)
            store_chunk(to_product + first * STRIDE, rows, valid, columns, klein[:, None] * g_z, STRIDE, WIDTH, LANES)
        sum_weight = total
        extra = tl.arange(0, EXTRA)
        tail = tl.where(extra[None, :] == 0, (klein * g_l)[:, None], 0.0)
        place = to_product + (first + rows)[:, None] * STRIDE + WIDTH + extra[None, :]
        tl.store(place, tail, mask=valid[:, None] & (extra < STRIDE - WIDTH)[None, :])

        g_a = (tl.sum(by_klein, 1) + g_l * dot) * tl.exp(-2.0 * a) / (ch * ch) + g_l * (power * klein + gain)
        if ACTIVATION == GELU:
            g_a += tl.sum(by_c, 1) * rise
        tl.store(to_a + first + rows, g_a, mask=valid)
        sum_beta += g_l * (a + tl.log(length * ch))
        sum_slope += g_l * a
        sum_phi0 += g_l
    partials += program * COLUMNS
    whole = sum_columns(sum_weight, WIDTH, LANES)
    for i in tl.static_range((WIDTH + LANES - 1) // LANES):
        store_columns(partials, chunk_columns(i, LANES), whole[i], WIDTH, LANES)
    to_beta, to_slope, to_phi0 = sum_three(sum_beta, sum_slope, sum_phi0)
    tl.store(partials + WIDTH, to_beta)
    tl.store(partials + WIDTH + 1, to_slope)
    tl.store(partials + WIDTH + 2, to_phi0)
