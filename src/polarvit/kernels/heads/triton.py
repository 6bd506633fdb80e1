"""Kernels between the products of attention: from the joint product to placed query, key and value heads, and back.

A tile is [dimensions, pairs], a pair being a head of a token: a thread holds all dimensions of a pair, its neighbours
are the same head of the next tokens, and only three sums over heads cross threads. The product comes features first,
[3 D + extra, tokens], and heads are written dimension first, [B, H, d, N], so that neighbours touch neighbours.

The layout rests on two words to the compiler. `alike` says that neighbouring pairs are neighbours in memory, which
makes them neighbours among the threads. ZERO, always 0 and never specialised, hides that they are aligned, or a thread
would get four of them; and as it hides that, `alike` can do no harm where a run of tokens ends.
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
def alike(x, ZERO, BLOCK: tl.constexpr):
    """x, laid out as if neighbouring pairs were neighbours in memory."""
    return tl.max_contiguous(x + ZERO, BLOCK)


@triton.jit
def over_heads(x, HEADS_PAD: tl.constexpr, BLOCK: tl.constexpr):
    """The sum over the heads of a token, for each pair."""
    whole = tl.sum(tl.reshape(x, [HEADS_PAD, BLOCK]), 0)
    return tl.reshape(tl.broadcast_to(whole[None, :], [HEADS_PAD, BLOCK]), [HEADS_PAD * BLOCK])


@triton.jit
def coordinate(product, weight, klein, column, token, valid, T, INDEX: tl.constexpr):
    """One coordinate of z."""
    p = tl.load(product + (column + INDEX) * T + token, mask=valid, other=0.0).to(tl.float32)
    w = tl.load(weight + column + INDEX, mask=valid, other=0.0)
    return tl.where(valid, klein * p + w, 0.0)


@triton.jit
def insert(x, first, second, third, fourth, dims):
    """x with its first four coordinates replaced."""
    x = tl.where((dims == 0)[:, None], first[None, :], x)
    x = tl.where((dims == 1)[:, None], second[None, :], x)
    x = tl.where((dims == 2)[:, None], third[None, :], x)
    return tl.where((dims == 3)[:, None], fourth[None, :], x)


@triton.jit
def split(z, a, ch, klein, dot, scalars, HEADS_PAD: tl.constexpr, BLOCK: tl.constexpr):
    """Length of the token's z, ln of |h|/sqrt k, length of the head's part, its radius, and whether it is empty."""
    square = tl.sum(z * z, 0)
    whole = over_heads(square, HEADS_PAD, BLOCK)
    norm = tl.where(whole == 0.0, ORIGIN, tl.sqrt(whole))
    log_norm = tl.log(norm)
    log_size = log_norm + a + tl.log(ch)
    l = tl.load(scalars) * log_size + tl.load(scalars + 1) * a + klein * dot + tl.load(scalars + 2)
    empty = square == 0.0
    part = tl.where(empty, ORIGIN * norm, tl.sqrt(square))
    return norm, log_size, part, radius_of_log_sinh(l - log_norm + tl.log(part)), empty


@triton.jit(do_not_specialize=["T", "N", "ZERO", "ONE"])
def project_kernel(
    product, a_in, weight, scalars, log_gain, rate, place,
    query_radius, query, key_radius, key, value_radius, value,
    T, N, ZERO, ONE, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1)
    pairs, dims = tl.arange(0, HEADS_PAD * BLOCK), tl.arange(0, WIDTH_PAD)
    head = pairs // BLOCK
    token = tl.program_id(0) * BLOCK + pairs % BLOCK
    pair = (head < HEADS) & (token < T)
    valid = pair[None, :] & (dims < WIDTH)[:, None]
    spot = alike(token, ZERO, BLOCK)
    column = head * WIDTH
    a = tl.load(a_in + spot, mask=pair, other=0.0)
    ch = scaled_cosh(a)
    klein = scaled_sinh(a) / ch
    dot = tl.load(product + (3 * HEADS * WIDTH + j) * T + spot, mask=pair, other=0.0).to(tl.float32)
    product += j * HEADS * WIDTH * T
    weight += j * HEADS * WIDTH
    spots = dims[:, None] * T + alike(column * T + token, ZERO, BLOCK)[None, :]
    p = tl.load(product + spots, mask=valid, other=0.0).to(tl.float32)
    w = tl.load(weight + dims[:, None] * ONE + alike(column, ZERO, BLOCK)[None, :], mask=valid, other=0.0)
    z = tl.where(valid, klein[None, :] * p + w, 0.0)
    _, _, part, bare, empty = split(z, a, ch, klein, dot, scalars + 3 * j, HEADS_PAD, BLOCK)
    gain = tl.exp(tl.load(log_gain + j * HEADS + head, mask=head < HEADS, other=0.0))
    radius = bare * gain
    n = token % N
    group = (token // N) * HEADS + head
    inverse = 1.0 / part
    u = z * inverse[None, :]
    if MODE != NO_SHIFT:  # noqa: SIM102 (one is known when compiling, the other is not)
        if j < 2:
            c0 = coordinate(product, weight, klein, column, spot, pair, T, 0) * inverse
            c1 = coordinate(product, weight, klein, column, spot, pair, T, 1) * inverse
            c2 = coordinate(product, weight, klein, column, spot, pair, T, 2) * inverse
            c3 = c2 * 0.0
            if WIDTH > 3:
                c3 = coordinate(product, weight, klein, column, spot, pair, T, 3) * inverse
            c0 = tl.where(empty, 1.0, c0)
            R = tl.sum(tl.where((dims > 3)[:, None], u * u, 0.0), 0)
            t = tl.load(place + 2 * n, mask=pair, other=0.0) * tl.load(rate + 2 * head, mask=pair, other=0.0)
            second = tl.load(place + 2 * n + 1, mask=pair, other=0.0) * tl.load(
                rate + 2 * head + 1, mask=pair, other=0.0
            )
            if MODE == SEPARATE:
                radius, c0, c1, c2, c3, f, _length = shift(radius, c0, c1, c2, c3, R, t, t, False)
                radius, c2, c3, c0, c1, f2, _length = shift(radius, c2, c3, c0, c1, f * f * R, second, second, False)
                factor = f * f2
            else:
                radius, c0, c1, c2, c3, factor, _length = shift(radius, c0, c1, c2, c3, R, t, second, True)
            u = insert(factor[None, :] * u, c0, c1, c2, c3, dims)
            empty = empty & False
    u = tl.where(empty[None, :] & (dims == 0)[:, None], 1.0, u)
    out_radius = choose(j == 0, query_radius, choose(j == 1, key_radius, value_radius))
    out = choose(j == 0, query, choose(j == 1, key, value))
    tl.store(out_radius + group * N + n, radius, mask=pair)
    tl.store(out + dims[:, None] * N + alike(group * WIDTH * N + n, ZERO, BLOCK)[None, :], u, mask=valid)


@triton.jit(do_not_specialize=["T", "N", "ZERO", "ONE"])
def project_backward_kernel(
    product, a_in, weight, scalars, log_gain, rate, place,
    grad_query_radius, grad_query, grad_key_radius, grad_key, grad_value_radius, grad_value,
    to_product, to_a, partials,
    T, N, EXTRA, ZERO, ONE, HEADS: tl.constexpr, WIDTH: tl.constexpr, TURNS: tl.constexpr,
    BLOCK: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    """Gradients of the product and of a; weight, gain, rates and scalars as one row of `partials` for each program."""
    PAIRS: tl.constexpr = HEADS_PAD * BLOCK
    j = tl.program_id(1)
    pairs, dims = tl.arange(0, PAIRS), tl.arange(0, WIDTH_PAD)
    head = pairs // BLOCK
    column = head * WIDTH
    product_dot = product + (3 * HEADS * WIDTH + j) * T
    to_dot = to_product + (3 * HEADS * WIDTH + j) * T
    tail = to_product + 3 * HEADS * WIDTH * T
    product += j * HEADS * WIDTH * T
    to_product += j * HEADS * WIDTH * T
    weight += j * HEADS * WIDTH
    scalars += 3 * j
    grad_radius = choose(j == 0, grad_query_radius, choose(j == 1, grad_key_radius, grad_value_radius))
    grad = choose(j == 0, grad_query, choose(j == 1, grad_key, grad_value))
    power, slope = tl.load(scalars), tl.load(scalars + 1)
    gain = tl.exp(tl.load(log_gain + j * HEADS + head, mask=head < HEADS, other=0.0))
    inside = (head < HEADS)[None, :] & (dims < WIDTH)[:, None]
    w = tl.load(weight + dims[:, None] * ONE + alike(column, ZERO, BLOCK)[None, :], mask=inside, other=0.0)
    sum_weight = tl.zeros([WIDTH_PAD, PAIRS], tl.float32)
    sum_gain = tl.zeros([PAIRS], tl.float32)
    sum_first = tl.zeros([PAIRS], tl.float32)
    sum_second = tl.zeros([PAIRS], tl.float32)
    sum_power = tl.zeros([PAIRS], tl.float32)
    sum_slope = tl.zeros([PAIRS], tl.float32)
    sum_bias = tl.zeros([PAIRS], tl.float32)
    for turn in range(TURNS):
        token = (tl.program_id(0) * TURNS + turn) * BLOCK + pairs % BLOCK
        pair = (head < HEADS) & (token < T)
        once = pair & (head == 0)
        valid = pair[None, :] & (dims < WIDTH)[:, None]
        spot = alike(token, ZERO, BLOCK)
        a = tl.load(a_in + spot, mask=pair, other=0.0)
        ch = scaled_cosh(a)
        klein = scaled_sinh(a) / ch
        dot = tl.load(product_dot + spot, mask=pair, other=0.0).to(tl.float32)
        spots = dims[:, None] * T + alike(column * T + token, ZERO, BLOCK)[None, :]
        p = tl.load(product + spots, mask=valid, other=0.0).to(tl.float32)
        z = tl.where(valid, klein[None, :] * p + w, 0.0)
        norm, log_size, part, bare, empty = split(z, a, ch, klein, dot, scalars, HEADS_PAD, BLOCK)
        radius = bare * gain
        inverse = 1.0 / part
        n = token % N
        group = (token // N) * HEADS + head
        g_radius = tl.load(grad_radius + group * N + n, mask=pair, other=0.0)
        g_spots = dims[:, None] * N + alike(group * WIDTH * N + n, ZERO, BLOCK)[None, :]
        g = tl.load(grad + g_spots, mask=valid, other=0.0)
        # The gradient of z is C z + D g, but for four coordinates; `along` is the part of the direction's along it.
        C, D = tl.zeros([PAIRS], tl.float32), inverse
        c0 = tl.where(empty, 1.0, coordinate(product, weight, klein, column, spot, pair, T, 0) * inverse)
        h0 = tl.load(grad + group * WIDTH * N + n, mask=pair, other=0.0)
        along = tl.where(empty, h0, tl.sum(g * z, 0) * inverse)
        c1, c2, c3, h1, h2, h3 = c0, c0, c0, h0, h0, h0
        if MODE != NO_SHIFT:
            c1 = coordinate(product, weight, klein, column, spot, pair, T, 1) * inverse
            c2 = coordinate(product, weight, klein, column, spot, pair, T, 2) * inverse
            h1 = tl.load(grad + (group * WIDTH + 1) * N + n, mask=pair, other=0.0)
            h2 = tl.load(grad + (group * WIDTH + 2) * N + n, mask=pair, other=0.0)
            c3, h3 = c2 * 0.0, h2 * 0.0
            if WIDTH > 3:
                c3 = coordinate(product, weight, klein, column, spot, pair, T, 3) * inverse
                h3 = tl.load(grad + (group * WIDTH + 3) * N + n, mask=pair, other=0.0)
            if j < 2:
                rest = (dims > 3)[:, None]
                R = tl.sum(tl.where(rest, z * z, 0.0), 0) * inverse * inverse
                q = tl.sum(tl.where(rest, z * g, 0.0), 0) * inverse
                y_place = tl.load(place + 2 * n, mask=pair, other=0.0)
                x_place = tl.load(place + 2 * n + 1, mask=pair, other=0.0)
                t = y_place * tl.load(rate + 2 * head, mask=pair, other=0.0)
                second = x_place * tl.load(rate + 2 * head + 1, mask=pair, other=0.0)
                one, none = tl.full([PAIRS], 1.0, tl.float32), tl.zeros([PAIRS], tl.float32)
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
                    _r1, d0, d1, d2, d3, f1, n1 = shift(radius, c0, c1, c2, c3, R, t, second, True)
                    g_radius, h0, h1, h2, h3, alpha, beta, g_t, g_second = shift_backward(
                        radius, c0, c1, c2, c3, R, t, second, one, d0, d1, d2, d3, f1, n1,
                        g_radius, h0, h1, h2, h3, one, none, q, True,
                    )  # fmt: skip
                along = h0 * c0 + h1 * c1 + h2 * c2 + h3 * c3 + alpha * q + beta * R
                C, D = beta * inverse * inverse, alpha * inverse
                sum_first += tl.where(pair, g_t * y_place, 0.0)
                sum_second += tl.where(pair, g_second * x_place, 0.0)
        sum_gain += tl.where(pair, g_radius * radius, 0.0)
        g_log = tl.where(pair, g_radius * gain * scaled_sinh(bare) / scaled_cosh(bare), 0.0)
        g_l = over_heads(g_log, HEADS_PAD, BLOCK)
        K = (power - 1.0) * g_l / (norm * norm)
        stretch = (g_log - along) * inverse
        g_z = (C + stretch * inverse + K)[None, :] * z + D[None, :] * g
        stretch += K * part
        h0 = stretch * c0 + h0 * inverse
        if MODE == NO_SHIFT:
            g_z = tl.where((dims == 0)[:, None], h0[None, :], g_z)
        else:
            g_z = insert(
                g_z, h0, stretch * c1 + h1 * inverse, stretch * c2 + h2 * inverse, stretch * c3 + h3 * inverse, dims
            )
        g_z = tl.where(valid, g_z, 0.0)
        tl.store(to_product + spots, klein[None, :] * g_z, mask=valid)
        tl.store(to_dot + spot, klein * g_l, mask=once)
        for extra in range(3 + j, EXTRA, 3):
            tl.store(tail + extra * T + spot, tl.zeros([PAIRS], tl.float32), mask=once)
        g_klein = over_heads(tl.sum(g_z * p, 0), HEADS_PAD, BLOCK) + g_l * dot
        g_a = g_klein * tl.exp(-2.0 * a) / (ch * ch) + g_l * (power * klein + slope)
        tl.store(to_a + j * T + spot, g_a, mask=once)
        sum_weight += g_z
        sum_power += tl.where(once, g_l * log_size, 0.0)
        sum_slope += tl.where(once, g_l * a, 0.0)
        sum_bias += tl.where(once, g_l, 0.0)
    partials += (tl.program_id(0) * 3 + j) * (HEADS * WIDTH + 3 * HEADS + 3)
    heads = tl.arange(0, HEADS_PAD)
    in_heads = heads < HEADS
    spots = heads[None, :] * WIDTH + dims[:, None]
    total = tl.sum(tl.reshape(sum_weight, [WIDTH_PAD, HEADS_PAD, BLOCK]), 2)
    tl.store(partials + spots, total, mask=in_heads[None, :] & (dims < WIDTH)[:, None])
    partials += HEADS * WIDTH
    tl.store(partials + heads, tl.sum(tl.reshape(sum_gain, [HEADS_PAD, BLOCK]), 1), mask=in_heads)
    tl.store(partials + HEADS + 2 * heads, tl.sum(tl.reshape(sum_first, [HEADS_PAD, BLOCK]), 1), mask=in_heads)
    tl.store(partials + HEADS + 2 * heads + 1, tl.sum(tl.reshape(sum_second, [HEADS_PAD, BLOCK]), 1), mask=in_heads)
    partials += 3 * HEADS
    tl.store(partials, tl.sum(sum_power, 0))
    tl.store(partials + 1, tl.sum(sum_slope, 0))
    tl.store(partials + 2, tl.sum(sum_bias, 0))


@triton.jit
def pairs_of(
    T, N, ZERO, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    """Dimensions, heads and tokens of the pairs, which exist; places in [B, H, N], [B, H, d, N] and [H d, B N]."""
    pairs, dims = tl.arange(0, HEADS_PAD * BLOCK), tl.arange(0, WIDTH_PAD)
    head = pairs // BLOCK
    token = tl.program_id(0) * BLOCK + pairs % BLOCK
    pair = (head < HEADS) & (token < T)
    valid = pair[None, :] & (dims < WIDTH)[:, None]
    n = token % N
    group = (token // N) * HEADS + head
    place = dims[:, None] * N + alike(group * WIDTH * N + n, ZERO, BLOCK)[None, :]
    spots = dims[:, None] * T + alike(head * WIDTH * T + token, ZERO, BLOCK)[None, :]
    return dims, head, token, pair, valid, group * N + n, place, spots


@triton.jit
def joined_heads(a, u, head, dims, HEADS_PAD: tl.constexpr, BLOCK: tl.constexpr):
    """For each pair sinh(radius) / e^largest; largest, the token's length / e^largest; its part of the direction."""
    largest = largest_of_heads(a, HEADS_PAD, BLOCK)
    size = scaled_sinh(a) * tl.exp(a - largest)
    x = size[None, :] * u
    whole = over_heads(tl.sum(x * x, 0), HEADS_PAD, BLOCK)
    norm = tl.where(whole == 0.0, ORIGIN, tl.sqrt(whole))
    pole = tl.where((dims == 0)[:, None] & (head == 0)[None, :], 1.0, 0.0)
    return size, largest, norm, tl.where((whole == 0.0)[None, :], pole, x * (1.0 / norm)[None, :])


@triton.jit
def largest_of_heads(x, HEADS_PAD: tl.constexpr, BLOCK: tl.constexpr):
    """The largest among the heads of a token, for each pair."""
    whole = tl.max(tl.reshape(x, [HEADS_PAD, BLOCK]), 0)
    return tl.reshape(tl.broadcast_to(whole[None, :], [HEADS_PAD, BLOCK]), [HEADS_PAD * BLOCK])


@triton.jit(do_not_specialize=["T", "N", "ZERO"])
def merge_kernel(
    radius, direction, out_radius, out,
    T, N, ZERO, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    """Tokens' directions features first, [H d, tokens]."""
    dims, head, token, pair, valid, spot, place, spots = pairs_of(T, N, ZERO, HEADS, WIDTH, BLOCK, HEADS_PAD, WIDTH_PAD)
    a = tl.load(radius + spot, mask=pair, other=0.0)
    u = tl.load(direction + place, mask=valid, other=0.0)
    _, largest, norm, joined = joined_heads(a, u, head, dims, HEADS_PAD, BLOCK)
    tl.store(out_radius + token, scaled_asinh(norm, largest), mask=(head == 0) & (token < T))
    tl.store(out + spots, joined, mask=valid)


@triton.jit(do_not_specialize=["T", "N", "ZERO"])
def merge_backward_kernel(
    radius, direction, grad_radius, grad, to_radius, to_direction,
    T, N, ZERO, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, HEADS_PAD: tl.constexpr, WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    dims, head, token, pair, valid, spot, place, spots = pairs_of(T, N, ZERO, HEADS, WIDTH, BLOCK, HEADS_PAD, WIDTH_PAD)
    a = tl.load(radius + spot, mask=pair, other=0.0)
    u = tl.load(direction + place, mask=valid, other=0.0)
    g = tl.load(grad + spots, mask=valid, other=0.0).to(tl.float32)
    g_radius = tl.load(grad_radius + token, mask=pair, other=0.0)
    size, largest, norm, joined = joined_heads(a, u, head, dims, HEADS_PAD, BLOCK)
    along = over_heads(tl.sum(g * joined, 0), HEADS_PAD, BLOCK)
    pull = g_radius / tl.sqrt(norm * norm + tl.exp(-2.0 * largest)) - along / norm
    g_x = pull[None, :] * joined + g * (1.0 / norm)[None, :]
    tl.store(to_direction + place, size[None, :] * g_x, mask=valid)
    to_a = tl.sum(g_x * u, 0) * scaled_cosh(a) * tl.exp(a - largest)
    tl.store(to_radius + spot, to_a, mask=pair)
