"""Forward and backward kernel of the polar linear layer's epilogue: rows are tokens, columns output features."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import asinh_of_root, scaled_cosh, scaled_sinh

ORIGIN = tl.constexpr(2.0**-60)
ROOT_HALF = tl.constexpr(0.7071067811865476)
DENSITY = tl.constexpr(0.3989422804014327)
NONE, RELU, GELU = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def radius_of_log_sinh(l):
    """asinh(e^l)."""
    far = l + tl.log(1.0 + tl.sqrt(1.0 + tl.exp(-2.0 * tl.maximum(l, 0.0))))
    return tl.where(l > 0.0, far, asinh_of_root(tl.exp(2.0 * tl.minimum(l, 0.0))))


@triton.jit
def forward_kernel(
    product, a_in, time_weight, beta, slope, phi0, out_radius, out,
    ROWS, WIDTH: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, ROOT_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row_valid = rows < ROWS
    columns = tl.arange(0, PAD)
    column_valid = columns < WIDTH
    valid = row_valid[:, None] & column_valid[None, :]
    a = tl.load(a_in + rows, mask=row_valid, other=0.0)
    ch = scaled_cosh(a)
    klein = scaled_sinh(a) / ch
    y = klein[:, None] * tl.load(product + rows[:, None] * STRIDE + columns[None, :], mask=valid, other=0.0)
    y += tl.load(time_weight + columns, mask=column_valid, other=0.0)[None, :]
    if ACTIVATION == RELU:
        y = tl.maximum(y, 0.0)
    elif ACTIVATION == GELU:
        grown = tl.exp(tl.minimum(a, 40.0))
        c = 0.5 * ROOT_K * (grown + 1.0 / grown)
        y = 0.5 * y * (1.0 + tl.math.erf(c[:, None] * y * ROOT_HALF))
    square = tl.sum(y * y, 1)
    zero = square == 0.0
    norm = tl.where(zero, ORIGIN, tl.sqrt(square))
    direction = tl.where(zero[:, None], tl.where(columns[None, :] == 0, 1.0, 0.0), y / norm[:, None])
    dot = tl.load(product + rows * STRIDE + WIDTH, mask=row_valid, other=0.0)
    l = tl.load(beta) * (tl.log(norm) + a + tl.log(ch)) + tl.load(slope) * a + klein * dot + tl.load(phi0)
    tl.store(out_radius + rows, radius_of_log_sinh(l), mask=row_valid)
    tl.store(out + rows[:, None] * WIDTH + columns[None, :], direction, mask=valid)


@triton.jit
def backward_kernel(
    product, a_in, time_weight, beta, slope, phi0, out_radius, out, grad_radius, grad,
    to_product, to_a, to_weight, to_scalars,
    ROWS, WIDTH: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr, TURNS: tl.constexpr,
    ACTIVATION: tl.constexpr, ROOT_K: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, PAD)
    column_valid = columns < WIDTH
    weight = tl.load(time_weight + columns, mask=column_valid, other=0.0)
    power, gain = tl.load(beta), tl.load(slope)
    sum_weight = tl.zeros([PAD], tl.float32)
    sum_beta = tl.zeros([BLOCK], tl.float32)
    sum_slope = tl.zeros([BLOCK], tl.float32)
    sum_phi0 = tl.zeros([BLOCK], tl.float32)
    program = tl.program_id(0).to(tl.int64)
    for turn in range(TURNS):
        rows = (program * TURNS + turn) * BLOCK + tl.arange(0, BLOCK)
        row_valid = rows < ROWS
        valid = row_valid[:, None] & column_valid[None, :]
        a = tl.load(a_in + rows, mask=row_valid, other=0.0)
        ch = scaled_cosh(a)
        klein = scaled_sinh(a) / ch
        p = tl.load(product + rows[:, None] * STRIDE + columns[None, :], mask=valid, other=0.0)
        z = klein[:, None] * p + weight[None, :]
        direction = tl.load(out + rows[:, None] * WIDTH + columns[None, :], mask=valid, other=0.0)
        g = tl.load(grad + rows[:, None] * WIDTH + columns[None, :], mask=valid, other=0.0)
        radius = tl.load(out_radius + rows, mask=row_valid, other=0.0)
        dot = tl.load(product + rows * STRIDE + WIDTH, mask=row_valid, other=0.0)

        # The activation h(z), its slope dh/dz and, for GELU, the dependence of h on c = sqrt(k) cosh a.
        along_c = tl.zeros([BLOCK, PAD], tl.float32)
        steep = tl.full([BLOCK, PAD], 1.0, tl.float32)
        h = z
        c = tl.full([BLOCK], 0.0, tl.float32)
        if ACTIVATION == RELU:
            steep = tl.where(z > 0.0, 1.0, 0.0)
            h = z * steep
        elif ACTIVATION == GELU:
            grown = tl.exp(tl.minimum(a, 40.0))
            c = 0.5 * ROOT_K * (grown + 1.0 / grown)
            x = c[:, None] * z
            share = 0.5 * (1.0 + tl.math.erf(x * ROOT_HALF))
            density = DENSITY * tl.exp(-0.5 * x * x)
            h = z * share
            steep = share + x * density
            along_c = z * z * density
        square = tl.sum(h * h, 1)
        norm = tl.where(square == 0.0, ORIGIN, tl.sqrt(square))

        g_l = tl.load(grad_radius + rows, mask=row_valid, other=0.0)
        g_l *= scaled_sinh(radius) / scaled_cosh(radius)
        along = tl.sum(g * direction, 1)
        g_h = ((g_l * power - along)[:, None] * direction + g) / norm[:, None]
        g_z = g_h * steep
        tl.store(to_product + rows[:, None] * STRIDE + columns[None, :], klein[:, None] * g_z, mask=valid)
        tl.store(to_product + rows * STRIDE + WIDTH, klein * g_l, mask=row_valid)
        for extra in tl.static_range(1, STRIDE - WIDTH):
            tl.store(to_product + rows * STRIDE + WIDTH + extra, tl.zeros([BLOCK], tl.float32), mask=row_valid)

        g_klein = tl.sum(g_z * p, 1) + g_l * dot
        g_a = g_klein * tl.exp(-2.0 * a) / (ch * ch) + g_l * (power * klein + gain)
        if ACTIVATION == GELU:
            grown = tl.exp(tl.minimum(a, 40.0))
            rise = tl.where(a < 40.0, 0.5 * ROOT_K * (grown - 1.0 / grown), 0.0)
            g_a += tl.sum(g_h * along_c, 1) * rise
        tl.store(to_a + rows, g_a, mask=row_valid)

        sum_weight += tl.sum(tl.where(valid, g_z, 0.0), 0)
        live = tl.where(row_valid, g_l, 0.0)
        sum_beta += live * (tl.log(norm) + a + tl.log(ch))
        sum_slope += live * a
        sum_phi0 += live
    tl.store(to_weight + program * WIDTH + columns, sum_weight, mask=column_valid)
    tl.store(to_scalars + program * 3, tl.sum(sum_beta, 0))
    tl.store(to_scalars + program * 3 + 1, tl.sum(sum_slope, 0))
    tl.store(to_scalars + program * 3 + 2, tl.sum(sum_phi0, 0))
