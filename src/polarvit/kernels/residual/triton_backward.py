"""Backward kernel of the boost residual: one program for a block of rows, nothing but radii is read from other rows.

With g the upstream gradient of the direction and G that of the signed radius, R = tanh(a), Q the coefficient of t,
N = |R u + Q t| and c = u.v, the gradient of the unnormalised direction is y = (g - (g.u')u')/N, and

    d/du = (R - c Q)(y - (y.u)u) + (b_c - Q (y.u) - c q) t        q t: through |t|^2 in Q, b_c = d/dc
    d/dv = h - (h.t) v + b_c (u - c v),   h = Q (y - (y.u)u) + q t.

Both are written as combinations of g, u and gap (`triton.py`): three dot products a row are all that is needed first.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh
from polarvit.kernels.pieces import fold, load_rows, per_row, piece_columns, store_piece
from polarvit.kernels.residual.triton import boost, gaps_of, step_factor

ORIGIN = tl.constexpr(2.0**-60)


@triton.jit
def upstream_dots(xs, gaps, gs, PIECES: tl.constexpr):
    """g.u and g.gap."""
    by_x, by_gap = fold(gs[0] * xs[0]), fold(gs[0] * gaps[0])
    for i in tl.static_range(1, PIECES):
        by_x += fold(gs[i] * xs[i])
        by_gap += fold(gs[i] * gaps[i])
    return tl.sum(by_x, 1), tl.sum(by_gap, 1)


@triton.jit
def pulled_rows(a, b, factor, side, chord, moved, mean, g_x, g_gap, g_first, x_first, gap_first):
    """Gradients of a, b and (a token's part) the factor, the coefficients of g, u and gap in those of u and of v, and
    what is to be taken off g_0 first.

    `moved` is the upstream gradient of the signed radius, `mean` its mean over tokens; the last three are the first
    coordinates of g, u and gap, which count where the direction is e_0 for want of another.
    """
    along, sideways, t2, stride, shrink, growth, slope = boost(a, b, factor, chord)
    cosine, bend = side * (1.0 - chord), side * chord
    biggest = tl.maximum(along, tl.abs(sideways))
    inverse = 1.0 / tl.where(biggest > 0.0, biggest, 1.0)
    near, wide = along * inverse, sideways * inverse
    norm = tl.sqrt(near * near + wide * wide * t2)
    zero = norm == 0.0
    length = tl.where(zero, ORIGIN, norm * biggest)
    scale = 1.0 / length
    # u' = o_x u + o_gap gap, and y = scale (g - (g.u') u') = scale g - y_x u - y_gap gap.
    o_gap = tl.where(zero, 0.0, sideways * scale)
    o_x = tl.where(zero, 0.0, along * scale) + o_gap * bend
    g_o = (o_x * g_x + o_gap * g_gap) * scale
    y_x, y_gap = g_o * o_x, g_o * o_gap
    # In the plane of u and t the part of g across u' is one number: no difference of nearly equal projections.
    g_t = g_gap + bend * g_x
    turn = (along * g_t - sideways * t2 * g_x) * scale
    by_along = tl.where(zero, (g_x - g_first * x_first) * scale, -sideways * scale * (turn * scale))
    by_gap = (g_t - g_first * (gap_first + bend * x_first)) * scale
    by_sideways = tl.where(zero, by_gap, along * scale * (turn * scale))

    by_square = by_sideways * stride * slope
    by_stride = by_sideways * growth + 2.0 * by_square * stride * t2
    bent = 2.0 * by_square * stride * stride
    centred = moved - mean
    by_cosine = factor * centred * b
    cosh = scaled_cosh(a)
    to_a = moved + by_along * shrink * tl.exp(-2.0 * a) / (cosh * cosh)
    to_b = factor * (by_stride + centred * cosine)
    part = b * (by_stride + centred * cosine)

    # y - (y.u)u = scale g - (y_x + y.u) u - y_gap gap, t = gap + bend u, v = gap + side u
    pull = along - cosine * sideways
    across = by_cosine - sideways * by_along - cosine * bent
    u_g, u_x, u_gap = pull * scale, across * bend - pull * (y_x + by_along), across - pull * y_gap
    aside = by_cosine * side
    back = sideways * by_sideways + bent * t2 - aside * chord
    v_x = bent * bend - sideways * (y_x + by_along) - back * side
    v_gap = bent - sideways * y_gap - back - aside
    return to_a, to_b, part, u_g, u_x, u_gap, sideways * scale, v_x, v_gap, tl.where(zero, g_first, 0.0)


@triton.jit
def residual_backward_kernel(
    a, u, b, v, size, kept, signed, grad_radius, grad, to_a, to_u, to_b, to_v, partials, N,
    WIDTH: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
    ROWS: tl.constexpr, COUNT: tl.constexpr, HAS_KEPT: tl.constexpr,
):  # fmt: skip
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    valid = rows < N
    place = sample * N + rows
    tile = sample * N * WIDTH
    radius = tl.load(a + place, mask=valid, other=0.0)
    step = tl.load(b + place, mask=valid, other=0.0)
    sign = tl.where(tl.load(signed + place, mask=valid, other=0.0) < 0.0, -1.0, 1.0)
    moved = tl.load(grad_radius + place, mask=valid, other=0.0) * sign
    xs = load_rows(u + tile, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    ys = load_rows(v + tile, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    gs = load_rows(grad + tile, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    factor = step_factor(size, kept, sample, HAS_KEPT)
    everyone = tl.arange(0, COUNT)
    all_signed = tl.load(signed + sample * N + everyone, mask=everyone < N, other=0.0)
    all_grad = tl.load(grad_radius + sample * N + everyone, mask=everyone < N, other=0.0)
    mean = tl.sum(tl.where(all_signed < 0.0, -all_grad, all_grad), 0) / N

    gaps, side, chord = gaps_of(xs, ys, PIECES)
    g_x, g_gap = upstream_dots(xs, gaps, gs, PIECES)
    g_first = tl.load(grad + tile + rows * WIDTH, mask=valid, other=0.0)
    x_first = tl.load(u + tile + rows * WIDTH, mask=valid, other=0.0)
    gap_first = tl.load(v + tile + rows * WIDTH, mask=valid, other=0.0) - side * x_first
    by_a, by_b, part, u_g, u_x, u_gap, v_g, v_x, v_gap, lone = pulled_rows(
        radius, step, factor, side, chord, moved, mean, sign * g_x, sign * g_gap, sign * g_first, x_first, gap_first
    )
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        g = gs[i] * per_row(sign)
        if i == 0:
            g -= tl.where((columns == 0)[None, :, :], per_row(lone), 0.0)
        to_x = per_row(u_g) * g + (per_row(u_x) * xs[i] + per_row(u_gap) * gaps[i])
        to_y = per_row(v_g) * g + (per_row(v_x) * xs[i] + per_row(v_gap) * gaps[i])
        store_piece(to_u + tile, rows, valid, columns, to_x, WIDTH, WIDTH, LANES, EXACT)
        store_piece(to_v + tile, rows, valid, columns, to_y, WIDTH, WIDTH, LANES, EXACT)
    tl.store(to_a + place, by_a, mask=valid)
    tl.store(to_b + place, by_b, mask=valid)
    part = tl.sum(tl.where(valid, part, 0.0), 0)
    if HAS_KEPT:
        part *= tl.load(kept + sample)
    tl.store(partials + sample * tl.num_programs(1) + tl.program_id(1), part)
