"""Backward kernels of polar attention: scores are recomputed, no N x M matrix is stored, no atomics.

Radius and direction of the centroid do not change when all weights are multiplied by one number, so the weights need
no softmax normaliser and the usual row sum of the softmax gradient is zero. With the exponents of FORWARD's rows,

    A1 = w e^b / (T+|V|),   A2 = w e^-b / (E+S),   rho = (T+|V|) / (E+S) = e^(2 a_mu),

g the upstream gradient of a_mu, t that of the direction made perpendicular to it and multiplied by (T+|V|)/|V|, and
z_ij = t_i.(u_j - uhat_i) - g_i (1+rho_i)/2 * 1/2|u_j - uhat_i|^2, everything is

    d/d score   = A1 (g/2 + sh(b) z) - g/2 A2
    d/d radius  = A1 (g/2 + ch(b) z) + g/2 A2                      summed over rows
    d/d u_j     = sh(b) sum_i A1 (t_i + g_i (1+rho_i)/2 (uhat_i - u_j)), made perpendicular to u_j.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LOG2E, scaled_cosh, scaled_sinh
from polarvit.kernels.attention.tiles import chord_tile, product_zeros, squared_distance_gradients

HIGHEST = tl.constexpr(120.0)


@triton.jit
def load_directions(pointer, places, valid, dims, LENGTH, WIDTH: tl.constexpr):
    """A [places, dims] tile of directions stored dimension first."""
    inside = valid[:, None] & (dims < WIDTH)[None, :]
    return tl.load(pointer + places[:, None] + dims[None, :] * LENGTH, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def load_rows(out, grad_radius, grad, stats, rows, valid, dims, N, WIDTH: tl.constexpr):
    """For a block of rows: g/2, the pull g (1+rho)/2, t as factor and projection, and the exponents of A1 and A2."""
    u = load_directions(out, rows, valid, dims, N, WIDTH)
    t = load_directions(grad, rows, valid, dims, N, WIDTH)
    # Coordinate by coordinate, so that the sum lies where the tiles want it and not across the threads of a row.
    along = tl.zeros([rows.shape[0]], tl.float32)
    for d in tl.static_range(WIDTH):
        along += tl.load(out + rows + d * N, mask=valid, other=0.0) * tl.load(
            grad + rows + d * N, mask=valid, other=0.0
        )
    base = tl.load(stats + rows, mask=valid, other=0.0)
    tau = tl.load(stats + N + rows, mask=valid, other=1e38)
    lam = tl.load(stats + 2 * N + rows, mask=valid, other=1e38)
    log_v = tl.load(stats + 3 * N + rows, mask=valid, other=1e38)
    half = 0.5 * tl.load(grad_radius + rows, mask=valid, other=0.0)
    pull = half * (1.0 + tl.exp2(tl.minimum(tau - lam, HIGHEST)))
    turn = tl.where(log_v < 1e37, tl.exp2(tl.minimum(tau - log_v, HIGHEST)), 0.0)
    return u, t, along, half, pull, turn, base, tau, lam


@triton.jit
def value_tile(
    out, grad, value, rows, columns, row_valid, in_range, N, M, along, pull, turn,
    WIDTH: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """z_ij of the module's docstring, one coordinate after the other."""
    z = product_zeros(rows.shape[0], columns.shape[0])
    for d in tl.range(0, WIDTH, loop_unroll_factor=UNROLL):
        u = tl.load(out + rows + d * N, mask=row_valid, other=0.0)
        t = tl.load(grad + rows + d * N, mask=row_valid, other=0.0)
        v = tl.load(value + columns + d * M, mask=in_range, other=0.0).to(tl.float32)
        t = turn * (t - along * u)
        step = v[None, :] - u[:, None]
        z += step * (t[:, None] - (0.5 * pull)[:, None] * step)
    return z


@triton.jit
def pair_tile(
    query, key, value, out, grad, rows, columns, row_valid, in_range, attend, a, key_a, value_a, scale,
    along, half, pull, turn, base, tau, lam, N, M,
    WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """For a tile of pairs: D^2, A1, the gradients by score and by the value's radius, and half those of D^2."""
    chord = product_zeros(rows.shape[0], columns.shape[0])
    chord = chord_tile(chord, query, key, rows, columns, row_valid, in_range, N, M, WIDTH, UNROLL)
    distance2, by_chord, by_a, by_b = squared_distance_gradients(a, key_a, chord)
    z = value_tile(out, grad, value, rows, columns, row_valid, in_range, N, M, along, pull, turn, VALUE_WIDTH, UNROLL)
    score = (scale * -LOG2E) * distance2 - base[:, None]
    beta = value_a * LOG2E
    pairs = attend[None, :] & row_valid[:, None]
    up = tl.where(pairs, tl.exp2(score + beta[None, :] - tau[:, None]), 0.0)
    under = tl.where(pairs, half[:, None] * tl.exp2(score - beta[None, :] - lam[:, None]), 0.0)
    by_score = up * (half[:, None] + scaled_sinh(value_a)[None, :] * z) - under
    by_value_radius = up * (half[:, None] + scaled_cosh(value_a)[None, :] * z) + under
    return distance2, up, by_score, by_value_radius, by_chord, by_a, by_b


@triton.jit
def balanced(sums, up_sums, score_sum, up_sum):
    """sum_j s_j x_j for score gradients s, given sum s x, sum A1 x, sum s and sum A1.

    The score gradients of a row add up to zero; what rounding leaves is taken off in proportion to A1, or it would be
    multiplied by the mean of x, which is larger than the result.
    """
    return sums - up_sums * (score_sum / tl.where(up_sum > 0.0, up_sum, 1.0))


@triton.jit
def chord_pull(g, x, y, y_valid, centre, PRECISION: tl.constexpr):
    """sum_j g_ij (x_i - y_j) for rows x and columns y, both taken from one centre so that little cancels."""
    away = tl.where(y_valid[:, None], y - centre[None, :], 0.0)
    return (x - centre[None, :]) * tl.sum(g, 1)[:, None] - tl.dot(g, away, input_precision=PRECISION)


@triton.jit
def key_side(
    key, value, first, columns, in_range, row_valid, u, uhat, t, along, pull, turn,
    up, by_score, by_value_radius, by_chord, by_b, M,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """What a block of rows adds to the gradients of key radii, keys, value radii and (before sh(b)) values."""
    dims, value_dims = tl.arange(0, PAD), tl.arange(0, VALUE_PAD)
    v = load_directions(key, columns, in_range, dims, M, WIDTH)
    w = load_directions(value, columns, in_range, value_dims, M, VALUE_WIDTH)
    centre = tl.load(key + first + dims * M, mask=dims < WIDTH, other=0.0).to(tl.float32)
    to_key = chord_pull(tl.trans(by_score * by_chord), v, u, row_valid, centre, PRECISION)
    centre = tl.load(value + first + value_dims * M, mask=value_dims < VALUE_WIDTH, other=0.0).to(tl.float32)
    outward = pull[:, None] * (uhat - centre[None, :]) + turn[:, None] * (t - along[:, None] * uhat)
    outward = tl.where(row_valid[:, None], outward, 0.0)
    to_value = tl.dot(tl.trans(up), outward, input_precision=PRECISION)
    to_value -= tl.sum(up * pull[:, None], 0)[:, None] * (w - centre[None, :])
    return tl.sum(by_score * by_b, 0), to_key, tl.sum(by_value_radius, 0), to_value


@triton.jit
def store_keys(
    to_key_radius, to_key, to_value_radius, to_value, key_radius_total, key_total, value_radius_total, value_total,
    value, value_a, columns, in_range, scale, head, M,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
):  # fmt: skip
    dims, value_dims = tl.arange(0, PAD), tl.arange(0, VALUE_PAD)
    w = load_directions(value, columns, in_range, value_dims, M, VALUE_WIDTH)
    value_total *= scaled_sinh(value_a)[:, None]
    value_total -= tl.sum(value_total * w, 1)[:, None] * w
    tl.store(to_key_radius + head * M + columns, -2.0 * scale * key_radius_total, mask=in_range)
    tl.store(to_value_radius + head * M + columns, value_radius_total, mask=in_range)
    inside = in_range[:, None] & (dims < WIDTH)[None, :]
    tl.store(to_key + head * M * WIDTH + columns[:, None] + dims[None, :] * M, -2.0 * scale * key_total, mask=inside)
    inside = in_range[:, None] & (value_dims < VALUE_WIDTH)[None, :]
    place = head * M * VALUE_WIDTH + columns[:, None] + value_dims[None, :] * M
    tl.store(to_value + place, value_total, mask=inside)


@triton.jit
def tile_query_kernel(
    query_radius, query, key_radius, key, value_radius, value, mask, scale_pointer, out, stats, grad_radius, grad,
    to_query_radius, to_query, to_key_radius, to_key, to_value_radius, to_value, to_scale,
    HEADS, N, M,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, HAS_MASK: tl.constexpr, PRECISION: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """Gradients of queries and scale: one program for one block of queries, looping over the keys."""
    head = tl.program_id(0).to(tl.int64)
    b, h = head // HEADS, head % HEADS
    block = tl.program_id(1)
    rows = block * BLOCK_N + tl.arange(0, BLOCK_N)
    row_valid = rows < N
    dims, value_dims = tl.arange(0, PAD), tl.arange(0, VALUE_PAD)
    query += head * WIDTH * N
    key += head * WIDTH * M
    value += head * VALUE_WIDTH * M
    out += head * N * VALUE_WIDTH
    grad += head * N * VALUE_WIDTH
    scale = tl.load(scale_pointer + h)
    a = tl.load(query_radius + head * N + rows, mask=row_valid, other=0.0).to(tl.float32)
    _uhat, _t, along, half, pull, turn, base, tau, lam = load_rows(
        out, grad_radius + head * N, grad, stats + head * 4 * N, rows, row_valid, value_dims, N, VALUE_WIDTH
    )
    u = load_directions(query, rows, row_valid, dims, N, WIDTH)
    score_sum = tl.zeros([BLOCK_N], tl.float32)
    up_sum = tl.zeros([BLOCK_N], tl.float32)
    radius_sum = tl.zeros([BLOCK_N], tl.float32)
    radius_up = tl.zeros([BLOCK_N], tl.float32)
    scale_sum = tl.zeros([BLOCK_N], tl.float32)
    scale_up = tl.zeros([BLOCK_N], tl.float32)
    total = tl.zeros([BLOCK_N, PAD], tl.float32)
    for start in range(0, M, BLOCK_M):
        columns = start + tl.arange(0, BLOCK_M)
        in_range = columns < M
        attend = in_range
        if HAS_MASK:
            attend = in_range & (tl.load(mask + b * M + columns, mask=in_range, other=0) != 0)
        key_a = tl.load(key_radius + head * M + columns, mask=in_range, other=0.0).to(tl.float32)
        value_a = tl.load(value_radius + head * M + columns, mask=in_range, other=0.0).to(tl.float32)
        distance2, up, by_score, _by_radius, by_chord, by_a, _by_b = pair_tile(
            query, key, value, out, grad, rows, columns, row_valid, in_range, attend, a, key_a, value_a, scale,
            along, half, pull, turn, base, tau, lam, N, M, WIDTH, VALUE_WIDTH, UNROLL,
        )  # fmt: skip
        v = load_directions(key, columns, in_range, dims, M, WIDTH)
        centre = tl.load(key + start + dims * M, mask=dims < WIDTH, other=0.0).to(tl.float32)
        total += chord_pull(by_score * by_chord, u, v, in_range, centre, PRECISION)
        score_sum += tl.sum(by_score, 1)
        up_sum += tl.sum(up, 1)
        radius_sum += tl.sum(by_score * by_a, 1)
        radius_up += tl.sum(up * by_a, 1)
        scale_sum += tl.sum(by_score * distance2, 1)
        scale_up += tl.sum(up * distance2, 1)
    radius_total = -2.0 * scale * balanced(radius_sum, radius_up, score_sum, up_sum)
    scale_total = balanced(scale_sum, scale_up, score_sum, up_sum)
    tl.store(to_query_radius + head * N + rows, radius_total, mask=row_valid)
    inside = row_valid[:, None] & (dims < WIDTH)[None, :]
    tl.store(to_query + head * N * WIDTH + rows[:, None] + dims[None, :] * N, -2.0 * scale * total, mask=inside)
    tl.store(to_scale + head * tl.num_programs(1) + block, -tl.sum(scale_total, 0))


@triton.jit
def tile_key_kernel(
    query_radius, query, key_radius, key, value_radius, value, mask, scale_pointer, out, stats, grad_radius, grad,
    to_query_radius, to_query, to_key_radius, to_key, to_value_radius, to_value, to_scale,
    HEADS, N, M,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, HAS_MASK: tl.constexpr, PRECISION: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """Gradients of keys and values: one program for one block of keys, looping over the queries."""
    head = tl.program_id(0).to(tl.int64)
    b, h = head // HEADS, head % HEADS
    first = tl.program_id(1) * BLOCK_M
    columns = first + tl.arange(0, BLOCK_M)
    in_range = columns < M
    attend = in_range
    if HAS_MASK:
        attend = in_range & (tl.load(mask + b * M + columns, mask=in_range, other=0) != 0)
    query += head * WIDTH * N
    key += head * WIDTH * M
    value += head * VALUE_WIDTH * M
    out += head * N * VALUE_WIDTH
    grad += head * N * VALUE_WIDTH
    scale = tl.load(scale_pointer + h)
    key_a = tl.load(key_radius + head * M + columns, mask=in_range, other=0.0).to(tl.float32)
    value_a = tl.load(value_radius + head * M + columns, mask=in_range, other=0.0).to(tl.float32)
    key_radius_total = tl.zeros([BLOCK_M], tl.float32)
    value_radius_total = tl.zeros([BLOCK_M], tl.float32)
    key_total = tl.zeros([BLOCK_M, PAD], tl.float32)
    value_total = tl.zeros([BLOCK_M, VALUE_PAD], tl.float32)
    for start in range(0, N, BLOCK_N):
        rows = start + tl.arange(0, BLOCK_N)
        row_valid = rows < N
        a = tl.load(query_radius + head * N + rows, mask=row_valid, other=0.0).to(tl.float32)
        value_dims = tl.arange(0, VALUE_PAD)
        uhat, t, along, half, pull, turn, base, tau, lam = load_rows(
            out, grad_radius + head * N, grad, stats + head * 4 * N, rows, row_valid, value_dims, N, VALUE_WIDTH
        )
        _d2, up, by_score, by_value_radius, by_chord, _by_a, by_b = pair_tile(
            query, key, value, out, grad, rows, columns, row_valid, in_range, attend, a, key_a, value_a, scale,
            along, half, pull, turn, base, tau, lam, N, M, WIDTH, VALUE_WIDTH, UNROLL,
        )  # fmt: skip
        u = load_directions(query, rows, row_valid, tl.arange(0, PAD), N, WIDTH)
        to_kr, to_k, to_vr, to_v = key_side(
            key, value, first, columns, in_range, row_valid, u, uhat, t, along, pull, turn,
            up, by_score, by_value_radius, by_chord, by_b, M, WIDTH, PAD, VALUE_WIDTH, VALUE_PAD, PRECISION,
        )  # fmt: skip
        key_radius_total += to_kr
        key_total += to_k
        value_radius_total += to_vr
        value_total += to_v
    store_keys(
        to_key_radius, to_key, to_value_radius, to_value, key_radius_total, key_total, value_radius_total, value_total,
        value, value_a, columns, in_range, scale, head, M, WIDTH, PAD, VALUE_WIDTH, VALUE_PAD,
    )  # fmt: skip
