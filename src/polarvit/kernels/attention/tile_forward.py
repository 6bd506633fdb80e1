"""Forward kernel of polar attention: one program for one head and one block of queries, one pass over the keys.

Exponents are counted in powers of two. For a score s (times log2 e) and a value radius b (times log2 e, `beta`), a key
contributes the mass 2^(s + beta) sh(b) and the radial term 2^(s - beta); each of the two sums has its own running
maximum, so neither can overflow or vanish at any radius.

Directions are stored dimension first, [B, H, d, N]: the threads of a warp hold neighbouring points, and all of them
read the same coordinate at a time.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LN2, LOG2E, asinh_of_root, logaddexp2, scaled_sinh
from polarvit.kernels.attention.tiles import chord_tile, product_zeros, squared_distance

NOTHING = tl.constexpr(-1e38)


@triton.jit
def finish_rows(mass, mean_norm, spread, mass_exponent, radial, radial_exponent):
    """Centroid radius and the logarithms (relative to `mass_exponent`) of T+|V|, E+S and |V|."""
    log_v = tl.log2(mass * mean_norm)
    log_e = tl.log2(radial) + (radial_exponent - mass_exponent)
    lam = logaddexp2(tl.log2(spread / (1.0 + mean_norm)), log_e)
    tau = logaddexp2(1.0 + log_v, lam)
    far = 0.5 * (tau - lam) * LN2
    root = tl.exp2(log_v - 0.5 * lam - 0.5 * tau)
    return tl.where(far < 1.0, asinh_of_root(root * root), far), tau, lam, log_v


@triton.jit
def tile_forward_kernel(
    query_radius, query, key_radius, key, value_radius, value, mask, scale, out_radius, out, stats,
    HEADS, N, M,
    WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, HAS_MASK: tl.constexpr, PRECISION: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    b, h = head // HEADS, head % HEADS
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_valid = rows < N
    dims = tl.arange(0, VALUE_PAD)
    query += head * WIDTH * N
    key += head * WIDTH * M
    value += head * VALUE_WIDTH * M
    key_radius += head * M
    value_radius += head * M
    factor = tl.load(scale + h) * -LOG2E
    a = tl.load(query_radius + head * N + rows, mask=row_valid, other=0.0).to(tl.float32)

    mass = tl.zeros([BLOCK_N], tl.float32)
    spread = tl.zeros([BLOCK_N], tl.float32)
    radial = tl.zeros([BLOCK_N], tl.float32)
    mass_exponent = tl.full([BLOCK_N], NOTHING, tl.float32)
    radial_exponent = tl.full([BLOCK_N], NOTHING, tl.float32)
    mean = tl.zeros([BLOCK_N, VALUE_PAD], tl.float32)

    for start in range(0, M, BLOCK_M):
        columns = start + tl.arange(0, BLOCK_M)
        in_range = columns < M
        attend = in_range
        if HAS_MASK:
            attend = in_range & (tl.load(mask + b * M + columns, mask=in_range, other=0) != 0)
        key_a = tl.load(key_radius + columns, mask=in_range, other=0.0).to(tl.float32)
        value_a = tl.load(value_radius + columns, mask=in_range, other=0.0).to(tl.float32)
        chord = product_zeros(BLOCK_N, BLOCK_M)
        chord = chord_tile(chord, query, key, rows, columns, row_valid, in_range, N, M, WIDTH, UNROLL)
        score = factor * squared_distance(a, key_a, chord)
        beta = value_a * LOG2E

        exponent = tl.where(attend[None, :], score + beta[None, :], NOTHING)
        top = tl.max(exponent, 1)
        m = tl.exp2(exponent - top[:, None]) * tl.where(attend, scaled_sinh(value_a), 0.0)[None, :]
        block_mass = tl.sum(m, 1)
        inverse = tl.where(block_mass > 0.0, 1.0 / tl.where(block_mass > 0.0, block_mass, 1.0), 0.0)

        in_tile = in_range[:, None] & (dims < VALUE_WIDTH)[None, :]
        u = tl.load(value + columns[:, None] + dims[None, :] * M, mask=in_tile, other=0.0).to(tl.float32)
        centre = tl.load(value + start + dims * M, mask=dims < VALUE_WIDTH, other=0.0).to(tl.float32)
        centred = tl.where(in_tile, u - centre[None, :], 0.0)
        block_mean = centre[None, :] + tl.dot(m, centred, input_precision=PRECISION) * inverse[:, None]
        # sum_j m_j |u_j - mean|^2 = sum_jl m_j m_l chord_jl / sum_j m_j: no term can cancel, and equal or one-hot
        # directions give exactly zero.
        among = product_zeros(BLOCK_M, BLOCK_M)
        among = chord_tile(among, value, value, columns, columns, in_range, in_range, M, M, VALUE_WIDTH, UNROLL)
        block_spread = tl.sum(m * tl.dot(m, among, input_precision=PRECISION), 1) * inverse

        highest = tl.maximum(mass_exponent, top)
        old, new = tl.exp2(mass_exponent - highest), tl.exp2(top - highest)
        mass, block_mass = mass * old, block_mass * new
        together = mass + block_mass
        inverse = tl.where(together > 0.0, 1.0 / tl.where(together > 0.0, together, 1.0), 0.0)
        share, rest = block_mass * inverse, mass * inverse
        apart = block_mean - mean
        spread = spread * old + block_spread * new + mass * share * tl.sum(apart * apart, 1)
        mean = tl.where((share <= 0.5)[:, None], mean + share[:, None] * apart, block_mean - rest[:, None] * apart)
        mass, mass_exponent = together, highest

        exponent = tl.where(attend[None, :], score - beta[None, :], NOTHING)
        highest = tl.maximum(radial_exponent, tl.max(exponent, 1))
        terms = tl.where(attend[None, :], tl.exp2(exponent - highest[:, None]), 0.0)
        radial = radial * tl.exp2(radial_exponent - highest) + tl.sum(terms, 1)
        radial_exponent = highest

    # Values that all sit at the origin have no mean direction; any will do, and the reference takes the first.
    first = tl.load(value + dims * M, mask=dims < VALUE_WIDTH, other=0.0).to(tl.float32)
    mean = tl.where((mass > 0.0)[:, None], mean, first[None, :])
    norm = tl.sqrt(tl.sum(mean * mean, 1))
    some = radial > 0.0
    turned = some & (mass * norm > 0.0)
    radius, tau, lam, log_v = finish_rows(mass, norm, spread, mass_exponent, radial, radial_exponent)
    pole = tl.where(dims == 0, 1.0, 0.0)
    pointed = some & (norm > 0.0)
    direction = tl.where(pointed[:, None], mean / tl.where(pointed, norm, 1.0)[:, None], pole[None, :])
    tl.store(out_radius + head * N + rows, tl.where(some, radius, 0.0), mask=row_valid)
    place = head * N * VALUE_WIDTH + rows[:, None] + dims[None, :] * N
    tl.store(out + place, direction, mask=row_valid[:, None] & (dims < VALUE_WIDTH)[None, :])
    # Rows that attend to nothing get exponents with which every weight of the backward pass vanishes.
    place = stats + head * 4 * N + rows
    tl.store(place, tl.where(some, mass_exponent, 0.0), mask=row_valid)
    tl.store(place + N, tl.where(some, tau, -NOTHING), mask=row_valid)
    tl.store(place + 2 * N, tl.where(some, lam, -NOTHING), mask=row_valid)
    tl.store(place + 3 * N, tl.where(turned, log_v, -NOTHING), mask=row_valid)
