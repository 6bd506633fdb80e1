"""Forward kernel of the boost residual, and what rows compute in both directions.

A program takes one sample, or one of SPLIT parts of it. Where the sample stays in registers (WHOLE) memory is read
once; else a first pass over all its tokens finds the mean radial step, a second one writes the results of its own rows.

With side = sign(u.v), gap = v - side u and chord = 1/2|gap|^2, the part of v across u is t = gap + side chord u: every
vector here is a combination of u, gap and, in backward, the upstream gradient.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_cosh, scaled_sinh
from polarvit.kernels.pieces import fold, load_piece, load_rows, per_row, piece_columns, store_piece


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
def gaps_of(xs, ys, PIECES: tl.constexpr):
    """v - side u by pieces, side and chord."""
    folds = fold(xs[0] * ys[0])
    for i in tl.static_range(1, PIECES):
        folds += fold(xs[i] * ys[i])
    side = tl.where(tl.sum(folds, 1) < 0.0, -1.0, 1.0)
    gaps = (ys[0] - per_row(side) * xs[0],)
    folds = fold(gaps[0] * gaps[0])
    for i in tl.static_range(1, PIECES):
        gap = ys[i] - per_row(side) * xs[i]
        folds += fold(gap * gap)
        gaps = gaps + (gap,)
    return gaps, side, 0.5 * tl.sum(folds, 1)


@triton.jit
def boost(a, b, factor, chord):
    """R and Q of R u + Q t, and what the gradient needs of them: |t|^2, factor b, e^-x, and sinhc with its slope."""
    t2 = chord * (2.0 - chord)
    stride = factor * b
    shrink, growth, slope = sinhc(stride * stride * t2)
    return scaled_sinh(a) / scaled_cosh(a) * shrink, stride * growth, t2, stride, shrink, growth, slope


@triton.jit
def turned(xs, gaps, along, sideways, side, chord, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr):
    """Direction of R u + Q t by pieces: e_0 where that is 0. It is divided by its larger coefficient first."""
    biggest = tl.maximum(along, tl.abs(sideways))
    inverse = 1.0 / tl.where(biggest > 0.0, biggest, 1.0)
    by_gap = sideways * inverse
    by_x = along * inverse + by_gap * (side * chord)
    tilts = (per_row(by_x) * xs[0] + per_row(by_gap) * gaps[0],)
    folds = fold(tilts[0] * tilts[0])
    for i in tl.static_range(1, PIECES):
        tilt = per_row(by_x) * xs[i] + per_row(by_gap) * gaps[i]
        folds += fold(tilt * tilt)
        tilts = tilts + (tilt,)
    norm = tl.sqrt(tl.sum(folds, 1))
    zero = norm == 0.0
    inverse = 1.0 / tl.where(zero, 1.0, norm)
    first = per_row(zero) & (piece_columns(0, LANES, HEIGHT) == 0)[None, :, :]
    units = (tl.where(first, 1.0, tilts[0] * per_row(inverse)),)
    for i in tl.static_range(1, PIECES):
        units = units + (tilts[i] * per_row(inverse),)
    return units


@triton.jit
def step_factor(size, kept, sample, HAS_KEPT: tl.constexpr):
    """What a sample's steps are multiplied by."""
    factor = tl.load(size)
    if HAS_KEPT:
        factor *= tl.load(kept + sample)
    return factor


@triton.jit
def moved_rows(
    radius, step, xs, ys, factor, mean, N,
    LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Signed radii and directions, by pieces, of tokens moved by steps; WHOLE: all of a sample, `mean` is theirs."""
    gaps, side, chord = gaps_of(xs, ys, PIECES)
    along, sideways, _, _, _, _, _ = boost(radius, step, factor, chord)
    radial = step * side * (1.0 - chord)
    if WHOLE:
        mean = tl.sum(radial, 0) / N
    moved = radius + factor * (radial - mean)
    sign = per_row(tl.where(moved < 0.0, -1.0, 1.0))
    units = turned(xs, gaps, along, sideways, side, chord, LANES, HEIGHT, PIECES)
    signed = (units[0] * sign,)
    for i in tl.static_range(1, PIECES):
        signed = signed + (units[i] * sign,)
    return moved, signed


@triton.jit
def residual_forward_kernel(
    a, u, b, v, size, kept, out_radius, out, signed, N,
    WIDTH: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
    ROWS: tl.constexpr, SPLIT: tl.constexpr, WHOLE: tl.constexpr, HAS_KEPT: tl.constexpr,
):  # fmt: skip
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    sample = tl.program_id(0).to(tl.int64)
    a += sample * N
    b += sample * N
    u += sample * N * WIDTH
    v += sample * N * WIDTH
    out += sample * N * WIDTH
    lanes = tl.arange(0, ROWS)
    factor = step_factor(size, kept, sample, HAS_KEPT)
    mean = 0.0
    if not WHOLE:
        sums = tl.zeros([ROWS, LANES], tl.float32)
        for start in range(0, N, ROWS):
            rows = start + lanes
            valid = rows < N
            step = tl.load(b + rows, mask=valid, other=0.0)
            for i in tl.static_range(PIECES):
                columns = piece_columns(i, LANES, HEIGHT)
                x = load_piece(u, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT)
                y = load_piece(v, rows, valid, columns, WIDTH, WIDTH, LANES, EXACT)
                sums += fold(per_row(step) * x * y)
        mean = tl.sum(tl.sum(sums, 1), 0) / N

    for start in range(tl.program_id(1) * ROWS, N, SPLIT * ROWS):
        rows = start + lanes
        valid = rows < N
        radius = tl.load(a + rows, mask=valid, other=0.0)
        step = tl.load(b + rows, mask=valid, other=0.0)
        xs = load_rows(u, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
        ys = load_rows(v, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
        moved, units = moved_rows(radius, step, xs, ys, factor, mean, N, LANES, HEIGHT, PIECES, WHOLE)
        for i in tl.static_range(PIECES):
            columns = piece_columns(i, LANES, HEIGHT)
            store_piece(out, rows, valid, columns, units[i], WIDTH, WIDTH, LANES, EXACT)
        tl.store(out_radius + sample * N + rows, tl.abs(moved), mask=valid)
        tl.store(signed + sample * N + rows, moved, mask=valid)
