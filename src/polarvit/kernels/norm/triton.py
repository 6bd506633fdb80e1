"""Forward kernel of the gyro layer norm: one program for one sample, five walks over the columns of its directions.

1. the mean direction ubar, by offsets from the farthest token, and the spread around it: the centroid;
2. chord and overlap of every token with the mean: the centred tokens' radii, their variance, the scaled radii;
3. chord and overlap of every centred direction with the bias: the results' radii;
4. the lengths of the results' directions, a few eps off 1;
5. the results.

Numbers of a token stay in registers; a tile holds all tokens and CHUNK columns, and after the first walk the directions
come from the cache.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_sinh
from polarvit.kernels.norm.rows import ORIGIN, centroid_radius, frame, landed


@triton.jit
def load_tile(pointer, rows, columns, inside, WIDTH: tl.constexpr):
    return tl.load(pointer + rows[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0)


@triton.jit
def load_bias(bias, WIDTH: tl.constexpr, PAD: tl.constexpr):
    """Radius of the bias, its inverse (0 at the origin), and the first coordinate it then has."""
    dims = tl.arange(0, PAD)
    v = tl.load(bias + dims, mask=dims < WIDTH, other=0.0)
    largest = tl.max(tl.abs(v), 0)
    v = v / tl.where(largest > 0.0, largest, 1.0)
    norm = largest * tl.sqrt(tl.sum(v * v, 0))
    zero = norm == 0.0
    return tl.where(zero, ORIGIN, norm), tl.where(zero, 0.0, 1.0 / tl.where(zero, 1.0, norm)), tl.where(zero, 1.0, 0.0)


@triton.jit
def load_axes(mean, bias, columns, in_width, length, inverse, pole):
    """Columns of the mean's and of the bias' direction; either is e_0 where there is none."""
    ubar = tl.load(mean + columns, mask=in_width, other=0.0)
    first = tl.where(columns == 0, 1.0, 0.0)
    uhat = tl.where(length > 0.0, ubar / tl.where(length > 0.0, length, 1.0), first)
    w = tl.load(bias + columns, mask=in_width, other=0.0) * inverse + pole * first
    return uhat, w


@triton.jit
def centred_rows(mean_radius, radius, valid, chord, overlap, gain, eps, N):
    """The centred tokens (-mean) (+) x, their variance and the scaled radii.

    The last two numbers are the coefficients of u - uhat and of uhat in the centred token's direction. `overlap` is
    (u - uhat).uhat, which is -chord but for rounding: with it t is perpendicular to uhat to the last bit, and the
    direction of a token close to the mean comes out with length 1.
    """
    r, q, cosh_b, slope, lift, turn, s = frame(mean_radius, radius, chord, -1.0 - overlap)
    sine2 = tl.maximum(2.0 * chord - overlap * overlap, 0.0)
    r, n, cosh_c, centred, zero = landed(r, q, sine2, s)
    turned = sine2 > 0.0
    alpha, beta = tl.where(turned, q / n, 0.0), -(r / n + tl.where(turned, q / n * overlap, 0.0))
    variance = tl.sum(tl.where(valid, centred * centred, 0.0), 0) / N + eps
    factor = gain / tl.sqrt(variance)
    return r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, zero, centred, variance, factor, alpha, beta


@triton.jit
def forward_kernel(
    a, u, gain, bias, eps, out_radius, out, mean, token_stats, stats, N, EPS,
    WIDTH: tl.constexpr, PAD: tl.constexpr, COUNT: tl.constexpr, CHUNK: tl.constexpr, HAS_EPS: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, COUNT)
    lanes = tl.arange(0, CHUNK)
    valid = rows < N
    a += sample * N
    u += sample * N * WIDTH
    out += sample * N * WIDTH
    mean += sample * WIDTH
    radius = tl.load(a + rows, mask=valid, other=0.0)
    bias_radius, inverse, pole = load_bias(bias, WIDTH, PAD)
    strength = tl.load(gain)
    if HAS_EPS:
        EPS = tl.load(eps)

    highest = tl.max(radius, 0)
    lowest = tl.min(tl.where(valid, radius, float("inf")), 0)
    farthest = tl.min(tl.where(valid & (radius == highest), rows, COUNT), 0)
    mass = tl.where(valid, scaled_sinh(radius) * tl.exp(radius - highest), 0.0)
    total = tl.sum(mass, 0)
    share = mass / tl.where(total > 0.0, total, 1.0)
    squares = tl.zeros([COUNT, CHUNK], tl.float32)
    lengths = tl.zeros([CHUNK], tl.float32)
    for start in range(0, WIDTH, CHUNK):
        columns = start + lanes
        inside = valid[:, None] & (columns < WIDTH)[None, :]
        centre = tl.load(u + farthest * WIDTH + columns, mask=columns < WIDTH, other=0.0)
        offset = tl.where(inside, load_tile(u, rows, columns, inside, WIDTH) - centre[None, :], 0.0)
        step = tl.sum(share[:, None] * offset, 0)
        away = offset - step[None, :]
        squares += away * away
        ubar = centre + step
        lengths += ubar * ubar
        tl.store(mean + columns, ubar, mask=columns < WIDTH)
    spread = tl.sum(mass * tl.sum(squares, 1), 0)
    length = tl.sqrt(tl.sum(lengths, 0))
    radial = tl.sum(tl.where(valid, tl.exp(lowest - radius), 0.0), 0)
    mean_radius, log_plus, log_minus, size = centroid_radius(total, length, spread, radial, highest, lowest)
    length = tl.where(spread == 0.0, 1.0, length)  # equal directions: the mean is theirs to the last bit
    tl.debug_barrier()  # other threads read what was stored to `mean`

    chords = tl.zeros([COUNT, CHUNK], tl.float32)
    overlaps = tl.zeros([COUNT, CHUNK], tl.float32)
    for start in range(0, WIDTH, CHUNK):
        columns = start + lanes
        inside = valid[:, None] & (columns < WIDTH)[None, :]
        uhat, _ = load_axes(mean, bias, columns, columns < WIDTH, length, inverse, pole)
        d = tl.where(inside, load_tile(u, rows, columns, inside, WIDTH) - uhat[None, :], 0.0)
        chords += d * d
        overlaps += d * uhat[None, :]
    chord, overlap = 0.5 * tl.sum(chords, 1), tl.sum(overlaps, 1)
    _, _, _, _, _, _, _, _, _, _, centred, _, factor, alpha, beta = centred_rows(
        mean_radius, radius, valid, chord, overlap, strength, EPS, N
    )

    chords = tl.zeros([COUNT, CHUNK], tl.float32)
    overlaps = tl.zeros([COUNT, CHUNK], tl.float32)
    for start in range(0, WIDTH, CHUNK):
        columns = start + lanes
        inside = valid[:, None] & (columns < WIDTH)[None, :]
        uhat, w = load_axes(mean, bias, columns, columns < WIDTH, length, inverse, pole)
        d = load_tile(u, rows, columns, inside, WIDTH) - uhat[None, :]
        both = alpha[:, None] * d + (beta[:, None] * uhat[None, :] + w[None, :])
        chords += both * both
        overlaps += both * w[None, :]
    bias_chord, bias_overlap = 0.5 * tl.sum(chords, 1), tl.sum(overlaps, 1)
    r, q, _, _, _, turn, s = frame(bias_radius, factor * centred, bias_chord, bias_overlap - 1.0)
    _, n, _, moved, zero = landed(r, q, tl.maximum(2.0 * bias_chord - bias_overlap * bias_overlap, 0.0), s)

    # Every result is a combination of u - uhat, uhat and w. Rounding of the coefficients leaves its length a few eps
    # off 1, which sinh of the radius would multiply: it is measured first.
    sideways, straight = tl.where(zero, 0.0, q / n), tl.where(zero, 1.0, turn / n)
    alpha, beta = sideways * alpha, sideways * beta
    squares = tl.zeros([COUNT, CHUNK], tl.float32)
    for start in range(0, WIDTH, CHUNK):
        columns = start + lanes
        inside = valid[:, None] & (columns < WIDTH)[None, :]
        uhat, w = load_axes(mean, bias, columns, columns < WIDTH, length, inverse, pole)
        d = load_tile(u, rows, columns, inside, WIDTH) - uhat[None, :]
        result = alpha[:, None] * d + (beta[:, None] * uhat[None, :] + straight[:, None] * w[None, :])
        squares += result * result
    scale = 1.0 / tl.sqrt(tl.sum(squares, 1))
    for start in range(0, WIDTH, CHUNK):
        columns = start + lanes
        inside = valid[:, None] & (columns < WIDTH)[None, :]
        uhat, w = load_axes(mean, bias, columns, columns < WIDTH, length, inverse, pole)
        d = load_tile(u, rows, columns, inside, WIDTH) - uhat[None, :]
        result = alpha[:, None] * d + (beta[:, None] * uhat[None, :] + straight[:, None] * w[None, :])
        tl.store(out + rows[:, None] * WIDTH + columns[None, :], result * scale[:, None], mask=inside)

    tl.store(out_radius + sample * N + rows, moved, mask=valid)
    token_stats += sample * 4 * N + rows
    tl.store(token_stats, chord, mask=valid)
    tl.store(token_stats + N, overlap, mask=valid)
    tl.store(token_stats + 2 * N, bias_chord, mask=valid)
    tl.store(token_stats + 3 * N, bias_overlap, mask=valid)
    stats += sample * 5
    tl.store(stats, mean_radius)
    tl.store(stats + 1, log_plus)
    tl.store(stats + 2, log_minus)
    tl.store(stats + 3, size)
    tl.store(stats + 4, length)
