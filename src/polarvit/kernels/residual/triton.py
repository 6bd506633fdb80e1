"""Forward kernel of the boost residual, and what a block of rows computes in both directions.

A program takes one sample (or one of SPLIT parts of it): a first pass over all its tokens for the mean radial step, a
second one that writes the results of its own blocks of rows. A row lies in one tile with all its coordinates.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh, scaled_sinh

ORIGIN = tl.constexpr(2.0**-60)


@triton.jit
def load_tile(pointer, rows, dims, inside, WIDTH: tl.constexpr):
    return tl.load(pointer + rows[:, None] * WIDTH + dims[None, :], mask=inside, other=0.0)


@triton.jit
def sinhc(square):
    """sinh(x)/x e^-x and its derivative by x^2 (e^-x held fixed), of x^2: series below 1, where they would cancel."""
    x = tl.sqrt(square)
    shrink = tl.exp(-x)
    y = tl.minimum(square, 1.0)
    series = 1.0 + y / 72.0 * (1.0 + y / 110.0)
    series = 1.0 + y / 6.0 * (1.0 + y / 20.0 * (1.0 + y / 42.0 * series))
    slope = 1.0 / 7983360.0 + y * (1.0 / 1037836800.0)
    slope = 1.0 / 1680.0 + y * (1.0 / 90720.0 + y * slope)
    slope = 1.0 / 6.0 + y * (1.0 / 60.0 + y * slope)
    far = tl.where(square < 1.0, 1.0, x)
    large = scaled_sinh(far) / far
    steep = 0.5 * (scaled_cosh(far) - large) / (far * far)
    return shrink, tl.where(square < 1.0, series * shrink, large), tl.where(square < 1.0, slope * shrink, steep)


@triton.jit
def tilted(a, u, b, v, factor):
    """The vector of which u' is the direction, over its larger coefficient, and what the gradient needs of it."""
    cosine = tl.sum(u * v, 1)
    side = tl.where(cosine < 0.0, -1.0, 1.0)
    gap = v - side[:, None] * u
    chord = 0.5 * tl.sum(gap * gap, 1)
    # The part of v across u, by differences: it is exact where v is close to u or to -u.
    t = gap + (side * chord)[:, None] * u
    t2 = chord * (2.0 - chord)
    stride = factor * b
    shrink, growth, slope = sinhc(stride * stride * t2)
    along = scaled_sinh(a) / scaled_cosh(a) * shrink
    sideways = stride * growth
    biggest = tl.maximum(along, tl.abs(sideways))
    scale = tl.where(biggest > 0.0, biggest, 1.0)
    tilt = (along / scale)[:, None] * u + (sideways / scale)[:, None] * t
    norm = tl.sqrt(tl.sum(tilt * tilt, 1))
    return tilt, norm, scale, along, sideways, t, t2, gap, side, chord, stride, shrink, growth, slope


@triton.jit
def forward_kernel(
    a, u, b, v, size, out_radius, out, signed, N, SIZE_STEP,
    WIDTH: tl.constexpr, PAD: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    a += sample * N
    b += sample * N
    u += sample * N * WIDTH
    v += sample * N * WIDTH
    out += sample * N * WIDTH
    dims = tl.arange(0, PAD)
    lanes = tl.arange(0, ROWS)
    in_width = (dims < WIDTH)[None, :]
    factor = tl.load(size + sample * SIZE_STEP)

    sums = tl.zeros([ROWS, PAD], tl.float32)
    for start in range(0, N, ROWS):
        rows = start + lanes
        inside = (rows < N)[:, None] & in_width
        step = tl.load(b + rows, mask=rows < N, other=0.0)
        sums += step[:, None] * load_tile(u, rows, dims, inside, WIDTH) * load_tile(v, rows, dims, inside, WIDTH)
    mean = tl.sum(tl.sum(sums, 1), 0) / N

    for start in range(part * ROWS, N, SPLIT * ROWS):
        rows = start + lanes
        valid = rows < N
        inside = valid[:, None] & in_width
        radius = tl.load(a + rows, mask=valid, other=0.0)
        step = tl.load(b + rows, mask=valid, other=0.0)
        x = load_tile(u, rows, dims, inside, WIDTH)
        y = load_tile(v, rows, dims, inside, WIDTH)
        tilt, norm, _, _, _, _, _, _, side, chord, _, _, _, _ = tilted(radius, x, step, y, factor)
        moved = radius + factor * (step * side * (1.0 - chord) - mean)
        sign = tl.where(moved < 0.0, -1.0, 1.0)
        zero = norm == 0.0
        tilt = tl.where(zero[:, None], tl.where(dims == 0, 1.0, 0.0)[None, :], tilt)
        direction = tilt * (sign / tl.where(zero, 1.0, norm))[:, None]
        tl.store(out + rows[:, None] * WIDTH + dims[None, :], direction, mask=inside)
        tl.store(out_radius + sample * N + rows, tl.abs(moved), mask=valid)
        tl.store(signed + sample * N + rows, moved, mask=valid)
