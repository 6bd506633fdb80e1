"""Kernels between the products of attention: from the joint product to placed query, key and value heads, and back.

A tile is [tokens, heads, dimensions]. Heads are written dimension first, [B, H, d, N], as the attention kernel reads
them.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import asinh_of_root, scaled_cosh, scaled_sinh
from polarvit.kernels.linear.triton import ORIGIN, radius_of_log_sinh

NO_SHIFT, SEPARATE, JOINT = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def scaled_asinh(x, s):
    """asinh(e^s x) for x, s >= 0."""
    near = tl.exp(tl.minimum(s, 40.0)) * x
    far = s + tl.log(x + tl.sqrt(x * x + tl.exp(-2.0 * s)))
    return tl.where(s <= 40.0, asinh_of_root(near * near), tl.maximum(far, 0.0))


@triton.jit
def unit(x, axis):
    """Length and direction of the rows of a tile [T, H, D]; a zero row is (2^-60, e_0)."""
    square = tl.sum(x * x, 2)
    zero = square == 0.0
    norm = tl.where(zero, ORIGIN, tl.sqrt(square))
    return norm, tl.where(zero[:, :, None], tl.where(axis == 0, 1.0, 0.0), x / norm[:, :, None])


@triton.jit
def entry(x, axis, index: tl.constexpr):
    """Column `index` of the last axis, [T, H]."""
    return tl.sum(tl.where(axis == index, x, 0.0), 2)


@triton.jit
def horosphere(a, u, axis, ideal: tl.constexpr):
    """sh(a), nu e^-a/sqrt(k) and the gap 1 - u_ideal, which is a chord where it would cancel."""
    sh = scaled_sinh(a)
    first = entry(u, axis, ideal)
    apart = u - tl.where(axis == ideal, 1.0, 0.0)
    gap = tl.where(first >= 0.0, 0.5 * tl.sum(apart * apart, 2), 1.0 - first)
    return sh, tl.exp(-2.0 * a) + sh * gap, gap


@triton.jit
def shift(a, u, t, second, axis, ideal: tl.constexpr, slide: tl.constexpr, other: tl.constexpr):
    """Horospherical shift by t along `slide` and, if `other` >= 0, by `second` along it: radius, direction, length."""
    sh, nu, _ = horosphere(a, u, axis, ideal)
    lift = t * (sh * entry(u, axis, slide) + 0.5 * t * nu)
    x = sh[:, :, None] * u + tl.where(axis == slide, (t * nu)[:, :, None], 0.0)
    if other >= 0:
        lift += second * (sh * entry(u, axis, other) + 0.5 * second * nu)
        x += tl.where(axis == other, (second * nu)[:, :, None], 0.0)
    x += tl.where(axis == ideal, lift[:, :, None], 0.0)
    norm, direction = unit(x, axis)
    return scaled_asinh(norm, a), direction, norm


@triton.jit
def shift_backward(
    a, u, t, second, moved, norm, g_radius, g, axis, ideal: tl.constexpr, slide: tl.constexpr, other: tl.constexpr
):
    """Gradients of (a, u, t, second) from those of the shifted radius and direction."""
    sh, nu, gap = horosphere(a, u, axis, ideal)
    shrunk = tl.exp(-2.0 * a)
    hypot = tl.sqrt(norm * norm + shrunk)
    along = tl.sum(g * moved, 2)
    g_x = (g_radius / hypot - along / norm)[:, :, None] * moved + g / norm[:, :, None]
    g_ideal = entry(g_x, axis, ideal)
    g_slide = entry(g_x, axis, slide)
    g_t = nu * g_slide + (sh * entry(u, axis, slide) + t * nu) * g_ideal
    g_nu = t * g_slide + 0.5 * t * t * g_ideal
    base = g_x + tl.where(axis == slide, (t * g_ideal)[:, :, None], 0.0)
    g_second = g_t
    if other >= 0:
        g_other = entry(g_x, axis, other)
        g_second = nu * g_other + (sh * entry(u, axis, other) + second * nu) * g_ideal
        g_nu += second * g_other + 0.5 * second * second * g_ideal
        base += tl.where(axis == other, (second * g_ideal)[:, :, None], 0.0)
    pole = tl.where(axis == ideal, 1.0, 0.0)
    first = entry(u, axis, ideal)
    g_gap = (g_nu * sh)[:, :, None]
    g_u = sh[:, :, None] * base + g_gap * tl.where((first >= 0.0)[:, :, None], u - pole, -pole)
    g_a = g_radius * norm / hypot + shrunk * (tl.sum(base * u, 2) + g_nu * (gap - 2.0))
    return g_a, g_u, g_t, g_second


@triton.jit
def project_kernel(
    product, a_in, weight, scalars, log_gain, rate, place, out_radius, out,
    B, N, J0, HEADS: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr,
    BLOCK: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    j = tl.program_id(2) + J0
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head = tl.arange(0, HEADS_PAD)
    axis = tl.arange(0, WIDTH_PAD)[None, None, :]
    token_valid = n < N
    pair_valid = token_valid[:, None] & (head < HEADS)[None, :]
    valid = pair_valid[:, :, None] & (axis < WIDTH)
    column = head[None, :, None] * WIDTH + axis
    row = b * N + n
    a = tl.load(a_in + row, mask=token_valid, other=0.0)
    ch = scaled_cosh(a)
    klein = scaled_sinh(a) / ch
    p = tl.load(product + row[:, None, None] * STRIDE + j * HEADS * WIDTH + column, mask=valid, other=0.0)
    w = tl.load(weight + j * HEADS * WIDTH + column, mask=(head < HEADS)[None, :, None] & (axis < WIDTH), other=0.0)
    z = tl.where(valid, klein[:, None, None] * p + w, 0.0)
    square = tl.sum(z * z, 2)
    whole = tl.sum(square, 1)
    norm = tl.where(whole == 0.0, ORIGIN, tl.sqrt(whole))
    dot = tl.load(product + row * STRIDE + 3 * HEADS * WIDTH + j, mask=token_valid, other=0.0)
    log_norm = tl.log(norm)
    l = tl.load(scalars + 3 * j) * (log_norm + a + tl.log(ch)) + tl.load(scalars + 3 * j + 1) * a
    l += klein * dot + tl.load(scalars + 3 * j + 2)
    empty = square == 0.0
    part = tl.where(empty, ORIGIN * norm[:, None], tl.sqrt(square))
    u = tl.where(empty[:, :, None], tl.where(axis == 0, 1.0, 0.0), z / part[:, :, None])
    gain = tl.load(log_gain + j * HEADS + head, mask=head < HEADS, other=0.0)
    radius = radius_of_log_sinh((l - log_norm)[:, None] + tl.log(part)) * tl.exp(gain)[None, :]
    if MODE != NO_SHIFT:
        t = tl.load(place + 2 * n, mask=token_valid, other=0.0)[:, None]
        t = t * tl.load(rate + 2 * head, mask=head < HEADS, other=0.0)[None, :]
        second = tl.load(place + 2 * n + 1, mask=token_valid, other=0.0)[:, None]
        second = second * tl.load(rate + 2 * head + 1, mask=head < HEADS, other=0.0)[None, :]
        if MODE == SEPARATE:
            radius, u, _ = shift(radius, u, t, t, axis, 0, 1, -1)
            radius, u, _ = shift(radius, u, second, second, axis, 2, 3, -1)
        else:
            radius, u, _ = shift(radius, u, t, second, axis, 0, 1, 2)
    group = (j * B + b) * HEADS + head
    tl.store(out_radius + group[None, :] * N + n[:, None], radius, mask=pair_valid)
    tl.store(out + (group[None, :, None] * WIDTH + axis) * N + n[:, None, None], u, mask=valid)


@triton.jit
def project_backward_kernel(
    product, a_in, weight, scalars, log_gain, rate, place, grad_radius, grad,
    to_product, to_a, to_weight, to_scalars, to_gain, to_rate,
    B, N, J0, HEADS: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr,
    BLOCK: tl.constexpr, TURNS: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    share = tl.program_id(1)
    j = tl.program_id(2) + J0
    head = tl.arange(0, HEADS_PAD)
    axis = tl.arange(0, WIDTH_PAD)[None, None, :]
    column = head[None, :, None] * WIDTH + axis
    w_valid = (head < HEADS)[None, :, None] & (axis < WIDTH)
    w = tl.load(weight + j * HEADS * WIDTH + column, mask=w_valid, other=0.0)
    power, slope = tl.load(scalars + 3 * j), tl.load(scalars + 3 * j + 1)
    grown = tl.exp(tl.load(log_gain + j * HEADS + head, mask=head < HEADS, other=0.0))
    group = (j * B + b) * HEADS + head
    sum_weight = tl.zeros([1, HEADS_PAD, WIDTH_PAD], tl.float32)
    sum_gain = tl.zeros([HEADS_PAD], tl.float32)
    sum_first = tl.zeros([HEADS_PAD], tl.float32)
    sum_second = tl.zeros([HEADS_PAD], tl.float32)
    sum_power = tl.zeros([BLOCK], tl.float32)
    sum_slope = tl.zeros([BLOCK], tl.float32)
    sum_bias = tl.zeros([BLOCK], tl.float32)
    for turn in range(TURNS):
        n = (share * TURNS + turn) * BLOCK + tl.arange(0, BLOCK)
        token_valid = n < N
        pair_valid = token_valid[:, None] & (head < HEADS)[None, :]
        valid = pair_valid[:, :, None] & (axis < WIDTH)
        row = b * N + n
        a = tl.load(a_in + row, mask=token_valid, other=0.0)
        ch = scaled_cosh(a)
        klein = scaled_sinh(a) / ch
        p = tl.load(product + row[:, None, None] * STRIDE + j * HEADS * WIDTH + column, mask=valid, other=0.0)
        z = tl.where(valid, klein[:, None, None] * p + w, 0.0)
        square = tl.sum(z * z, 2)
        whole = tl.sum(square, 1)
        norm = tl.where(whole == 0.0, ORIGIN, tl.sqrt(whole))
        dot = tl.load(product + row * STRIDE + 3 * HEADS * WIDTH + j, mask=token_valid, other=0.0)
        log_norm = tl.log(norm)
        log_size = log_norm + a + tl.log(ch)
        l = power * log_size + slope * a + klein * dot + tl.load(scalars + 3 * j + 2)
        empty = square == 0.0
        part = tl.where(empty, ORIGIN * norm[:, None], tl.sqrt(square))
        u = tl.where(empty[:, :, None], tl.where(axis == 0, 1.0, 0.0), z / part[:, :, None])
        bare = radius_of_log_sinh((l - log_norm)[:, None] + tl.log(part))
        radius = bare * grown[None, :]

        g_radius = tl.load(grad_radius + group[None, :] * N + n[:, None], mask=pair_valid, other=0.0)
        g = tl.load(grad + (group[None, :, None] * WIDTH + axis) * N + n[:, None, None], mask=valid, other=0.0)
        if MODE != NO_SHIFT:
            y_place = tl.load(place + 2 * n, mask=token_valid, other=0.0)[:, None]
            x_place = tl.load(place + 2 * n + 1, mask=token_valid, other=0.0)[:, None]
            t = y_place * tl.load(rate + 2 * head, mask=head < HEADS, other=0.0)[None, :]
            second = x_place * tl.load(rate + 2 * head + 1, mask=head < HEADS, other=0.0)[None, :]
            if MODE == SEPARATE:
                radius1, u1, norm1 = shift(radius, u, t, t, axis, 0, 1, -1)
                _, u2, norm2 = shift(radius1, u1, second, second, axis, 2, 3, -1)
                g_radius, g, g_second, _ = shift_backward(
                    radius1, u1, second, second, u2, norm2, g_radius, g, axis, 2, 3, -1
                )
                g_radius, g, g_t, _ = shift_backward(radius, u, t, t, u1, norm1, g_radius, g, axis, 0, 1, -1)
            else:
                _, u1, norm1 = shift(radius, u, t, second, axis, 0, 1, 2)
                g_radius, g, g_t, g_second = shift_backward(radius, u, t, second, u1, norm1, g_radius, g, axis, 0, 1, 2)
            sum_first += tl.sum(tl.where(pair_valid, g_t * y_place, 0.0), 0)
            sum_second += tl.sum(tl.where(pair_valid, g_second * x_place, 0.0), 0)
        sum_gain += tl.sum(tl.where(pair_valid, g_radius * radius, 0.0), 0)
        g_log = tl.where(pair_valid, g_radius * grown[None, :] * scaled_sinh(bare) / scaled_cosh(bare), 0.0)
        g_l = tl.sum(g_log, 1)
        along = tl.sum(g * u, 2)
        g_z = ((g_log - along)[:, :, None] * u + g) / part[:, :, None]
        g_z += ((power - 1.0) * g_l / (norm * norm))[:, None, None] * z
        g_z = tl.where(valid, g_z, 0.0)
        place_out = to_product + row[:, None, None] * STRIDE + j * HEADS * WIDTH + column
        tl.store(place_out, klein[:, None, None] * g_z, mask=valid)
        tl.store(to_product + row * STRIDE + 3 * HEADS * WIDTH + j, klein * g_l, mask=token_valid)
        for extra in tl.static_range(3, STRIDE - 3 * HEADS * WIDTH):
            mine = token_valid & (extra % 3 == j)
            tl.store(to_product + row * STRIDE + 3 * HEADS * WIDTH + extra, tl.zeros([BLOCK], tl.float32), mask=mine)
        g_klein = tl.sum(tl.sum(g_z * p, 2), 1) + g_l * dot
        g_a = g_klein * tl.exp(-2.0 * a) / (ch * ch) + g_l * (power * klein + slope)
        tl.store(to_a + j * B * N + row, g_a, mask=token_valid)
        sum_weight += tl.sum(g_z, 0)[None, :, :]
        sum_power += tl.where(token_valid, g_l * log_size, 0.0)
        sum_slope += tl.where(token_valid, g_l * a, 0.0)
        sum_bias += tl.where(token_valid, g_l, 0.0)
    mine = (b * tl.num_programs(1) + share) * 3 + j
    tl.store(to_weight + mine * HEADS * WIDTH + column, sum_weight, mask=w_valid)
    tl.store(to_gain + mine * HEADS + head, sum_gain, mask=head < HEADS)
    tl.store(to_rate + (mine * HEADS + head) * 2, sum_first, mask=head < HEADS)
    tl.store(to_rate + (mine * HEADS + head) * 2 + 1, sum_second, mask=head < HEADS)
    tl.store(to_scalars + mine * 3, tl.sum(sum_power, 0))
    tl.store(to_scalars + mine * 3 + 1, tl.sum(sum_slope, 0))
    tl.store(to_scalars + mine * 3 + 2, tl.sum(sum_bias, 0))


@triton.jit
def merge_kernel(
    radius, direction, out_radius, out,
    N, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head = tl.arange(0, HEADS_PAD)
    axis = tl.arange(0, WIDTH_PAD)[None, None, :]
    token_valid = n < N
    pair_valid = token_valid[:, None] & (head < HEADS)[None, :]
    valid = pair_valid[:, :, None] & (axis < WIDTH)
    group = b * HEADS + head
    a = tl.load(radius + group[None, :] * N + n[:, None], mask=pair_valid, other=0.0)
    u = tl.load(direction + (group[None, :, None] * WIDTH + axis) * N + n[:, None, None], mask=valid, other=0.0)
    largest = tl.max(a, 1)
    x = tl.where(pair_valid, scaled_sinh(a) * tl.exp(a - largest[:, None]), 0.0)[:, :, None] * u
    whole = tl.sum(tl.sum(x * x, 2), 1)
    norm = tl.where(whole == 0.0, ORIGIN, tl.sqrt(whole))
    column = head[None, :, None] * WIDTH + axis
    joined = tl.where((whole == 0.0)[:, None, None], tl.where(column == 0, 1.0, 0.0), x / norm[:, None, None])
    row = b * N + n
    tl.store(out_radius + row, scaled_asinh(norm, largest), mask=token_valid)
    tl.store(out + row[:, None, None] * HEADS * WIDTH + column, joined, mask=valid)


@triton.jit
def merge_backward_kernel(
    radius, direction, grad_radius, grad, to_radius, to_direction,
    N, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head = tl.arange(0, HEADS_PAD)
    axis = tl.arange(0, WIDTH_PAD)[None, None, :]
    token_valid = n < N
    pair_valid = token_valid[:, None] & (head < HEADS)[None, :]
    valid = pair_valid[:, :, None] & (axis < WIDTH)
    group = b * HEADS + head
    a = tl.load(radius + group[None, :] * N + n[:, None], mask=pair_valid, other=0.0)
    place = (group[None, :, None] * WIDTH + axis) * N + n[:, None, None]
    u = tl.load(direction + place, mask=valid, other=0.0)
    row = b * N + n
    column = head[None, :, None] * WIDTH + axis
    g = tl.load(grad + row[:, None, None] * HEADS * WIDTH + column, mask=valid, other=0.0)
    g_radius = tl.load(grad_radius + row, mask=token_valid, other=0.0)
    largest = tl.max(a, 1)
    growth = tl.exp(a - largest[:, None])
    size = tl.where(pair_valid, scaled_sinh(a) * growth, 0.0)
    x = size[:, :, None] * u
    whole = tl.sum(tl.sum(x * x, 2), 1)
    norm = tl.where(whole == 0.0, ORIGIN, tl.sqrt(whole))
    joined = tl.where((whole == 0.0)[:, None, None], tl.where(column == 0, 1.0, 0.0), x / norm[:, None, None])
    along = tl.sum(tl.sum(g * joined, 2), 1)
    pull = g_radius / tl.sqrt(norm * norm + tl.exp(-2.0 * largest)) - along / norm
    g_x = pull[:, None, None] * joined + g / norm[:, None, None]
    tl.store(to_direction + place, size[:, :, None] * g_x, mask=valid)
    to_a = tl.sum(g_x * u, 2) * scaled_cosh(a) * growth
    tl.store(to_radius + group[None, :] * N + n[:, None], to_a, mask=pair_valid)
