"""Backward kernel of polar attention: tiles of pairs, each distance once, no N x M matrix stored, nothing atomic.

Radius and direction of the centroid do not change when all weights are multiplied by one number, so the weights need no
softmax normaliser and the usual row sum of the softmax gradient is zero. With the exponents of the forward rows,

    A1 = w e^c / (T+|V|),   A2 = w e^-c / (E+S),   rho = (T+|V|) / (E+S) = e^(2 a_mu),

g the upstream gradient of a_mu, t that of the direction made perpendicular to it and multiplied by (T+|V|)/|V|, and
z_ij = t_i.(u_j - uhat_i) - g_i (1+rho_i)/2 * 1/2|u_j - uhat_i|^2, everything is

    d/d score   = A1 (g/2 + sh(c) z) - g/2 A2
    d/d radius  = A1 (g/2 + ch(c) z) + g/2 A2                      summed over rows
    d/d u_j     = sh(c) sum_i A1 (t_i + g_i (1+rho_i)/2 (uhat_i - u_j)), made perpendicular to u_j,

with A2 = A1 rho e^-2c. A program takes some blocks of rows, one after the other, and for each of them all keys. What a
block of rows adds to the keys goes into the program's own copy of their gradients. Where a head has one program and
values of one chunk of dimensions, its last block finishes them; else `attention_gather_kernel` of `ends` does.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: SIM102 - an outer condition of capitals is the compiler's, the inner one the kernel's

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LOG2E, fast_exp2, scaled_sinh
from polarvit.kernels.attention.ends import finished
from polarvit.kernels.attention.products import sharp_product
from polarvit.kernels.attention.tiles import (
    distance_gradients,
    get,
    get_inside,
    matrix,
    numbers,
    of_columns,
    of_rows,
    radial_terms,
    squared_chords,
    transposed,
    within,
)


@triton.jit
def value_terms(
    out, turned, value, rows, columns, N, M, half_pull,
    TQ: tl.constexpr, TK: tl.constexpr, VALUE_WIDTH: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """z_ij of the module's docstring, one coordinate after the other."""
    z = tl.zeros([rows.shape[0], columns.shape[0], TQ, TK], tl.float32)
    for d in tl.range(0, VALUE_WIDTH, loop_unroll_factor=UNROLL):
        step = of_columns(get(value + columns + d * M)) - of_rows(get(out + rows + d * N))
        z += step * (of_rows(get(turned + rows + d * N)) - of_rows(half_pull) * step)
    return z


@triton.jit
def add_four(a, b, c, d, e, f, g, h):
    return a + e, b + f, c + g, d + h


@triton.jit
def add_seven(a, b, c, d, e, f, g, h, i, j, k, m, n, o):
    return a + h, b + i, c + j, d + k, e + m, f + n, g + o


@triton.jit
def attention_backward_kernel(
    query_radius, query, key_radius, key, value_radius, value, mask, scale_pointer, out, turned, terms, near,
    to_query_radius, to_query, to_key_radius, to_key, to_value_radius, to_value, to_scale,
    HEADS, N, M, BLOCKS,
    WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    TQ: tl.constexpr, TK: tl.constexpr, HAS_MASK: tl.constexpr, MANY: tl.constexpr, FINISH: tl.constexpr,
    SIDE: tl.constexpr, EXACT: tl.constexpr, CHUNK: tl.constexpr, FAR: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Program (head, part) takes BLOCKS blocks of queries, MANY if that is more than one.

    Products with a tile take CHUNK dimensions at a time. EXACT: no tile reaches past the last row or column.
    SIDE, unless 0, is N = M known to the compiler, which then folds the steps from one coordinate to the next.
    FAR: heads that are near are another kernel's.
    """
    if SIDE > 0:
        N = SIDE
        M = SIDE
    head = tl.program_id(0).to(tl.int64)
    copy = tl.program_id(1) * tl.num_programs(0) + head
    query += head * WIDTH * N
    key += head * WIDTH * M
    value += head * VALUE_WIDTH * M
    out += head * VALUE_WIDTH * N
    turned += head * VALUE_WIDTH * N
    terms += head * 3 * N
    query_radius += head * N
    key_radius += head * M
    value_radius += head * M
    to_query += head * WIDTH * N
    to_key += copy * WIDTH * M
    to_value += copy * VALUE_WIDTH * M
    to_key_radius += copy * M
    to_value_radius += copy * M
    scale = tl.load(scale_pointer + head % HEADS)
    begin = tl.program_id(1) * BLOCKS * ROWS
    FULL: tl.constexpr = EXACT and WIDTH % CHUNK == 0
    VALUE_FULL: tl.constexpr = EXACT and VALUE_WIDTH % CHUNK == 0
    lowest = tl.arange(0, CHUNK)
    key_centre = tl.load(key + lowest * M, mask=lowest < WIDTH, other=0.0).to(tl.float32)
    value_centre = tl.load(value + lowest * M, mask=lowest < VALUE_WIDTH, other=0.0).to(tl.float32)
    end = tl.minimum(begin + BLOCKS * ROWS, N)
    if FAR:
        if tl.load(near + head) != 0:
            end = begin
    for start in range(begin, end, ROWS):
        rows = numbers(start, ROWS, TQ)
        row_valid = rows < N
        spots = within(rows, N, EXACT)
        line = start + tl.arange(0, ROWS)
        on_line = line < N
        half_a, down_a, ebb_a, sh_a = radial_terms(get(query_radius + spots))
        half, grown = get(terms + spots), get(terms + N + spots)
        shift = tl.where(row_valid, get(terms + 2 * N + spots), 1e38)  # no weight where there is no row
        half_pull = 0.5 * (half + grown)
        line_pull = get_inside(terms + line, on_line, EXACT) + get_inside(terms + N + line, on_line, EXACT)
        # Sums over the columns of a thread; over threads they are added up once, after all columns.
        score_sum = tl.zeros([ROWS // TQ, TQ, TK], tl.float32)
        up_sum = tl.zeros([ROWS // TQ, TQ, TK], tl.float32)
        radius_sum = tl.zeros([ROWS // TQ, TQ, TK], tl.float32)
        radius_up = tl.zeros([ROWS // TQ, TQ, TK], tl.float32)
        scale_sum = tl.zeros([ROWS // TQ, TQ, TK], tl.float32)
        scale_up = tl.zeros([ROWS // TQ, TQ, TK], tl.float32)
        chord_sum = tl.zeros([ROWS // TQ, TQ, TK], tl.float32)
        kept = tl.zeros([CHUNK, ROWS], tl.float32)
        for first in range(0, M, COLUMNS):
            columns = numbers(first, COLUMNS, TK)
            in_range = columns < M
            places = within(columns, M, EXACT)
            edge = first + tl.arange(0, COLUMNS)
            on_edge = edge < M
            c = get(value_radius + places)
            sh, shrunk = scaled_sinh(c), fast_exp2(c * (-2.0 * LOG2E))
            attend = in_range
            if HAS_MASK:
                attend = in_range & (tl.load(mask + head // HEADS * M + places) != 0)
            beta = tl.where(attend, c * LOG2E, float("-inf"))  # no weight at all
            half_b, down_b, ebb_b, sh_b = radial_terms(get(key_radius + places))
            square = squared_chords(query, key, spots, places, N, M, TQ, TK, WIDTH, UNROLL)
            distance2, by_chord, by_a, by_b = distance_gradients(
                half_a, down_a, ebb_a, sh_a, half_b, down_b, ebb_b, sh_b, square
            )
            exponent = (scale * -LOG2E) * distance2 + (of_columns(beta) - of_rows(shift))
            weight = fast_exp2(tl.minimum(exponent, 1.0))  # A1 <= 2, however large the rounding of a large score
            z = value_terms(out, turned, value, spots, places, N, M, half_pull, TQ, TK, VALUE_WIDTH, UNROLL)
            under = of_rows(grown) * of_columns(shrunk)
            shared = of_columns(sh) * z
            by_score = weight * (of_rows(half) + shared - under)
            chords = by_score * by_chord
            score_sum += tl.sum(by_score, 1)
            up_sum += tl.sum(weight, 1)
            radius_sum += tl.sum(by_score * by_a, 1)
            radius_up += tl.sum(weight * by_a, 1)
            scale_sum += tl.sum(by_score * distance2, 1)
            scale_up += tl.sum(weight * distance2, 1)
            chord_sum += tl.sum(chords, 1)
            by_value_radius = weight * (of_rows(half) + (z - shared) + under)  # ch(c) = 1 - sh(c)
            key_sum, value_sum, pulled, chorded = tl.reduce(
                (tl.sum(by_score * by_b, 0), tl.sum(by_value_radius, 0), tl.sum(weight * of_rows(half_pull), 0),
                 tl.sum(chords, 0)), 1, add_four,
            )  # fmt: skip
            key_sum *= -2.0 * scale
            if MANY:
                if start > begin:
                    key_sum += tl.load(to_key_radius + columns, mask=in_range, other=0.0)
                    value_sum += tl.load(to_value_radius + columns, mask=in_range, other=0.0)
            tl.store(to_key_radius + columns, key_sum, mask=in_range)
            tl.store(to_value_radius + columns, value_sum, mask=in_range)

            # sum_j g_ij (q_i - k_j) and its mirror, from one centre so that little cancels.
            chord_rows, chord_columns = matrix(chords, ROWS, COLUMNS), transposed(chords, ROWS, COLUMNS)
            for d in tl.range(0, WIDTH, CHUNK):
                dims = d + tl.arange(0, CHUNK)
                spot, inside = dims[:, None] * M + edge[None, :], (dims < WIDTH)[:, None] & on_edge[None, :]
                row_spot, row_inside = dims[:, None] * N + line[None, :], (dims < WIDTH)[:, None] & on_line[None, :]
                centre = key_centre
                if d > 0:
                    centre = tl.load(key + dims * M, mask=dims < WIDTH, other=0.0).to(tl.float32)
                away = get_inside(key + spot, inside, FULL) - centre[:, None]
                away_rows = get_inside(query + row_spot, row_inside, FULL) - centre[:, None]
                to_k = away * tl.reshape(chorded, (COLUMNS,))[None, :]
                to_k -= sharp_product(away_rows, chord_rows, tl.zeros([CHUNK, COLUMNS], tl.float32))
                to_k *= -2.0 * scale
                if MANY:
                    if start > begin:
                        to_k += tl.load(to_key + spot, mask=inside, other=0.0)
                tl.store(to_key + spot, to_k, mask=inside)
                if WIDTH > CHUNK:
                    kept = tl.load(to_query + row_spot, mask=row_inside & (first > 0), other=0.0)
                kept = sharp_product(away, chord_columns, kept)
                if WIDTH > CHUNK:
                    tl.store(to_query + row_spot, kept, mask=row_inside)

            weights = matrix(weight, ROWS, COLUMNS)
            for d in tl.range(0, VALUE_WIDTH, CHUNK):
                dims = d + tl.arange(0, CHUNK)
                deep = dims < VALUE_WIDTH
                spot, inside = dims[:, None] * M + edge[None, :], deep[:, None] & on_edge[None, :]
                row_spot, row_inside = dims[:, None] * N + line[None, :], deep[:, None] & on_line[None, :]
                centre = value_centre
                if d > 0:
                    centre = tl.load(value + dims * M, mask=deep, other=0.0).to(tl.float32)
                outward = line_pull[None, :] * (get_inside(out + row_spot, row_inside, VALUE_FULL) - centre[:, None])
                outward += get_inside(turned + row_spot, row_inside, VALUE_FULL)
                w = get_inside(value + spot, inside, VALUE_FULL)
                to_w = sharp_product(outward, weights, tl.zeros([CHUNK, COLUMNS], tl.float32))
                to_w -= tl.reshape(2.0 * pulled, (COLUMNS,))[None, :] * (w - centre[:, None])
                if MANY:
                    if start > begin:
                        to_w += tl.load(to_value + spot, mask=inside, other=0.0)
                if FINISH:
                    if start + ROWS >= N:
                        to_w = finished(to_w, w, tl.reshape(sh, (COLUMNS,)))
                tl.store(to_value + spot, to_w, mask=inside)
            if WIDTH > CHUNK:
                tl.debug_barrier()  # what a thread adds up in memory, another may have written

        score_sum, up_sum, radius_sum, radius_up, scale_sum, scale_up, chord_sum = tl.reduce(
            (score_sum, up_sum, radius_sum, radius_up, scale_sum, scale_up, chord_sum), 2, add_seven
        )
        # The score gradients of a row add up to zero; what rounding leaves is taken off in proportion to A1, or it
        # would be multiplied by the mean of D^2 or its derivative, which is larger than the result.
        excess = score_sum / tl.where(up_sum > 0.0, up_sum, 1.0)
        tl.store(to_query_radius + head * N + rows, -2.0 * scale * (radius_sum - radius_up * excess), mask=row_valid)
        share = tl.sum(tl.sum(tl.where(row_valid, scale_up * excess - scale_sum, 0.0), 1), 0)
        block = head // HEADS * tl.cdiv(N, ROWS) + start // ROWS
        tl.store(to_scale + block * HEADS + head % HEADS, share)
        chord_line = tl.reshape(chord_sum, (ROWS,))[None, :]
        for d in tl.range(0, WIDTH, CHUNK):
            dims = d + tl.arange(0, CHUNK)
            spot, inside = dims[:, None] * N + line[None, :], (dims < WIDTH)[:, None] & on_line[None, :]
            centre = key_centre
            if d > 0:
                centre = tl.load(key + dims * M, mask=dims < WIDTH, other=0.0).to(tl.float32)
            away = get_inside(query + spot, inside, FULL) - centre[:, None]
            if WIDTH > CHUNK:
                kept = tl.load(to_query + spot, mask=inside, other=0.0)
            tl.store(to_query + spot, -2.0 * scale * (away * chord_line - kept), mask=inside)
        if MANY:
            tl.debug_barrier()
