"""Backward kernel of the boost residual: one program for a block of rows, nothing but radii is read from other rows.

With g the upstream gradient of the direction and G that of the signed radius, R = tanh(a), Q the coefficient of t,
N = |R u + Q t| and c = u.v, the gradient of the unnormalised direction is y = (g - (g.u')u')/N, and

    d/du = (R - c Q)(y - (y.u)u) + (b_c - Q (y.u) - c q) t        q t: through |t|^2 in Q, b_c = d/dc
    d/dv = h - (h.t) v + b_c (u - c v),   h = Q (y - (y.u)u) + q t.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh
from polarvit.kernels.residual.triton import ORIGIN, load_tile, tilted


@triton.jit
def backward_kernel(
    a, u, b, v, size, signed, grad_radius, grad, to_a, to_u, to_b, to_v, to_size, N, SIZE_STEP,
    WIDTH: tl.constexpr, PAD: tl.constexpr, ROWS: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, PAD)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    valid = rows < N
    inside = valid[:, None] & (dims < WIDTH)[None, :]
    place = sample * N + rows
    tile = sample * N * WIDTH

    everyone = tl.arange(0, COUNT)
    all_signed = tl.load(signed + sample * N + everyone, mask=everyone < N, other=0.0)
    all_grad = tl.load(grad_radius + sample * N + everyone, mask=everyone < N, other=0.0)
    mean = tl.sum(tl.where(all_signed < 0.0, -all_grad, all_grad), 0) / N

    factor = tl.load(size + sample * SIZE_STEP)
    radius = tl.load(a + place, mask=valid, other=0.0)
    step = tl.load(b + place, mask=valid, other=0.0)
    sign = tl.where(tl.load(signed + place, mask=valid, other=0.0) < 0.0, -1.0, 1.0)
    moved = tl.load(grad_radius + place, mask=valid, other=0.0) * sign
    x = load_tile(u + tile, rows, dims, inside, WIDTH)
    y = load_tile(v + tile, rows, dims, inside, WIDTH)
    g = load_tile(grad + tile, rows, dims, inside, WIDTH) * sign[:, None]
    tilt, norm, scale, along, sideways, t, t2, gap, side, chord, stride, shrink, growth, slope = tilted(
        radius, x, step, y, factor
    )
    cosine = side * (1.0 - chord)
    zero = norm == 0.0
    e = tl.where(zero[:, None], tl.where(dims == 0, 1.0, 0.0)[None, :], tilt / tl.where(zero, 1.0, norm)[:, None])
    length = tl.where(zero, ORIGIN, norm * scale)
    pull = (g - tl.sum(g * e, 1)[:, None] * e) / length[:, None]
    # In the plane of u and t the part of g across u' is one number: no difference of nearly equal projections.
    by_along, by_sideways = tl.sum(pull * x, 1), tl.sum(pull * t, 1)
    turn = (along * tl.sum(g * t, 1) - sideways * t2 * tl.sum(g * x, 1)) / length
    by_along = tl.where(zero, by_along, -sideways / length * (turn / length))
    by_sideways = tl.where(zero, by_sideways, along / length * (turn / length))

    by_square = by_sideways * stride * slope
    by_stride = by_sideways * growth + 2.0 * by_square * stride * t2
    bent = 2.0 * by_square * stride * stride
    centred = moved - mean
    by_cosine = factor * centred * step
    cosh = scaled_cosh(radius)
    tl.store(to_a + place, moved + by_along * shrink * tl.exp(-2.0 * radius) / (cosh * cosh), mask=valid)
    tl.store(to_b + place, factor * (by_stride + centred * cosine), mask=valid)
    parts = tl.where(valid, by_stride * step + centred * step * cosine, 0.0)
    tl.store(to_size + sample * tl.num_programs(1) + tl.program_id(1), tl.sum(parts, 0))

    pull = pull - by_along[:, None] * x
    across = (by_cosine - sideways * by_along - cosine * bent)[:, None] * t
    where = tile + rows[:, None] * WIDTH + dims[None, :]
    tl.store(to_u + where, (along - cosine * sideways)[:, None] * pull + across, mask=inside)
    h = sideways[:, None] * pull + bent[:, None] * t
    aside = by_cosine * side
    h = h - (sideways * by_sideways + bent * t2 - aside * chord)[:, None] * y - aside[:, None] * gap
    tl.store(to_v + where, h, mask=inside)
