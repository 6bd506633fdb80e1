"""The polar rule behind a convolution as kernels: rows are pixels, columns output channels."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh, scaled_sinh
from polarvit.kernels.images.pixel import ORIGIN, radius_of
from polarvit.kernels.linear.triton import radius_of_log_sinh

TINY = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def joined(square, t):
    """cosh A e^-t, sinh A e^-t and A."""
    size = tl.sqrt(square)
    a, _ = radius_of(size, t)
    return tl.sqrt(tl.maximum(square + tl.exp(-2.0 * t), TINY)), size, a


@triton.jit
def finish_kernel(
    y_in, square_in, t_in, w_in, beta, slope, phi0, out_radius, out, out_norm, ROWS, PIXELS,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * BLOCK
    places, columns = first + tl.arange(0, BLOCK), tl.arange(0, PAD)
    valid = places < ROWS
    inside = valid[:, None] & (columns < WIDTH)[None, :]
    square = tl.load(square_in + places, mask=valid, other=0.0)
    t = tl.load(t_in + places // PIXELS, mask=valid, other=0.0)
    w = tl.load(w_in + columns, mask=columns < WIDTH, other=0.0)
    last = tl.load(y_in + places * STRIDE + WIDTH, mask=valid, other=0.0)
    c, _, a = joined(square, t)
    h = tl.load(y_in + places[:, None] * STRIDE + columns[None, :], mask=inside, other=0.0)
    h += w[None, :] * c[:, None]
    norm = tl.sqrt(tl.sum(h * h, 1))
    zero = norm == 0.0
    norm = tl.where(zero, ORIGIN, norm)
    direction = h / norm[:, None] + tl.where(zero[:, None] & (columns == 0)[None, :], 1.0, 0.0)
    l = tl.load(beta) * (tl.log(norm) + t) + tl.load(slope) * a + last / c + tl.load(phi0)
    tl.store(out_radius + places, radius_of_log_sinh(l), mask=valid)
    tl.store(out_norm + places, norm, mask=valid)
    tl.store(out + places[:, None] * WIDTH + columns[None, :], direction, mask=inside)


@triton.jit
def finish_backward_kernel(
    u_in, radius_in, norm_in, last_in, square_in, t_in, w_in, beta, slope, grad_radius, grad,
    to_y, to_square, partials, ROWS, PIXELS, COLUMNS,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, EXTRA: tl.constexpr,
    BLOCK: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Gradients of y and sinh^2 A; sums for w_0, beta, lambda and phi_0 in a row of `partials`."""
    program = tl.program_id(0).to(tl.int64)
    rows, columns, extra = tl.arange(0, BLOCK), tl.arange(0, PAD), tl.arange(0, EXTRA)
    power, gain = tl.load(beta), tl.load(slope)
    w = tl.load(w_in + columns, mask=columns < WIDTH, other=0.0)
    sum_w = tl.zeros([BLOCK, PAD], tl.float32)
    sum_beta = tl.zeros([BLOCK], tl.float32)
    sum_slope = tl.zeros([BLOCK], tl.float32)
    sum_phi0 = tl.zeros([BLOCK], tl.float32)
    for turn in range(TURNS):
        places = (program * TURNS + turn) * BLOCK + rows
        valid = places < ROWS
        inside = valid[:, None] & (columns < WIDTH)[None, :]
        radius = tl.load(radius_in + places, mask=valid, other=0.0)
        norm = tl.load(norm_in + places, mask=valid, other=1.0)
        last = tl.load(last_in + places, mask=valid, other=0.0)
        square = tl.load(square_in + places, mask=valid, other=0.0)
        t = tl.load(t_in + places // PIXELS, mask=valid, other=0.0)
        u = tl.load(u_in + places[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0)
        g = tl.load(grad + places[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0)
        to_l = tl.load(grad_radius + places, mask=valid, other=0.0) * scaled_sinh(radius) / scaled_cosh(radius)
        c, size, a = joined(square, t)
        inverse = 1.0 / norm
        to_h = ((power * to_l - tl.sum(g * u, 1)) * inverse)[:, None] * u + g * inverse[:, None]
        to_c = tl.sum(to_h * w[None, :], 1) - to_l * last / (c * c)
        by_size = tl.where(square > 0.0, gain * to_l / tl.where(square > 0.0, size, 1.0), 0.0)
        tl.store(to_square + places, 0.5 * (to_c + by_size) / c, mask=valid)
        tl.store(to_y + places[:, None] * STRIDE + columns[None, :], to_h, mask=inside)
        tail = tl.where(extra[None, :] == 0, (to_l / c)[:, None], 0.0)
        place = to_y + places[:, None] * STRIDE + WIDTH + extra[None, :]
        tl.store(place, tail, mask=valid[:, None] & (extra < STRIDE - WIDTH)[None, :])
        sum_w += to_h * c[:, None]
        sum_beta += to_l * (tl.log(norm) + t)
        sum_slope += to_l * a
        sum_phi0 += to_l
    partials += program * COLUMNS
    tl.store(partials + columns, tl.sum(sum_w, 0), mask=columns < WIDTH)
    tl.store(partials + WIDTH, tl.sum(sum_beta, 0))
    tl.store(partials + WIDTH + 1, tl.sum(sum_slope, 0))
    tl.store(partials + WIDTH + 2, tl.sum(sum_phi0, 0))
