"""Backward kernel of a layer whose point is a step: the residual's gradient of it goes on to the product at once.

Programs take blocks of rows, as in `polarvit.kernels.residual.triton_backward`; the layer's part is that of
`polarvit.kernels.linear.triton` without an activation. A program's row of `partials` has its sums for w_0, beta, slope,
phi_0 and the size of the steps.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh, scaled_sinh
from polarvit.kernels.linear.triton import store_sums, store_tail
from polarvit.kernels.pieces import fold, load_piece, load_rows, per_row, piece_columns, store_piece
from polarvit.kernels.residual.triton import gaps_of, step_factor
from polarvit.kernels.residual.triton_backward import ORIGIN, pulled_rows, upstream_dots


@triton.jit
def step_backward_kernel(
    a, u, product, c_in, time_weight, beta, slope, size, kept, signed, in_step, in_norm, grad_radius, grad,
    to_a, to_u, to_product, to_c, partials, N, COLUMNS,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, EXTRA: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr,
    PIECES: tl.constexpr, ROWS: tl.constexpr, COUNT: tl.constexpr, TURNS: tl.constexpr, HAS_KEPT: tl.constexpr,
):  # fmt: skip
    """A program takes TURNS blocks of a sample's rows, one after the other."""
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    sample = tl.program_id(0).to(tl.int64)
    tile, product_tile = sample * N * WIDTH, sample * N * STRIDE
    factor = step_factor(size, kept, sample, HAS_KEPT)
    power, gain = tl.load(beta), tl.load(slope)
    everyone = tl.arange(0, COUNT)
    all_signed = tl.load(signed + sample * N + everyone, mask=everyone < N, other=0.0)
    all_grad = tl.load(grad_radius + sample * N + everyone, mask=everyone < N, other=0.0)
    mean = tl.sum(tl.where(all_signed < 0.0, -all_grad, all_grad), 0) / N
    sums = ()
    for _ in tl.static_range(PIECES):
        sums = sums + (tl.zeros([ROWS, HEIGHT, LANES], tl.float32),)
    sum_beta = tl.zeros([ROWS], tl.float32)
    sum_slope = tl.zeros([ROWS], tl.float32)
    sum_phi0 = tl.zeros([ROWS], tl.float32)
    sum_size = tl.zeros([ROWS], tl.float32)
    for turn in range(TURNS):
        rows = (tl.program_id(1) * TURNS + turn) * ROWS + tl.arange(0, ROWS)
        valid = rows < N
        place = sample * N + rows
        radius = tl.load(a + place, mask=valid, other=0.0)
        step = tl.load(in_step + place, mask=valid, other=0.0)
        sign = tl.where(tl.load(signed + place, mask=valid, other=0.0) < 0.0, -1.0, 1.0)
        moved = tl.load(grad_radius + place, mask=valid, other=0.0) * sign

        # the step again, from the product
        c = tl.load(c_in + place, mask=valid, other=0.0)
        norm = tl.load(in_norm + place, mask=valid, other=0.0)
        ch = scaled_cosh(c)
        klein = scaled_sinh(c) / ch
        zero = norm == 0.0
        length = tl.where(zero, ORIGIN, norm)
        inverse = 1.0 / length
        ys = ()
        for i in tl.static_range(PIECES):
            columns = piece_columns(i, LANES, HEIGHT)
            p = load_piece(product + product_tile, rows, valid, columns, STRIDE, WIDTH, LANES, EXACT)
            weight = load_piece(time_weight, rows, valid, columns, 0, WIDTH, LANES, EXACT)
            y = (per_row(klein) * p + weight) * per_row(inverse)
            if i == 0:
                y += tl.where(per_row(zero) & (columns == 0)[None, :, :], 1.0, 0.0)
            ys = ys + (y,)

        xs = load_rows(u + tile, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
        gs = load_rows(grad + tile, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
        gaps, side, chord = gaps_of(xs, ys, PIECES)
        g_x, g_gap = upstream_dots(xs, gaps, gs, PIECES)
        g_first = tl.load(grad + tile + rows * WIDTH, mask=valid, other=0.0)
        x_first = tl.load(u + tile + rows * WIDTH, mask=valid, other=0.0)
        p_first = tl.load(product + product_tile + rows * STRIDE, mask=valid, other=0.0).to(tl.float32)
        y_first = (klein * p_first + tl.load(time_weight)) * inverse + tl.where(zero, 1.0, 0.0)
        by_a, by_step, part, u_g, u_x, u_gap, v_g, v_x, v_gap, lone = pulled_rows(
            radius, step, factor, side, chord, moved, mean, sign * g_x, sign * g_gap, sign * g_first, x_first,
            y_first - side * x_first,
        )  # fmt: skip
        pulls = ()
        alongs = tl.zeros([ROWS, LANES], tl.float32)
        for i in tl.static_range(PIECES):
            columns = piece_columns(i, LANES, HEIGHT)
            g = gs[i] * per_row(sign)
            if i == 0:
                g -= tl.where((columns == 0)[None, :, :], per_row(lone), 0.0)
            to_x = per_row(u_g) * g + (per_row(u_x) * xs[i] + per_row(u_gap) * gaps[i])
            to_y = per_row(v_g) * g + (per_row(v_x) * xs[i] + per_row(v_gap) * gaps[i])
            store_piece(to_u + tile, rows, valid, columns, to_x, WIDTH, WIDTH, LANES, EXACT)
            alongs += fold(to_y * ys[i])
            pulls = pulls + (to_y,)
        tl.store(to_a + place, by_a, mask=valid)

        # through the layer's epilogue
        g_l = by_step * (scaled_sinh(step) / scaled_cosh(step))
        pull = g_l * power - tl.sum(alongs, 1)
        products = tl.zeros([ROWS, LANES], tl.float32)
        totals = ()
        for i in tl.static_range(PIECES):
            columns = piece_columns(i, LANES, HEIGHT)
            g = (per_row(pull) * ys[i] + pulls[i]) * per_row(inverse)
            g = tl.where(per_row(valid), g, 0.0)
            p = load_piece(product + product_tile, rows, valid, columns, STRIDE, WIDTH, LANES, EXACT)
            products += fold(g * p)
            totals = totals + (sums[i] + g,)
            g *= per_row(klein)
            store_piece(to_product + product_tile, rows, valid, columns, g, STRIDE, WIDTH, LANES, EXACT)
        sums = totals
        store_tail(to_product + product_tile, rows, valid, klein * g_l, WIDTH, STRIDE, EXTRA)
        dot = tl.load(product + product_tile + rows * STRIDE + WIDTH, mask=valid, other=0.0).to(tl.float32)
        by_klein = tl.sum(products, 1) + g_l * dot
        by_c = by_klein * tl.exp(-2.0 * c) / (ch * ch) + g_l * (power * klein + gain)
        tl.store(to_c + place, by_c, mask=valid)
        g_l = tl.where(valid, g_l, 0.0)
        sum_beta += g_l * (c + tl.log(length * ch))
        sum_slope += g_l * c
        sum_phi0 += g_l
        sum_size += tl.where(valid, part, 0.0)

    partials += (sample * tl.num_programs(1) + tl.program_id(1)) * COLUMNS
    store_sums(partials, sums, sum_beta, sum_slope, sum_phi0, WIDTH, LANES, HEIGHT, PIECES)
    to_size = tl.sum(sum_size, 0)
    if HAS_KEPT:
        to_size *= tl.load(kept + sample)
    tl.store(partials + WIDTH + 3, to_size)
