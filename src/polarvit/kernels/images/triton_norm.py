"""The passes of a batch norm as kernels: rows are pixels, columns channels; each program takes TURNS blocks of rows.

A row of `partials` has what one program adds up for the gradients that all points share (`polarvit.kernels.sums`).
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh, scaled_sinh, sinh
from polarvit.kernels.images.pixel import (
    centre,
    centre_backward,
    distance_backward,
    exp_capped,
    polar,
    polar_backward,
    radius_of,
    shift,
    shift_backward,
)


@triton.jit
def load_points(a_in, u_in, first, rows, columns, ROWS, WIDTH: tl.constexpr):
    """Radii, directions and which of them exist."""
    places = first + rows
    valid = places < ROWS
    inside = valid[:, None] & (columns < WIDTH)[None, :]
    a = tl.load(a_in + places, mask=valid, other=0.0)
    return a, tl.load(u_in + places[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0), valid, inside


@triton.jit
def centroid_sums_kernel(
    a_in, u_in, largest, scale, centre_in, partials, ROWS, COLUMNS,
    WIDTH: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Sums of m, m |o|^2, e^(largest-a) and m o in float64 (m = sinh a e^-t, o = u - c)."""
    program = tl.program_id(0).to(tl.int64)
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, PAD)
    high, t = tl.load(largest), tl.load(scale)
    c = tl.load(centre_in + columns, mask=columns < WIDTH, other=0.0).to(tl.float64)
    mass_sum = tl.zeros([BLOCK], tl.float64)
    square_sum = tl.zeros([BLOCK], tl.float64)
    rest_sum = tl.zeros([BLOCK], tl.float64)
    moment = tl.zeros([BLOCK, PAD], tl.float64)
    for turn in range(TURNS):
        first = (program * TURNS + turn) * BLOCK
        a, u, valid, _ = load_points(a_in, u_in, first, rows, columns, ROWS, WIDTH)
        grown = tl.where(t > 0.0, scaled_sinh(a) * tl.exp(tl.minimum(a - t, 40.0)), sinh(tl.minimum(a, 40.0)))
        mass = tl.where(valid, grown, 0.0).to(tl.float64)
        offset = u.to(tl.float64) - c[None, :]
        weighted = mass[:, None] * offset
        mass_sum += mass
        square_sum += tl.sum(weighted * offset, 1)
        rest_sum += tl.where(valid, tl.exp(high.to(tl.float64) - a.to(tl.float64)), 0.0)
        moment += weighted
    partials += program * COLUMNS
    tl.store(partials, tl.sum(mass_sum, 0))
    tl.store(partials + 1, tl.sum(square_sum, 0))
    tl.store(partials + 2, tl.sum(rest_sum, 0))
    tl.store(partials + 3 + columns, tl.sum(moment, 0), mask=columns < WIDTH)


@triton.jit
def distance_kernel(
    a_in, u_in, b_in, v_in, partials, ROWS, COLUMNS,
    WIDTH: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr, TURNS: tl.constexpr, SLOPES: tl.constexpr,
):  # fmt: skip
    """The sum of the distances to the mean; or with SLOPES its derivatives by b and v."""
    program = tl.program_id(0).to(tl.int64)
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, PAD)
    b = tl.load(b_in)
    v = tl.load(v_in + columns, mask=columns < WIDTH, other=0.0)
    total = tl.zeros([BLOCK], tl.float32)
    moment = tl.zeros([BLOCK, PAD], tl.float32)
    for turn in range(TURNS):
        first = (program * TURNS + turn) * BLOCK
        a, u, valid, _ = load_points(a_in, u_in, first, rows, columns, ROWS, WIDTH)
        gap, y, s, sh, ch, kappa, kappa_a, kappa_b, bend = centre(a, u, b, v)
        if SLOPES:
            _, _, to_b, to_v = distance_backward(gap, y, s, sh, ch, kappa, kappa_a, kappa_b, bend, v)
            total += tl.where(valid, to_b, 0.0)
            moment += tl.where(valid[:, None], to_v, 0.0)
        else:
            radius, _ = radius_of(tl.sqrt(tl.sum(y * y, 1)), s)
            total += tl.where(valid, radius, 0.0)
    partials += program * COLUMNS
    tl.store(partials, tl.sum(total, 0))
    if SLOPES:
        tl.store(partials + 1 + columns, tl.sum(moment, 0), mask=columns < WIDTH)


@triton.jit
def normalise_kernel(
    a_in, u_in, b_in, v_in, f_in, c_in, e_in, out_radius, out, ROWS,
    WIDTH: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * BLOCK
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, PAD)
    a, u, valid, inside = load_points(a_in, u_in, first, rows, columns, ROWS, WIDTH)
    b, f, c = tl.load(b_in), tl.load(f_in), tl.load(c_in)
    v = tl.load(v_in + columns, mask=columns < WIDTH, other=0.0)
    e = tl.load(e_in + columns, mask=columns < WIDTH, other=0.0)
    _, y, s, _, _, _, _, _, _ = centre(a, u, b, v)
    delta, w, _, _ = polar(y, s, columns)
    r = f * delta
    x, _, _, _, _, _, _, _ = shift(c, e, r, w)
    if RELU:
        x = tl.maximum(x, 0.0)
    radius, direction, _, _ = polar(x, r + c, columns)
    tl.store(out_radius + first + rows, radius, mask=valid)
    tl.store(out + (first + rows)[:, None] * WIDTH + columns[None, :], direction, mask=inside)


@triton.jit
def normalise_backward_kernel(
    a_in, u_in, b_in, v_in, f_in, c_in, e_in, grad_radius, grad, to_a, to_u, partials, ROWS, COLUMNS,
    WIDTH: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr, TURNS: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Gradients of the points, and sums for b, f, c, v and e."""
    program = tl.program_id(0).to(tl.int64)
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, PAD)
    b, f, c = tl.load(b_in), tl.load(f_in), tl.load(c_in)
    v = tl.load(v_in + columns, mask=columns < WIDTH, other=0.0)
    e = tl.load(e_in + columns, mask=columns < WIDTH, other=0.0)
    sum_b = tl.zeros([BLOCK], tl.float32)
    sum_f = tl.zeros([BLOCK], tl.float32)
    sum_c = tl.zeros([BLOCK], tl.float32)
    sum_v = tl.zeros([BLOCK, PAD], tl.float32)
    sum_e = tl.zeros([BLOCK, PAD], tl.float32)
    for turn in range(TURNS):
        first = (program * TURNS + turn) * BLOCK
        a, u, valid, inside = load_points(a_in, u_in, first, rows, columns, ROWS, WIDTH)
        gap, y, s, sh, ch, kappa, kappa_a, kappa_b, bend = centre(a, u, b, v)
        delta, w, length, slope = polar(y, s, columns)
        r = f * delta
        x, both, sr, cr, push, push_r, push_c, swing = shift(c, e, r, w)
        kept = x
        if RELU:
            kept = tl.maximum(x, 0.0)
        _, direction, reach, steep = polar(kept, r + c, columns)
        g_radius = tl.load(grad_radius + first + rows, mask=valid, other=0.0)
        g = tl.load(grad + (first + rows)[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0)
        g = polar_backward(direction, reach, steep, g_radius, g)
        if RELU:
            g = tl.where(x > 0.0, g, 0.0)
        to_r, to_w, to_c, to_e = shift_backward(both, sr, cr, push, push_r, push_c, swing, g, w, e)
        g = polar_backward(w, length, slope, f * to_r, to_w)
        by_a, by_u, to_b, to_v = centre_backward(gap, sh, ch, kappa, kappa_a, kappa_b, bend, g, v)
        tl.store(to_a + first + rows, by_a, mask=valid)
        tl.store(to_u + (first + rows)[:, None] * WIDTH + columns[None, :], by_u, mask=inside)
        sum_b += tl.where(valid, to_b, 0.0)
        sum_f += tl.where(valid, to_r * delta, 0.0)
        sum_c += tl.where(valid, to_c, 0.0)
        sum_v += tl.where(inside, to_v, 0.0)
        sum_e += tl.where(inside, to_e, 0.0)
    partials += program * COLUMNS
    tl.store(partials, tl.sum(sum_b, 0))
    tl.store(partials + 1, tl.sum(sum_f, 0))
    tl.store(partials + 2, tl.sum(sum_c, 0))
    tl.store(partials + 3 + columns, tl.sum(sum_v, 0), mask=columns < WIDTH)
    tl.store(partials + 3 + WIDTH + columns, tl.sum(sum_e, 0), mask=columns < WIDTH)


@triton.jit
def statistics_backward_kernel(
    a_in, u_in, b_in, v_in, scalars, g_in, in_a, in_u, to_a, to_u, ROWS,
    WIDTH: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """in_a and in_u with what comes through the mean distance and the centroid added."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, PAD)
    a, u, valid, inside = load_points(a_in, u_in, first, rows, columns, ROWS, WIDTH)
    before_a, before_u, _, _ = load_points(in_a, in_u, first, rows, columns, ROWS, WIDTH)
    b = tl.load(b_in)
    v = tl.load(v_in + columns, mask=columns < WIDTH, other=0.0)
    g = tl.load(g_in + columns, mask=columns < WIDTH, other=0.0)
    to_distance, to_b, t = tl.load(scalars), tl.load(scalars + 1), tl.load(scalars + 2)
    plus, minus = tl.load(scalars + 3), tl.load(scalars + 4)
    gap, y, s, sh, ch, kappa, kappa_a, kappa_b, bend = centre(a, u, b, v)
    by_a, by_u, _, _ = distance_backward(gap, y, s, sh, ch, kappa, kappa_a, kappa_b, bend, v)

    chi = 0.5 * tl.sum(gap * gap, 1)
    grown, up = exp_capped(a - t), exp_capped(a - t - plus)
    over, under = exp_capped(a - t - minus), exp_capped(-a - t - minus)
    sa, ca = scaled_sinh(a), scaled_cosh(a)
    sideways = ca * grown * tl.sum(gap * g[None, :], 1)
    by_centroid = 0.5 * to_b * (up * (1.0 - ca * chi) + under - ca * chi * over) + sideways
    pull = 0.5 * to_b * sa * (up + over)
    turned = (pull * (chi - 1.0))[:, None] * gap + (pull * chi)[:, None] * v[None, :]
    turned += (sa * grown)[:, None] * g[None, :]
    tl.store(to_a + first + rows, before_a + to_distance * by_a + by_centroid, mask=valid)
    place = to_u + (first + rows)[:, None] * WIDTH + columns[None, :]
    tl.store(place, before_u + to_distance * by_u + turned, mask=inside)
