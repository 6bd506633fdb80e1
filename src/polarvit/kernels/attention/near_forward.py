"""Forward kernel of polar attention for near heads (see `near`): the sums of `wide`, pairs by products.

Values lie within radius 8, so the sums of e^c and e^-c may share one exponent.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LOG2E, fast_exp2, scaled_sinh
from polarvit.kernels.attention.near import (
    gaps,
    half_distance,
    hyperbolic,
    load_three,
    offsets,
)
from polarvit.kernels.attention.products import half_squared_chords, pieces, sharp_product
from polarvit.kernels.attention.rows import NOTHING, finish_rows, store_exponent
from polarvit.kernels.attention.tiles import get_inside
from polarvit.kernels.pieces import add_two


@triton.jit
def near_chords_kernel(
    value, near, chords, M,
    VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr, COLUMNS: tl.constexpr, SIZE: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """1/2|u_j - u_l|^2 among the values of blocks of COLUMNS, as `wide.value_chords_kernel`; SIZE values a program.

    SIDE, unless 0, is M known to the compiler.
    """
    if SIDE > 0:
        M = SIDE
    head = tl.program_id(0).to(tl.int64)
    if tl.load(near + head) != 0:
        value += head * VALUE_WIDTH * M
        first = tl.program_id(1) * SIZE
        edge = first + tl.arange(0, SIZE)
        away = offsets(value, value + tl.arange(0, VALUE_PAD) * M, edge, M, VALUE_WIDTH, VALUE_PAD)
        w1, w2, w3, a, b, c = pieces(away)
        half = half_squared_chords(tl.trans(w1), tl.trans(w2), tl.trans(w3), w1, w2, w3, a, b, c, a, b, c)
        row, column = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
        blocks = tl.cdiv(M, COLUMNS)
        block = first // COLUMNS + row // COLUMNS
        place = (head * blocks + block) * COLUMNS * COLUMNS + row % COLUMNS * COLUMNS + column % COLUMNS
        tl.store(chords + place, half, mask=(row // COLUMNS == column // COLUMNS) & (block < blocks))


@triton.jit
def near_forward_kernel(
    query_radius, query, key_radius, key, value_radius, value, near, squares, split, chords, mask, scale,
    out_radius, out, exponents, HEADS, N, M, PLACES,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HAS_MASK: tl.constexpr, SIDE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Forward, program (head, block of queries); `chords` are those among the values of a block, see `wide`."""
    if SIDE > 0:
        N = SIDE
        M = SIDE
        PLACES = tl.cdiv(SIDE, COLUMNS) * COLUMNS
    head = tl.program_id(0).to(tl.int64)
    query_radius += head * N
    key_radius += head * M
    value_radius += head * M
    if tl.load(near + head) != 0:
        query += head * WIDTH * N
        key += head * WIDTH * M
        value += head * VALUE_WIDTH * M
        squares += head * 3 * PLACES
        split += head * 3 * PLACES * PAD
        chords += head * tl.cdiv(M, COLUMNS) * COLUMNS * COLUMNS
        factor = tl.load(scale + head % HEADS) * (-4.0 * LOG2E)
        dims, value_dims, edge = tl.arange(0, PAD), tl.arange(0, VALUE_PAD), tl.arange(0, COLUMNS)
        line = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
        spots = tl.minimum(line, N - 1)
        q1, q2, q3, q_first, q_second, q_third = pieces(offsets(query, key + dims * M, line, N, WIDTH, PAD))
        a = tl.load(query_radius + spots).to(tl.float32)
        up_a, down_a, sinh_a, _cosh_a = hyperbolic(a)
        mass = tl.zeros([ROWS], tl.float32)
        spread = tl.zeros([ROWS], tl.float32)
        radial = tl.zeros([ROWS], tl.float32)
        base = tl.full([ROWS], NOTHING, tl.float32)
        offset = tl.zeros([ROWS, VALUE_PAD], tl.float32)
        for first in tl.range(0, M, COLUMNS, num_stages=STAGES):
            attend = first + edge < M
            places = tl.minimum(first + edge, M - 1)
            k1, k2, k3 = load_three(split + (first + edge)[:, None] * PAD + dims[None, :], PLACES * PAD)
            yours = squares + first + edge
            h = half_squared_chords(
                tl.trans(q1), tl.trans(q2), tl.trans(q3), tl.trans(k1), tl.trans(k2), tl.trans(k3),
                q_first, q_second, q_third, tl.load(yours), tl.load(yours + PLACES), tl.load(yours + 2 * PLACES),
            )  # fmt: skip
            b = tl.load(key_radius + places).to(tl.float32)
            up_b, down_b, sinh_b, _cosh_b = hyperbolic(b)
            c = tl.load(value_radius + places).to(tl.float32)
            if HAS_MASK:
                attend = attend & (tl.load(mask + head // HEADS * M + places) != 0)
            half_gap, _sinh_gap = gaps(
                a[:, None] - b[None, :], up_a[:, None] * down_b[None, :], down_a[:, None] * up_b[None, :]
            )
            half, _inverse_s, _inverse_c = half_distance(
                half_gap * half_gap + (0.5 * sinh_a)[:, None] * (sinh_b[None, :] * h)
            )
            exponent = tl.where(attend[None, :], factor * (half * half) + (c * LOG2E)[None, :], NOTHING)
            top = tl.max(exponent, 1)
            weight = tl.where(attend[None, :], fast_exp2(exponent - top[:, None]), 0.0)
            m = weight * scaled_sinh(c)[None, :]
            block_mass, block_radial = tl.reduce((m, weight * fast_exp2(c * (-2.0 * LOG2E))[None, :]), 1, add_two)
            highest = tl.maximum(base, top)
            old, new = fast_exp2(base - highest), fast_exp2(top - highest)
            base = highest
            radial = radial * old + block_radial * new
            before = mass * old
            mass = before + block_mass * new
            block_inverse = 1.0 / tl.where(block_mass > 0.0, block_mass, 1.0)
            share = block_mass * new / tl.where(mass > 0.0, mass, 1.0)

            w = tl.trans(offsets(value, value + value_dims * M, first + edge, M, VALUE_WIDTH, VALUE_PAD))
            block = sharp_product(m, w, tl.zeros([ROWS, VALUE_PAD], tl.float32)) * block_inverse[:, None]
            place = first * COLUMNS + edge[:, None] * COLUMNS + edge[None, :]
            among = sharp_product(m, tl.load(chords + place), tl.zeros([ROWS, COLUMNS], tl.float32))
            block_spread = tl.sum(among * m, 1) * (block_inverse * new)
            apart = block - offset
            spread = spread * old + block_spread + before * share * tl.sum(apart * apart, 1)
            step = share[:, None] * apart
            offset = tl.where(share[:, None] <= 0.5, offset + step, block - (apart - step))

        centre = get_inside(value + value_dims * M, value_dims < VALUE_WIDTH, VALUE_WIDTH == VALUE_PAD)
        mean = centre[None, :] + offset
        norm = tl.sqrt(tl.sum(mean * mean, 1))
        some = radial > 0.0
        radius, tau = finish_rows(mass, norm, spread, base, radial, base)
        pointed = some & (norm > 0.0)
        pole = tl.where(value_dims == 0, 1.0, 0.0)
        direction = tl.where(pointed[:, None], mean / tl.where(pointed, norm, 1.0)[:, None], pole[None, :])
        valid = line < N
        tl.store(out_radius + head * N + line, tl.where(some, radius, 0.0), mask=valid)
        spot = head * VALUE_WIDTH * N + value_dims[None, :] * N + line[:, None]
        tl.store(out + spot, direction, mask=(value_dims < VALUE_WIDTH)[None, :] & valid[:, None])
        store_exponent(exponents + head * N + line, valid, some, base + tau)
