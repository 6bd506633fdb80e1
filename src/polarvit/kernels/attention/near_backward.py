"""Backward kernels of polar attention for near heads (see `near`): the formulas of `backward`, pairs by products.

A program takes a block of keys, whose gradients stay in its registers, and goes through all queries; what they get from
a block goes into copies [PARTS, ...] that `near_gather_kernel` adds up. Weights and chord gradients enter products as
two float16 each, measured by the largest: their error is 2^-22 of themselves or 2^-38 of that.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment,misc"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.attention.backward import add_four, add_seven
from polarvit.kernels.attention.elementary import LOG2E, fast_exp2, scaled_sinh
from polarvit.kernels.attention.ends import finished
from polarvit.kernels.attention.near import (
    ROW_TERMS,
    gaps,
    half_distance,
    hyperbolic,
    load_three,
    offsets,
    store_three,
)
from polarvit.kernels.attention.products import half_squared_chords, halves, largest
from polarvit.kernels.attention.tiles import get_inside

WEIGHT = tl.constexpr(4096.0)  # weights are at most 2
CHORD = tl.constexpr(16384.0)
ROW_SUMS = tl.constexpr(7)


@triton.jit
def load_split(split, squares, head, points, PLACES, PAD: tl.constexpr):
    """Points [points, PAD] in three pieces and their squares in three parts, as `near_split_kernel` left them."""
    spot = head * 3 * PLACES * PAD + points[:, None] * PAD + tl.arange(0, PAD)[None, :]
    one, two, three = load_three(split + spot, PLACES * PAD)
    first, second, third = load_three(squares + head * 3 * PLACES + points, PLACES)
    return one, two, three, first, second, third


@triton.jit
def near_backward_kernel(
    key_radius, key, value_radius, value, mask, scale_pointer, query_squares, query_split, key_squares, key_split,
    out_squares, out_split, value_squares, value_split, rows, turned_split, near, row_sums, to_query,
    to_key_radius, to_key, to_value_radius, to_value, HEADS, N, M, LINES, PLACES, BLOCKS,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HAS_MASK: tl.constexpr, MANY: tl.constexpr, SIDE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Program (head, part) takes BLOCKS blocks of keys, MANY if that is more than one; pairs are [COLUMNS, ROWS]."""
    if SIDE > 0:
        N = SIDE
        M = SIDE
        LINES = tl.cdiv(SIDE, ROWS) * ROWS
        PLACES = tl.cdiv(SIDE, COLUMNS) * COLUMNS
    head = tl.program_id(0).to(tl.int64)
    key_radius += head * M
    value_radius += head * M
    if tl.load(near + head) != 0:
        copy = tl.program_id(1) * tl.num_programs(0) + head
        key += head * WIDTH * M
        value += head * VALUE_WIDTH * M
        rows += head * ROW_TERMS * LINES
        turned_split += head * 2 * LINES * VALUE_PAD
        to_query += copy * WIDTH * N
        row_sums += copy * ROW_SUMS * N
        to_key += head * WIDTH * M
        to_value += head * VALUE_WIDTH * M
        scale = tl.load(scale_pointer + head % HEADS)
        dims, value_dims = tl.arange(0, PAD), tl.arange(0, VALUE_PAD)
        # Nothing that enters a product as float16 may outgrow it: a bound on weights times what they multiply.
        bound = tl.maximum(tl.maximum(largest(rows + LINES, N), largest(rows + 2 * LINES, N)), 1e-30)
        unit, down_unit = 1.0 / bound * WEIGHT, bound / WEIGHT
        twice = -2.0 * scale
        begin = tl.program_id(1) * BLOCKS * COLUMNS
        for start in range(begin, tl.minimum(begin + BLOCKS * COLUMNS, M), COLUMNS):
            edge = start + tl.arange(0, COLUMNS)
            on_edge = edge < M
            places = tl.minimum(edge, M - 1)
            k1, k2, k3, k_first, k_second, k_third = load_split(key_split, key_squares, head, edge, PLACES, PAD)
            w1, w2, w3, w_first, w_second, w_third = load_split(
                value_split, value_squares, head, edge, PLACES, VALUE_PAD
            )
            b = tl.load(key_radius + places).to(tl.float32)
            up_b, down_b, sinh_b, cosh_b = hyperbolic(b)
            c = tl.load(value_radius + places).to(tl.float32)
            sh, shrunk = scaled_sinh(c), fast_exp2(c * (-2.0 * LOG2E))
            attend = on_edge
            if HAS_MASK:
                attend = on_edge & (tl.load(mask + head // HEADS * M + places) != 0)
            beta = tl.where(attend, c * LOG2E, float("-inf"))  # no weight at all
            key_total = tl.zeros([COLUMNS, PAD], tl.float32)
            value_total = tl.zeros([COLUMNS, VALUE_PAD], tl.float32)
            key_sum = tl.zeros([COLUMNS], tl.float32)
            value_sum = tl.zeros([COLUMNS], tl.float32)
            pulled = tl.zeros([COLUMNS], tl.float32)
            chorded = tl.zeros([COLUMNS], tl.float32)
            chord_unit = 1e30  # as large as no chord asks for less
            for first in tl.range(0, N, ROWS, num_stages=STAGES):
                line = first + tl.arange(0, ROWS)
                q1, q2, q3, q_first, q_second, q_third = load_split(query_split, query_squares, head, line, LINES, PAD)
                o1, o2, o3, o_first, o_second, o_third = load_split(
                    out_split, out_squares, head, line, LINES, VALUE_PAD
                )
                turned = turned_split + line[:, None] * VALUE_PAD + value_dims[None, :]
                t1, t2 = tl.load(turned), tl.load(turned + LINES * VALUE_PAD)
                product, size, pull = load_three(rows + line, LINES)
                flat, grown, shift = load_three(rows + 3 * LINES + line, LINES)
                a = tl.load(rows + 6 * LINES + line)
                h = half_squared_chords(
                    k1, k2, k3, tl.trans(q1), tl.trans(q2), tl.trans(q3),
                    k_first, k_second, k_third, q_first, q_second, q_third,
                )  # fmt: skip
                apart = half_squared_chords(
                    w1, w2, w3, tl.trans(o1), tl.trans(o2), tl.trans(o3),
                    w_first, w_second, w_third, o_first, o_second, o_third,
                )  # fmt: skip
                turn = tl.dot(w2, tl.trans(t1), tl.zeros([COLUMNS, ROWS], tl.float32))
                turn = tl.dot(w1, tl.trans(t2), turn)
                turn = tl.dot(w1, tl.trans(t1), turn)
                z = size[None, :] * turn - product[None, :] - pull[None, :] * apart

                up_a, down_a, sinh_a, cosh_a = hyperbolic(a)
                half_gap, sinh_gap = gaps(
                    a[None, :] - b[:, None], up_a[None, :] * down_b[:, None], down_a[None, :] * up_b[:, None]
                )
                swept = sinh_b[:, None] * h
                half, inverse_s, inverse_c = half_distance(half_gap * half_gap + (0.5 * sinh_a)[None, :] * swept)
                slope = half * inverse_s * inverse_c
                distance2 = 4.0 * half * half
                by_a = slope * (sinh_gap + cosh_a[None, :] * swept)
                by_b = slope * (cosh_b[:, None] * (sinh_a[None, :] * h) - sinh_gap)

                exponent = (scale * -LOG2E) * distance2 + (beta[:, None] - shift[None, :])
                weight = fast_exp2(tl.minimum(exponent, 1.0))  # A1 <= 2, however large the rounding of a large score
                under = grown[None, :] * shrunk[:, None]
                shared = sh[:, None] * z
                by_score = weight * (flat[None, :] + shared - under)
                by_value_radius = weight * (flat[None, :] + (z - shared) + under)  # ch(c) = 1 - sh(c)
                chords = by_score * (slope * (sinh_b[:, None] * sinh_a[None, :]))
                pulls = weight * pull[None, :]
                sums = tl.reduce((by_score * by_b, by_value_radius, pulls, chords), 1, add_four)
                key_sum += sums[0]
                value_sum += sums[1]
                pulled += sums[2]
                chorded += sums[3]

                # What enters a product as float16 is measured by the largest so far.
                fitting = tl.minimum(1.0 / tl.maximum(tl.max(tl.max(tl.abs(chords), 1), 0), 1e-30) * CHORD, chord_unit)
                key_total *= fitting / chord_unit
                chord_unit = fitting
                c1, c2 = halves(chord_unit * chords)
                key_total = tl.dot(c2, q1, key_total)
                key_total = tl.dot(c1, q2, key_total)
                key_total = tl.dot(c1, q1, key_total)
                m1, m2 = halves((unit * size)[None, :] * weight)
                value_total = tl.dot(m2, t1, value_total)
                value_total = tl.dot(m1, t2, value_total)
                value_total = tl.dot(m1, t1, value_total)
                p1, p2 = halves(unit * pulls)
                value_total = tl.dot(p2, o1, value_total)
                value_total = tl.dot(p1, o2, value_total)
                value_total = tl.dot(p1, o1, value_total)
                query_total = tl.dot(tl.trans(k1), c2, tl.zeros([PAD, ROWS], tl.float32))
                query_total = tl.dot(tl.trans(k2), c1, query_total)
                query_total = tl.dot(tl.trans(k1), c1, query_total)
                s1, s2, s3, s4, s5, s6, chord_sum = tl.reduce(
                    (by_score, weight, by_score * by_a, weight * by_a, by_score * distance2, weight * distance2,
                     chords), 0, add_seven,
                )  # fmt: skip
                query_total *= 1.0 / chord_unit
                mine, on_line = row_sums + line, line < N
                spot, inside = dims[:, None] * N + line[None, :], (dims < WIDTH)[:, None] & on_line[None, :]
                if MANY:
                    before = start > begin
                    query_total += tl.load(to_query + spot, mask=inside & before, other=0.0)
                    had = on_line & before
                    s1 += tl.load(mine, mask=had, other=0.0)
                    s2 += tl.load(mine + N, mask=had, other=0.0)
                    s3 += tl.load(mine + 2 * N, mask=had, other=0.0)
                    s4 += tl.load(mine + 3 * N, mask=had, other=0.0)
                    s5 += tl.load(mine + 4 * N, mask=had, other=0.0)
                    s6 += tl.load(mine + 5 * N, mask=had, other=0.0)
                    chord_sum += tl.load(mine + 6 * N, mask=had, other=0.0)
                tl.store(to_query + spot, query_total, mask=inside)
                store_three(mine, N, s1, s2, s3, on_line)
                store_three(mine + 3 * N, N, s4, s5, s6, on_line)
                tl.store(mine + 6 * N, chord_sum, mask=on_line)

            tl.store(to_key_radius + head * M + edge, twice * key_sum, mask=on_edge)
            tl.store(to_value_radius + head * M + edge, value_sum, mask=on_edge)
            spot, inside = dims[:, None] * M + edge[None, :], (dims < WIDTH)[:, None] & on_edge[None, :]
            k = offsets(key, key + dims * M, edge, M, WIDTH, PAD)  # read again: registers are short in the loop
            step = k * chorded[None, :] - tl.trans(key_total) * (1.0 / chord_unit)
            tl.store(to_key + spot, twice * step, mask=inside)
            spot, inside = (
                value_dims[:, None] * M + edge[None, :],
                (value_dims < VALUE_WIDTH)[:, None] & on_edge[None, :],
            )
            w = offsets(value, value + value_dims * M, edge, M, VALUE_WIDTH, VALUE_PAD)
            to_w = tl.trans(value_total) * down_unit - w * pulled[None, :]
            full = w + get_inside(value + value_dims * M, value_dims < VALUE_WIDTH, VALUE_WIDTH == VALUE_PAD)[:, None]
            tl.store(to_value + spot, finished(to_w, full, sh), mask=inside)
            if MANY:
                tl.debug_barrier()


@triton.jit
def near_gather_kernel(
    near, scale_pointer, query, key, row_sums, parts, to_query_radius, to_query, to_scale, HEADS, N, M,
    PARTS: tl.constexpr, WIDTH: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """Adds up the copies [PARTS, heads, ...] of sum_j g_ij (k_j - o) and of the sums over a row's pairs.

    The score gradients of a row add up to zero; what rounding leaves is taken off in proportion to A1 (see `backward`).
    """
    if SIDE > 0:
        N = SIDE
        M = SIDE
    head = tl.program_id(0).to(tl.int64)
    heads = tl.num_programs(0)
    line = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if tl.load(near + head) == 0:
        line += N  # beyond the last one: nothing to do
    valid = line < N
    dims, names = tl.arange(0, PAD), tl.arange(0, 8)
    spot, inside = dims[:, None] * N + line[None, :], (dims < WIDTH)[:, None] & valid[None, :]
    place, known = names[:, None] * N + line[None, :], (names < ROW_SUMS)[:, None] & valid[None, :]
    copies, sums_of = (), ()
    for part in tl.static_range(PARTS):  # all of them are on their way before the first is added
        copy = part * heads + head
        copies = copies + (tl.load(parts + copy * WIDTH * N + spot, mask=inside, other=0.0),)
        sums_of = sums_of + (tl.load(row_sums + copy * ROW_SUMS * N + place, mask=known, other=0.0),)
    q = offsets(query + head * WIDTH * N, key + head * WIDTH * M + dims * M, line, N, WIDTH, PAD)
    total, sums = tl.zeros([PAD, BLOCK], tl.float32), tl.zeros([8, BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        total += copies[part]
        sums += sums_of[part]
    chords = tl.sum(tl.where(names[:, None] == 6, sums, 0.0), 0)
    twice = -2.0 * tl.load(scale_pointer + head % HEADS)
    tl.store(to_query + head * WIDTH * N + spot, twice * (q * chords[None, :] - total), mask=inside)
    weight = tl.sum(tl.where(names[:, None] == 1, sums, 0.0), 0)
    excess = tl.sum(tl.where(names[:, None] == 0, sums, 0.0), 0) / tl.where(weight > 0.0, weight, 1.0)
    sums = tl.where((names % 2 == 1)[:, None], -excess[None, :] * sums, sums)
    by_radius = tl.sum(tl.where((names // 2 == 1)[:, None], sums, 0.0), 0)
    by_scale = tl.sum(tl.sum(tl.where((names // 2 == 2)[:, None], sums, 0.0), 0), 0)
    tl.store(to_query_radius + head * N + line, twice * by_radius, mask=valid)
    block = head // HEADS * tl.num_programs(1) + tl.program_id(1)
    tl.store(to_scale + block * HEADS + head % HEADS, -by_scale)
