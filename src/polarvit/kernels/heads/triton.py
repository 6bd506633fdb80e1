"""Kernels between the products of attention: from the joint product to placed query, key and value heads, and back.

A tile is [dimensions, heads, tokens]: a thread holds all dimensions of a head of a token, its neighbours are tokens,
and only the two sums over heads cross threads. The product comes features first, [3 D + extra, tokens], so that
neighbours read neighbours; queries are written dimension first, [B, H, d, N], keys and values [B, H, N, d], as the
attention kernels read them. UNIT is 1 and never specialised: the compiler must not see that tokens are contiguous,
or it would give a thread several of them.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh, scaled_sinh
from polarvit.kernels.heads.shift import NO_SHIFT, SEPARATE, scaled_asinh, shift, shift_backward
from polarvit.kernels.linear.triton import ORIGIN, radius_of_log_sinh


@triton.jit
def choose(condition, one, other):
    """One of two pointers."""
    result = other
    if condition:
        result = one
    return result


@triton.jit
def head_slices(product, weight, klein, heads, token, token_valid, T, HEADS: tl.constexpr, WIDTH: tl.constexpr,
                WIDTH_PAD: tl.constexpr):  # fmt: skip
    """The product p, z = tanh(a) p + w_0 and where it is valid, [dimensions, heads, tokens]."""
    dims = tl.arange(0, WIDTH_PAD)
    column = heads[None, :] * WIDTH + dims[:, None]
    inside = (heads < HEADS)[None, :] & (dims < WIDTH)[:, None]
    valid = inside[:, :, None] & token_valid[None, None, :]
    p = tl.load(product + column[:, :, None] * T + token[None, None, :], mask=valid, other=0.0)
    w = tl.load(weight + column, mask=inside, other=0.0)
    return p, tl.where(valid, klein[None, None, :] * p + w[:, :, None], 0.0), valid


@triton.jit
def coordinate(product, weight, klein, heads, token, valid, T, WIDTH: tl.constexpr, INDEX: tl.constexpr):
    """One coordinate of z, [heads, tokens]."""
    column = heads * WIDTH + INDEX
    p = tl.load(product + column[:, None] * T + token[None, :], mask=valid, other=0.0)
    w = tl.load(weight + column[:, None] + token[None, :] * 0, mask=valid, other=0.0)
    return tl.where(valid, klein[None, :] * p + w, 0.0)


@triton.jit
def insert(x, first, second, third, fourth, dims):
    """x with its first four coordinates replaced."""
    x = tl.where((dims == 0)[:, None, None], first[None, :, :], x)
    x = tl.where((dims == 1)[:, None, None], second[None, :, :], x)
    x = tl.where((dims == 2)[:, None, None], third[None, :, :], x)
    return tl.where((dims == 3)[:, None, None], fourth[None, :, :], x)


@triton.jit
def split(z, norm, l, grown):
    """Sum of squares, length and gained radius of each head of z, and whether it is empty."""
    square = tl.sum(z * z, 0)
    empty = square == 0.0
    part = tl.where(empty, ORIGIN * norm[None, :], tl.sqrt(square))
    bare = radius_of_log_sinh((l - tl.log(norm))[None, :] + tl.log(part))
    return part, bare, empty


@triton.jit
def layer(a, klein, ch, z, dot, scalars):
    """Length of z over all heads, ln of |h|/sqrt k, and l of the radius rule."""
    whole = tl.sum(tl.sum(z * z, 0), 0)
    norm = tl.where(whole == 0.0, ORIGIN, tl.sqrt(whole))
    log_size = tl.log(norm) + a + tl.log(ch)
    return norm, log_size, tl.load(scalars) * log_size + tl.load(scalars + 1) * a + klein * dot + tl.load(scalars + 2)


@triton.jit(do_not_specialize=["T", "N", "UNIT"])
def project_kernel(
    product, a_in, weight, scalars, log_gain, rate, place,
    query_radius, query, key_radius, key, value_radius, value,
    T, N, UNIT, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1)
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    token_valid = token < T
    heads, dims = tl.arange(0, HEADS_PAD), tl.arange(0, WIDTH_PAD)
    pair = (heads < HEADS)[:, None] & token_valid[None, :]
    spot = token * UNIT
    a = tl.load(a_in + spot, mask=token_valid, other=0.0)
    ch = scaled_cosh(a)
    klein = scaled_sinh(a) / ch
    dot = tl.load(product + (3 * HEADS * WIDTH + j) * T + spot, mask=token_valid, other=0.0)
    product += j * HEADS * WIDTH * T
    weight += j * HEADS * WIDTH
    _, z, valid = head_slices(product, weight, klein, heads, spot, token_valid, T, HEADS, WIDTH, WIDTH_PAD)
    norm, _, l = layer(a, klein, ch, z, dot, scalars + 3 * j)
    gain = tl.exp(tl.load(log_gain + j * HEADS + heads, mask=heads < HEADS, other=0.0))
    part, bare, empty = split(z, norm, l, gain)
    radius = bare * gain[:, None]
    b, n = token // N, token % N
    group = b[None, :] * HEADS + heads[:, None]
    inverse = 1.0 / part
    u = z * inverse[None, :, :]
    if MODE != NO_SHIFT:  # noqa: SIM102 (one is known when compiling, the other is not)
        if j < 2:
            c0 = coordinate(product, weight, klein, heads, spot, pair, T, WIDTH, 0) * inverse
            c1 = coordinate(product, weight, klein, heads, spot, pair, T, WIDTH, 1) * inverse
            c2 = coordinate(product, weight, klein, heads, spot, pair, T, WIDTH, 2) * inverse
            c3 = c2 * 0.0
            if WIDTH > 3:
                c3 = coordinate(product, weight, klein, heads, spot, pair, T, WIDTH, 3) * inverse
            c0 = tl.where(empty, 1.0, c0)
            R = tl.sum(tl.where((dims > 3)[:, None, None], u * u, 0.0), 0)
            y_place = tl.load(place + 2 * n, mask=token_valid, other=0.0)[None, :]
            x_place = tl.load(place + 2 * n + 1, mask=token_valid, other=0.0)[None, :]
            t = y_place * tl.load(rate + 2 * heads, mask=heads < HEADS, other=0.0)[:, None]
            second = x_place * tl.load(rate + 2 * heads + 1, mask=heads < HEADS, other=0.0)[:, None]
            factor = inverse
            if MODE == SEPARATE:
                radius, c0, c1, c2, c3, f, _length = shift(radius, c0, c1, c2, c3, R, t, t, False)
                radius, c2, c3, c0, c1, f2, _length = shift(radius, c2, c3, c0, c1, f * f * R, second, second, False)
                factor = f * f2
            else:
                radius, c0, c1, c2, c3, factor, _length = shift(radius, c0, c1, c2, c3, R, t, second, True)
            u = insert(factor[None, :, :] * u, c0, c1, c2, c3, dims)
            empty = empty & False
    u = tl.where(empty[None, :, :] & (dims == 0)[:, None, None], 1.0, u)
    radius_spot = group * N + n[None, :]
    if j == 0:
        tl.store(query_radius + radius_spot, radius, mask=pair)
        tl.store(query + (group[None, :, :] * WIDTH + dims[:, None, None]) * N + n[None, None, :], u, mask=valid)
    else:
        tl.store(choose(j == 1, key_radius, value_radius) + radius_spot, radius, mask=pair)
        out = choose(j == 1, key, value)
        tl.store(out + radius_spot[None, :, :] * WIDTH + dims[:, None, None], u, mask=valid)


@triton.jit(do_not_specialize=["T", "N", "UNIT"])
def project_backward_kernel(
    product, a_in, weight, scalars, log_gain, rate, place,
    grad_query_radius, grad_query, grad_key_radius, grad_key, grad_value_radius, grad_value,
    to_product, to_a, partials,
    T, N, EXTRA, UNIT, HEADS: tl.constexpr, WIDTH: tl.constexpr, TURNS: tl.constexpr,
    BLOCK: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    """Gradients of the product and of a; weight, gain, rates and scalars as one row of `partials` for each program."""
    j = tl.program_id(1)
    heads, dims = tl.arange(0, HEADS_PAD), tl.arange(0, WIDTH_PAD)
    in_heads = heads < HEADS
    dot_row = (3 * HEADS * WIDTH + j) * T
    tail = to_product + 3 * HEADS * WIDTH * T
    product_dot = product + dot_row
    to_dot = to_product + dot_row
    product += j * HEADS * WIDTH * T
    to_product += j * HEADS * WIDTH * T
    weight += j * HEADS * WIDTH
    scalars += 3 * j
    grad_radius = choose(j == 0, grad_query_radius, choose(j == 1, grad_key_radius, grad_value_radius))
    grad = choose(j == 0, grad_query, choose(j == 1, grad_key, grad_value))
    power, slope = tl.load(scalars), tl.load(scalars + 1)
    gain = tl.exp(tl.load(log_gain + j * HEADS + heads, mask=in_heads, other=0.0))
    sum_weight = tl.zeros([WIDTH_PAD, HEADS_PAD, BLOCK], tl.float32)
    sum_gain = tl.zeros([HEADS_PAD, BLOCK], tl.float32)
    sum_first = tl.zeros([HEADS_PAD, BLOCK], tl.float32)
    sum_second = tl.zeros([HEADS_PAD, BLOCK], tl.float32)
    sum_power = tl.zeros([BLOCK], tl.float32)
    sum_slope = tl.zeros([BLOCK], tl.float32)
    sum_bias = tl.zeros([BLOCK], tl.float32)
    for turn in range(TURNS):
        token = (tl.program_id(0) * TURNS + turn) * BLOCK + tl.arange(0, BLOCK)
        token_valid = token < T
        pair = in_heads[:, None] & token_valid[None, :]
        spot = token * UNIT
        a = tl.load(a_in + spot, mask=token_valid, other=0.0)
        ch = scaled_cosh(a)
        klein = scaled_sinh(a) / ch
        dot = tl.load(product_dot + spot, mask=token_valid, other=0.0)
        p, z, valid = head_slices(product, weight, klein, heads, spot, token_valid, T, HEADS, WIDTH, WIDTH_PAD)
        norm, log_size, l = layer(a, klein, ch, z, dot, scalars)
        part, bare, empty = split(z, norm, l, gain)
        radius = bare * gain[:, None]
        inverse = 1.0 / part
        b, n = token // N, token % N
        group = b[None, :] * HEADS + heads[:, None]
        g_radius = tl.load(grad_radius + group * N + n[None, :], mask=pair, other=0.0)
        spots = (group[None, :, :] * WIDTH + dims[:, None, None]) * N + n[None, None, :]
        g = tl.load(grad + spots, mask=valid, other=0.0)
        # along: the gradient of the direction times the direction; C z + D g is that of z, but for four coordinates.
        whole = tl.sum(g * z, 0) * inverse
        along, C, D = whole, tl.zeros([HEADS_PAD, BLOCK], tl.float32), inverse
        c0 = coordinate(product, weight, klein, heads, spot, pair, T, WIDTH, 0) * inverse
        c0 = tl.where(empty, 1.0, c0)
        if MODE == NO_SHIFT:
            g0 = tl.load(grad + (group * WIDTH) * N + n[None, :], mask=pair, other=0.0)
            along = tl.where(empty, g0, along)
            h0 = g0
            h1, h2, h3, c1, c2, c3 = c0, c0, c0, c0, c0, c0
        else:
            c1 = coordinate(product, weight, klein, heads, spot, pair, T, WIDTH, 1) * inverse
            c2 = coordinate(product, weight, klein, heads, spot, pair, T, WIDTH, 2) * inverse
            h0 = tl.load(grad + (group * WIDTH) * N + n[None, :], mask=pair, other=0.0)
            h1 = tl.load(grad + (group * WIDTH + 1) * N + n[None, :], mask=pair, other=0.0)
            h2 = tl.load(grad + (group * WIDTH + 2) * N + n[None, :], mask=pair, other=0.0)
            c3, h3 = c2 * 0.0, h2 * 0.0
            if WIDTH > 3:
                c3 = coordinate(product, weight, klein, heads, spot, pair, T, WIDTH, 3) * inverse
                h3 = tl.load(grad + (group * WIDTH + 3) * N + n[None, :], mask=pair, other=0.0)
            along = tl.where(empty, h0, along)
            if j < 2:
                rest = (dims > 3)[:, None, None]
                R = tl.sum(tl.where(rest, z * z, 0.0), 0) * inverse * inverse
                q = tl.sum(tl.where(rest, z * g, 0.0), 0) * inverse
                y_place = tl.load(place + 2 * n, mask=token_valid, other=0.0)[None, :]
                x_place = tl.load(place + 2 * n + 1, mask=token_valid, other=0.0)[None, :]
                t = y_place * tl.load(rate + 2 * heads, mask=in_heads, other=0.0)[:, None]
                second = x_place * tl.load(rate + 2 * heads + 1, mask=in_heads, other=0.0)[:, None]
                one = tl.full([HEADS_PAD, BLOCK], 1.0, tl.float32)
                none = tl.zeros([HEADS_PAD, BLOCK], tl.float32)
                if MODE == SEPARATE:
                    r1, d0, d1, d2, d3, f1, n1 = shift(radius, c0, c1, c2, c3, R, t, t, False)
                    _r2, e2, e3, e0, e1, f2, n2 = shift(r1, d2, d3, d0, d1, f1 * f1 * R, second, second, False)
                    g_radius, h2, h3, h0, h1, alpha, beta, g_second, _unused = shift_backward(
                        r1, d2, d3, d0, d1, R, second, second, f1, e2, e3, e0, e1, f2, n2,
                        g_radius, h2, h3, h0, h1, one, none, q, False,
                    )  # fmt: skip
                    g_radius, h0, h1, h2, h3, alpha, beta, g_t, _unused = shift_backward(
                        radius, c0, c1, c2, c3, R, t, t, one, d0, d1, d2, d3, f1, n1,
                        g_radius, h0, h1, h2, h3, alpha, beta, q, False,
                    )  # fmt: skip
                else:
                    r1, d0, d1, d2, d3, f1, n1 = shift(radius, c0, c1, c2, c3, R, t, second, True)
                    g_radius, h0, h1, h2, h3, alpha, beta, g_t, g_second = shift_backward(
                        radius, c0, c1, c2, c3, R, t, second, one, d0, d1, d2, d3, f1, n1,
                        g_radius, h0, h1, h2, h3, one, none, q, True,
                    )  # fmt: skip
                along = h0 * c0 + h1 * c1 + h2 * c2 + h3 * c3 + alpha * q + beta * R
                C, D = beta * inverse * inverse, alpha * inverse
                sum_first += tl.where(pair, g_t * y_place, 0.0)
                sum_second += tl.where(pair, g_second * x_place, 0.0)
        sum_gain += tl.where(pair, g_radius * radius, 0.0)
        g_log = tl.where(pair, g_radius * gain[:, None] * scaled_sinh(bare) / scaled_cosh(bare), 0.0)
        g_l = tl.sum(g_log, 0)
        K = ((power - 1.0) * g_l / (norm * norm))[None, :]
        stretch = (g_log - along) * inverse
        g_z = (C + stretch * inverse + K)[None, :, :] * z + D[None, :, :] * g
        part2 = K * part
        h0, h1 = (stretch + part2) * c0 + h0 * inverse, (stretch + part2) * c1 + h1 * inverse
        h2, h3 = (stretch + part2) * c2 + h2 * inverse, (stretch + part2) * c3 + h3 * inverse
        if MODE == NO_SHIFT:
            g_z = tl.where((dims == 0)[:, None, None], h0[None, :, :], g_z)
        else:
            g_z = insert(g_z, h0, h1, h2, h3, dims)
        g_z = tl.where(valid, g_z, 0.0)
        column = heads[None, :] * WIDTH + dims[:, None]
        tl.store(to_product + column[:, :, None] * T + spot[None, None, :], klein[None, None, :] * g_z, mask=valid)
        tl.store(to_dot + spot, klein * g_l, mask=token_valid)
        for extra in range(3 + j, EXTRA, 3):
            tl.store(tail + extra * T + spot, tl.zeros([BLOCK], tl.float32), mask=token_valid)
        g_klein = tl.sum(tl.sum(g_z * p, 0), 0) + g_l * dot
        g_a = g_klein * tl.exp(-2.0 * a) / (ch * ch) + g_l * (power * klein + slope)
        tl.store(to_a + j * T + spot, g_a, mask=token_valid)
        sum_weight += g_z
        sum_power += tl.where(token_valid, g_l * log_size, 0.0)
        sum_slope += tl.where(token_valid, g_l * a, 0.0)
        sum_bias += tl.where(token_valid, g_l, 0.0)
    partials += (tl.program_id(0) * 3 + j) * (HEADS * WIDTH + 3 * HEADS + 3)
    column = heads[None, :] * WIDTH + dims[:, None]
    tl.store(partials + column, tl.sum(sum_weight, 2), mask=in_heads[None, :] & (dims < WIDTH)[:, None])
    partials += HEADS * WIDTH
    tl.store(partials + heads, tl.sum(sum_gain, 1), mask=in_heads)
    tl.store(partials + HEADS + 2 * heads, tl.sum(sum_first, 1), mask=in_heads)
    tl.store(partials + HEADS + 2 * heads + 1, tl.sum(sum_second, 1), mask=in_heads)
    partials += 3 * HEADS
    tl.store(partials, tl.sum(sum_power, 0))
    tl.store(partials + 1, tl.sum(sum_slope, 0))
    tl.store(partials + 2, tl.sum(sum_bias, 0))


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
