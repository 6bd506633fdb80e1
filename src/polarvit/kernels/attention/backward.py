"""Backward kernels of polar attention for heads of up to 32 dimensions: a thread for a query, then a thread for a key.

Scores are recomputed in both, no N x M matrix is stored, nothing is added atomically. Radius and direction of the
centroid do not change when all weights are multiplied by one number, so the weights need no softmax normaliser and the
usual row sum of the softmax gradient is zero. With the exponents of the forward kernel's rows,

    A1 = w e^c / (T+|V|),   A2 = w e^-c / (E+S),   rho = (T+|V|) / (E+S) = e^(2 a_mu),

g the upstream gradient of a_mu, t that of the direction made perpendicular to it and multiplied by (T+|V|)/|V|, and
z_ij = t_i.(u_j - uhat_i) - g_i (1+rho_i)/2 * 1/2|u_j - uhat_i|^2, everything is

    d/d score   = A1 (g/2 + sh(c) z) - g/2 A2
    d/d radius  = A1 (g/2 + ch(c) z) + g/2 A2                      summed over rows
    d/d u_j     = sh(c) sum_i A1 (t_i + g_i (1+rho_i)/2 (uhat_i - u_j)), made perpendicular to u_j.

A2 = A1 rho e^-2c. The query kernel leaves a row for each query, u, uhat, t and eight numbers; the key kernel walks over
these rows.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LOG2E, cosh, scaled_sinh
from polarvit.kernels.attention.keys import BETA, DOWN, ENTRIES, HELD, RADIUS, SH, SHRUNK, SINH, UP
from polarvit.kernels.attention.rows import distance_gradients, half_powers
from polarvit.kernels.attention.tile_backward import HIGHEST, balanced

HALF, GROWN, SHIFT = BETA, SH, SHRUNK  # the places of a row's own numbers: g/2, g/2 rho, and the exponent of T+|V|


@triton.jit(do_not_specialize=["ZERO"])
def attention_query_kernel(
    query_radius, query, packed_keys, mask, scale_pointer, out, stats, grad_radius, grad,
    to_query_radius, to_query, to_scale, packed,
    HEADS, N, M, ZERO,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
    BLOCK: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    b, h = head // HEADS, head % HEADS
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row_valid = rows < N
    place = rows + ZERO
    dims, value_dims = tl.arange(0, PAD), tl.arange(0, VALUE_PAD)
    in_width, in_value = dims < WIDTH, value_dims < VALUE_WIDTH
    LONG_KEY: tl.constexpr = WIDTH + VALUE_WIDTH + ENTRIES
    packed_keys += head * M * LONG_KEY
    scale = tl.load(scale_pointer + h)

    inside = in_width[:, None] & row_valid[None, :]
    value_inside = in_value[:, None] & row_valid[None, :]
    spot = head * WIDTH * N + dims[:, None] * N + place[None, :]
    value_spot = head * VALUE_WIDTH * N + value_dims[:, None] * N + place[None, :]
    q = tl.load(query + spot, mask=inside, other=0.0).to(tl.float32)
    uhat = tl.load(out + value_spot, mask=value_inside, other=0.0)
    t = tl.load(grad + value_spot, mask=value_inside, other=0.0)
    a = tl.load(query_radius + head * N + place, mask=row_valid, other=0.0).to(tl.float32)
    stats += head * 4 * N + place
    base = tl.load(stats, mask=row_valid, other=0.0)
    tau = tl.load(stats + N, mask=row_valid, other=1e38)
    lam = tl.load(stats + 2 * N, mask=row_valid, other=1e38)
    log_v = tl.load(stats + 3 * N, mask=row_valid, other=1e38)
    half = 0.5 * tl.load(grad_radius + head * N + place, mask=row_valid, other=0.0)
    grown = half * tl.exp2(tl.minimum(tau - lam, HIGHEST))
    turn = tl.where(log_v < 1e37, tl.exp2(tl.minimum(tau - log_v, HIGHEST)), 0.0)
    shift = base + tau
    t = turn[None, :] * (t - tl.sum(uhat * t, 0)[None, :] * uhat)
    up, down, sinh_a = half_powers(a)
    cosh_a = cosh(tl.minimum(a, HELD))
    LONG: tl.constexpr = WIDTH + 2 * VALUE_WIDTH + ENTRIES
    pack = packed + (head * N + rows) * LONG
    tl.store(pack[None, :] + dims[:, None], q, mask=inside)
    tl.store(pack[None, :] + (WIDTH + value_dims)[:, None], uhat, mask=value_inside)
    tl.store(pack[None, :] + (WIDTH + VALUE_WIDTH + value_dims)[:, None], t, mask=value_inside)
    pack += WIDTH + 2 * VALUE_WIDTH
    tl.store(pack + UP, 2.0 * up, mask=row_valid)
    tl.store(pack + DOWN, 2.0 * down, mask=row_valid)
    tl.store(pack + SINH, 4.0 * sinh_a, mask=row_valid)
    tl.store(pack + RADIUS, a, mask=row_valid)
    tl.store(pack + HALF, half, mask=row_valid)
    tl.store(pack + GROWN, grown, mask=row_valid)
    tl.store(pack + SHIFT, shift, mask=row_valid)

    half_pull = 0.5 * (half + grown)
    highest = tl.max(a, 0)
    score_sum = tl.zeros([BLOCK], tl.float32)
    up_sum = tl.zeros([BLOCK], tl.float32)
    radius_sum = tl.zeros([BLOCK], tl.float32)
    radius_up = tl.zeros([BLOCK], tl.float32)
    scale_sum = tl.zeros([BLOCK], tl.float32)
    scale_up = tl.zeros([BLOCK], tl.float32)
    total = tl.zeros([PAD, BLOCK], tl.float32)
    for j in range(M):
        row = packed_keys + j * LONG_KEY
        v = tl.load(row + dims, mask=in_width, other=0.0)
        w = tl.load(row + WIDTH + value_dims, mask=in_value, other=0.0)
        row += WIDTH + VALUE_WIDTH
        step = q - v[:, None]
        distance2, by_chord, by_a = distance_gradients(
            a, up, down, sinh_a, cosh_a,
            tl.load(row + RADIUS), tl.load(row + UP), tl.load(row + DOWN), tl.load(row + SINH),
            tl.sum(step * step, 0), highest,
        )  # fmt: skip
        apart = w[:, None] - uhat
        z = tl.sum(apart * (t - half_pull[None, :] * apart), 0)
        weight = tl.exp2((scale * -LOG2E) * distance2 + (tl.load(row + BETA) - shift))
        if HAS_MASK:
            weight = tl.where(tl.load(mask + b * M + j) != 0, weight, 0.0)
        by_score = weight * (half + tl.load(row + SH) * z - grown * tl.load(row + SHRUNK))
        total += (by_score * by_chord)[None, :] * step
        score_sum += by_score
        up_sum += weight
        radius_sum += by_score * by_a
        radius_up += weight * by_a
        scale_sum += by_score * distance2
        scale_up += weight * distance2
    radius_total = -2.0 * scale * balanced(radius_sum, radius_up, score_sum, up_sum)
    scale_total = balanced(scale_sum, scale_up, score_sum, up_sum)
    tl.store(to_query_radius + head * N + place, radius_total, mask=row_valid)
    tl.store(to_query + spot, -2.0 * scale * total, mask=inside)
    share = -tl.sum(tl.where(row_valid, scale_total, 0.0), 0)
    tl.store(to_scale + head * tl.num_programs(1) + tl.program_id(1), share)


@triton.jit(do_not_specialize=["ZERO"])
def attention_key_kernel(
    key_radius, key, value_radius, value, mask, scale_pointer, packed,
    to_key_radius, to_key, to_value_radius, to_value,
    HEADS, N, M, ZERO,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
    BLOCK: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    batch, h = head // HEADS, head % HEADS
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = columns < M
    place = columns + ZERO
    dims, value_dims = tl.arange(0, PAD), tl.arange(0, VALUE_PAD)
    in_width, in_value = dims < WIDTH, value_dims < VALUE_WIDTH
    LONG: tl.constexpr = WIDTH + 2 * VALUE_WIDTH + ENTRIES
    packed += head * N * LONG
    scale = tl.load(scale_pointer + h)

    inside = in_width[:, None] & valid[None, :]
    value_inside = in_value[:, None] & valid[None, :]
    spot = head * WIDTH * M + dims[:, None] * M + place[None, :]
    value_spot = head * VALUE_WIDTH * M + value_dims[:, None] * M + place[None, :]
    v = tl.load(key + spot, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(value + value_spot, mask=value_inside, other=0.0).to(tl.float32)
    b = tl.load(key_radius + head * M + place, mask=valid, other=0.0).to(tl.float32)
    c = tl.load(value_radius + head * M + place, mask=valid, other=0.0).to(tl.float32)
    beta, sh, shrunk = c * LOG2E, scaled_sinh(c), tl.exp(-2.0 * c)
    attend = valid
    if HAS_MASK:
        attend = valid & (tl.load(mask + batch * M + place, mask=valid, other=0) != 0)
    beta = tl.where(attend, beta, float("-inf"))  # no weight at all
    up, down, sinh_b = half_powers(b)
    cosh_b = cosh(tl.minimum(b, HELD))
    highest = tl.max(b, 0)
    key_sum = tl.zeros([BLOCK], tl.float32)
    value_sum = tl.zeros([BLOCK], tl.float32)
    to_v = tl.zeros([PAD, BLOCK], tl.float32)
    to_w = tl.zeros([VALUE_PAD, BLOCK], tl.float32)
    for i in range(N):
        row = packed + i * LONG
        q = tl.load(row + dims, mask=in_width, other=0.0)
        uhat = tl.load(row + WIDTH + value_dims, mask=in_value, other=0.0)
        t = tl.load(row + WIDTH + VALUE_WIDTH + value_dims, mask=in_value, other=0.0)
        row += WIDTH + 2 * VALUE_WIDTH
        half, grown = tl.load(row + HALF), tl.load(row + GROWN)
        step = v - q[:, None]
        distance2, by_chord, by_b = distance_gradients(
            b, up, down, sinh_b, cosh_b,
            tl.load(row + RADIUS), tl.load(row + UP), tl.load(row + DOWN), tl.load(row + SINH),
            tl.sum(step * step, 0), highest,
        )  # fmt: skip
        apart = w - uhat[:, None]
        pull = half + grown
        z = tl.sum(apart * (t[:, None] - (0.5 * pull) * apart), 0)
        weight = tl.exp2((scale * -LOG2E) * distance2 + (beta - tl.load(row + SHIFT)))
        under = grown * shrunk
        by_score = weight * (half + sh * z - under)
        to_v += (by_score * by_chord)[None, :] * step
        to_w += weight[None, :] * (t[:, None] - pull * apart)
        key_sum += by_score * by_b
        value_sum += weight * (half + (0.5 + 0.5 * shrunk) * z + under)
    to_w *= sh[None, :]
    to_w -= tl.sum(to_w * w, 0)[None, :] * w
    tl.store(to_key_radius + head * M + place, -2.0 * scale * key_sum, mask=valid)
    tl.store(to_value_radius + head * M + place, value_sum, mask=valid)
    tl.store(to_key + spot, -2.0 * scale * to_v, mask=inside)
    tl.store(to_value + value_spot, to_w, mask=value_inside)
