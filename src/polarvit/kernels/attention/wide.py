"""Forward kernels of polar attention for heads wider than 32 dimensions: tiles of pairs, one pass over the keys.

The sums are those of `forward`, a block of keys at a time. A block has the mass P = sum_j m_j and the mean direction
c + sum_j m_j (u_j - c) / P, c the head's first value; its spread around that mean is

    sum_j m_j |u_j - mean|^2 = sum_jl m_j m_l 1/2|u_j - u_l|^2 / P,

where no term can cancel, and equal or one-hot directions give exactly zero. The chords among the values of a block do
not depend on the queries: `value_chords_kernel` leaves them in memory once, COLUMNS numbers for each value.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: SIM102 - an outer condition of capitals is the compiler's, the inner one the kernel's

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LOG2E, fast_exp2, scaled_sinh
from polarvit.kernels.attention.products import sharp_product
from polarvit.kernels.attention.rows import NOTHING, finish_rows, store_exponent
from polarvit.kernels.attention.tiles import (
    get,
    half_distances,
    numbers,
    of_columns,
    of_rows,
    radial_terms,
    squared_chords,
    transposed,
    within,
)


@triton.jit
def value_chords_kernel(
    value, near, chords, M, FAR: tl.constexpr,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, TQ: tl.constexpr, TK: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """1/2|u_j - u_l|^2 among the values of program (head, block), a matrix [COLUMNS, COLUMNS].

    FAR: of heads that are not near.
    """
    head = tl.program_id(0).to(tl.int64)
    if FAR:
        if tl.load(near + head) != 0:
            return
    rows, columns = numbers(0, COLUMNS, TQ), numbers(0, COLUMNS, TK)
    last = M - 1 - tl.program_id(1) * COLUMNS
    start = value + head * WIDTH * M + tl.program_id(1) * COLUMNS
    square = squared_chords(
        start, start, tl.minimum(rows, last), tl.minimum(columns, last), M, M, TQ, TK, WIDTH, UNROLL
    )
    place = chords + (head * tl.num_programs(1) + tl.program_id(1)) * COLUMNS * COLUMNS
    tl.store(place + of_rows(rows * COLUMNS) + of_columns(columns), 0.5 * square)


@triton.jit
def wide_forward_kernel(
    query_radius, query, key_radius, key, value_radius, value, near, chords, mask, scale, out_radius, out, exponents,
    HEADS, N, M,
    WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TQ: tl.constexpr, TK: tl.constexpr,
    HAS_MASK: tl.constexpr, SIDE: tl.constexpr, EXACT: tl.constexpr, FAR: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """FAR: heads that are near are another kernel's."""
    if SIDE > 0:
        N = SIDE
        M = SIDE
    head = tl.program_id(0).to(tl.int64)
    if FAR:
        if tl.load(near + head) != 0:
            return
    start = tl.program_id(1) * ROWS
    rows = within(numbers(start, ROWS, TQ), N, EXACT)
    line, edge, dims = start + tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, VALUE_PAD)
    deep = dims < VALUE_WIDTH
    query += head * WIDTH * N
    key += head * WIDTH * M
    value += head * VALUE_WIDTH * M
    chords += head * tl.cdiv(M, COLUMNS) * COLUMNS * COLUMNS
    factor = tl.load(scale + head % HEADS) * (-4.0 * LOG2E)
    half_a, down_a, ebb_a, sh_a = radial_terms(get(query_radius + head * N + rows))
    centre = tl.load(value + dims * M, mask=deep, other=0.0).to(tl.float32)

    mass = tl.zeros([ROWS // TQ, TQ], tl.float32)
    spread = tl.zeros([ROWS], tl.float32)
    radial = tl.zeros([ROWS // TQ, TQ], tl.float32)
    mass_exponent = tl.full([ROWS // TQ, TQ], NOTHING, tl.float32)
    radial_exponent = tl.full([ROWS // TQ, TQ], NOTHING, tl.float32)
    offset = tl.zeros([VALUE_PAD, ROWS], tl.float32)
    for first in range(0, M, COLUMNS):
        columns = numbers(first, COLUMNS, TK)
        attend = columns < M
        columns = within(columns, M, EXACT)
        if HAS_MASK:
            attend = attend & (tl.load(mask + head // HEADS * M + columns) != 0)
        c = get(value_radius + head * M + columns)
        sh = tl.where(attend, scaled_sinh(c), 0.0)
        half_b, down_b, ebb_b, sh_b = radial_terms(get(key_radius + head * M + columns))
        square = squared_chords(query, key, rows, columns, N, M, TQ, TK, WIDTH, UNROLL)
        half, _, _, _, _, _ = half_distances(half_a, down_a, ebb_a, sh_a, half_b, down_b, ebb_b, sh_b, square)
        score = factor * (half * half)
        some = of_columns(attend)
        beta = of_columns(c * LOG2E)

        exponent = tl.where(some, score + beta, NOTHING)
        top = tl.max(tl.max(exponent, 1), 2)
        m = fast_exp2(exponent - of_rows(top)) * of_columns(sh)
        block_mass = tl.sum(tl.sum(m, 1), 2)
        highest = tl.maximum(mass_exponent, top)
        old, new = fast_exp2(mass_exponent - highest), fast_exp2(top - highest)
        before = mass * old
        mass = before + block_mass * new
        mass_exponent = highest
        block_inverse = 1.0 / tl.where(block_mass > 0.0, block_mass, 1.0)
        share = block_mass * new / tl.where(mass > 0.0, mass, 1.0)

        weights = transposed(m, ROWS, COLUMNS)
        spot, inside = dims[:, None] * M + (first + edge)[None, :], deep[:, None] & (first + edge < M)[None, :]
        away = tl.load(value + spot, mask=inside, other=0.0).to(tl.float32) - centre[:, None]
        block = sharp_product(away, weights, tl.zeros([VALUE_PAD, ROWS], tl.float32))
        block *= tl.reshape(block_inverse, (ROWS,))[None, :]
        place = first * COLUMNS + edge[:, None] * COLUMNS + edge[None, :]
        among = sharp_product(tl.load(chords + place), weights, tl.zeros([COLUMNS, ROWS], tl.float32))
        block_spread = tl.sum(among * weights, 0) * tl.reshape(block_inverse * new, (ROWS,))
        apart = block - offset
        merged = tl.reshape(before * share, (ROWS,)) * tl.sum(apart * apart, 0)
        spread = spread * tl.reshape(old, (ROWS,)) + block_spread + merged
        line_share = tl.reshape(share, (ROWS,))[None, :]
        offset = tl.where(line_share <= 0.5, offset + line_share * apart, block - (1.0 - line_share) * apart)

        exponent = tl.where(some, score - beta, NOTHING)
        highest = tl.maximum(radial_exponent, tl.max(tl.max(exponent, 1), 2))
        terms = tl.where(some, fast_exp2(exponent - of_rows(highest)), 0.0)
        radial = radial * fast_exp2(radial_exponent - highest) + tl.sum(tl.sum(terms, 1), 2)
        radial_exponent = highest

    # Values that all sit at the origin have no mean direction; any will do, and the reference takes the first.
    mean = centre[:, None] + offset
    norm = tl.sqrt(tl.sum(mean * mean, 0))
    mass, radial = tl.reshape(mass, (ROWS,)), tl.reshape(radial, (ROWS,))
    mass_exponent, radial_exponent = tl.reshape(mass_exponent, (ROWS,)), tl.reshape(radial_exponent, (ROWS,))
    some = radial > 0.0
    radius, tau = finish_rows(mass, norm, spread, mass_exponent, radial, radial_exponent)
    pointed = some & (norm > 0.0)
    pole = tl.where(dims == 0, 1.0, 0.0)
    direction = tl.where(pointed[None, :], mean / tl.where(pointed, norm, 1.0)[None, :], pole[:, None])
    tl.store(out_radius + head * N + line, tl.where(some, radius, 0.0), mask=line < N)
    spot = head * VALUE_WIDTH * N + dims[:, None] * N + line[None, :]
    tl.store(out + spot, direction, mask=deep[:, None] & (line < N)[None, :])
    store_exponent(exponents + head * N + line, line < N, some, mass_exponent + tau)
