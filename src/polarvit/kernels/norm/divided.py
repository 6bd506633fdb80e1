"""Forward kernels of the gyro layer norm for large samples: several programs share one, and meet between kernels.

1. `divided_mean_kernel`, columns: the mean direction ubar, and what each group of columns adds to its length and to the
   spread around it;
2. `divided_centre_kernel`, rows: the centroid; chord and overlap with it; what rows add to the variance;
3. `divided_place_kernel`, rows: the results.

One program a sample would leave most of a GPU idle: 64 images of 196 tokens are 64 programs for 132 multiprocessors.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
# ruff: noqa: RUF005 - Triton adds tuples but does not unpack them

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import scaled_sinh
from polarvit.kernels.norm.axes import farther, inverse_length, load_axis, load_bias, load_columns
from polarvit.kernels.norm.rows import ORIGIN, centred_rows, centroid_radius, store_centroid
from polarvit.kernels.norm.triton import chord_rows, placed_rows
from polarvit.kernels.pieces import fold, load_piece, load_rows, per_row, piece_columns, store_piece, sum_two


@triton.jit
def load_axes(
    pointer, rows, length, WIDTH: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr
):
    """All pieces of the direction of a vector of this length, the same for every row."""
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    inverse, pole = inverse_length(length)
    tiles = ()
    for i in tl.static_range(PIECES):
        columns = piece_columns(i, LANES, HEIGHT)
        tiles = tiles + (load_axis(pointer, rows, columns, inverse, pole, WIDTH, LANES, EXACT),)
    return tiles


@triton.jit
def sum_parts(pointer, PARTS, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of what PARTS programs left, every STRIDE numbers one."""
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, PARTS, BLOCK):
        total += tl.load(pointer + (start + lanes) * STRIDE, mask=start + lanes < PARTS, other=0.0)
    return tl.sum(total, 0)


@triton.jit
def masses(a, rows, valid, highest):
    """sinh of the radii over e^highest, and the radii."""
    radius = tl.load(a + rows, mask=valid, other=0.0)
    return tl.where(valid, scaled_sinh(radius) * tl.exp(radius - highest), 0.0), radius


@triton.jit
def divided_mean_kernel(a, u, mean, groups, sums, N, WIDTH: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Columns of ubar; `groups` [B, groups, 2] has |ubar|^2 and the spread, `sums` [B, 4] the sample's radii."""
    EXACT: tl.constexpr = WIDTH % LANES == 0
    sample = tl.program_id(0).to(tl.int64)
    a += sample * N
    u += sample * N * WIDTH
    lanes = tl.arange(0, ROWS)
    columns = tl.program_id(1) * LANES + piece_columns(0, LANES, 1)
    high, place, low = tl.full([ROWS], -1.0, tl.float32), lanes, tl.full([ROWS], float("inf"), tl.float32)
    for start in range(0, N, ROWS):
        rows = start + lanes
        radius = tl.load(a + rows, mask=rows < N, other=-1.0)
        place = tl.where(radius > high, rows, place)
        high = tl.maximum(high, radius)
        low = tl.minimum(low, tl.where(rows < N, radius, float("inf")))
    highest, farthest, lowest, _ = tl.reduce((high, place, low, low), 0, farther)
    total, radial = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    for start in range(0, N, ROWS):
        rows = start + lanes
        mass, radius = masses(a, rows, rows < N, highest)
        total += mass
        radial += tl.where(rows < N, tl.exp(lowest - radius), 0.0)
    total, radial = sum_two(total, radial)

    inverse = 1.0 / tl.where(total > 0.0, total, 1.0)
    centre = load_columns(u + farthest * WIDTH, columns, WIDTH, EXACT)
    steps = tl.zeros([ROWS, 1, LANES], tl.float32)
    for start in range(0, N, ROWS):
        rows = start + lanes
        mass, radius = masses(a, rows, rows < N, highest)
        offset = load_piece(u, rows, rows < N, columns, WIDTH, WIDTH, LANES, EXACT) - centre[None, :, :]
        steps += per_row(mass * inverse) * offset
    step = tl.sum(steps, 0)
    squares = tl.zeros([ROWS, LANES], tl.float32)
    for start in range(0, N, ROWS):
        rows = start + lanes
        mass, radius = masses(a, rows, rows < N, highest)
        offset = load_piece(u, rows, rows < N, columns, WIDTH, WIDTH, LANES, EXACT) - centre[None, :, :]
        away = offset - step[None, :, :]
        squares += fold(per_row(mass) * away * away)
    ubar = centre + step
    tl.store(mean + sample * WIDTH + columns, ubar, mask=columns < WIDTH)
    groups += (sample * tl.num_programs(1) + tl.program_id(1)) * 2
    tl.store(groups, tl.sum(tl.sum(ubar * ubar, 0), 0))
    tl.store(groups + 1, tl.sum(tl.sum(squares, 1), 0))
    if tl.program_id(1) == 0:
        tl.store(sums + sample * 4, highest)
        tl.store(sums + sample * 4 + 1, lowest)
        tl.store(sums + sample * 4 + 2, total)
        tl.store(sums + sample * 4 + 3, radial)


@triton.jit
def divided_centre_kernel(
    a, u, mean, groups, sums, token_stats, stats, parts, N, GROUPS,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Chord and overlap of rows with the mean, the sample's numbers, and in `parts` the sum of squared radii."""
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    valid = rows < N
    radius = tl.load(a + sample * N + rows, mask=valid, other=0.0)
    xs = load_rows(u + sample * N * WIDTH, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    groups += sample * GROUPS * 2
    length = tl.sqrt(sum_parts(groups, GROUPS, 2, 16))
    spread = sum_parts(groups + 1, GROUPS, 2, 16)
    highest = tl.load(sums + sample * 4)
    lowest = tl.load(sums + sample * 4 + 1)
    total = tl.load(sums + sample * 4 + 2)
    radial = tl.load(sums + sample * 4 + 3)
    mean_radius, log_plus, log_minus, size = centroid_radius(total, length, spread, radial, highest, lowest)
    length = tl.where(spread == 0.0, 1.0, length)  # equal directions: the mean is theirs to the last bit
    uhats = load_axes(mean + sample * WIDTH, rows, length + tl.zeros_like(radius), WIDTH, LANES, HEIGHT, PIECES)
    chord, overlap = chord_rows(xs, uhats, PIECES)
    _, _, _, _, _, _, _, _, _, _, centred, _, _ = centred_rows(mean_radius, radius, chord, overlap)
    squares = tl.sum(tl.where(valid, centred * centred, 0.0), 0)
    tl.store(parts + sample * tl.num_programs(1) + tl.program_id(1), squares)
    token_stats += (sample * N + rows) * 4
    tl.store(token_stats, chord, mask=valid)
    tl.store(token_stats + 1, overlap, mask=valid)
    if tl.program_id(1) == 0:
        store_centroid(stats + sample * 8, mean_radius, log_plus, log_minus, size, length, highest)


@triton.jit
def divided_place_kernel(
    a, u, gain, bias, eps, mean, parts, out_radius, out, token_stats, stats, N, EPS,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
    HAS_EPS: tl.constexpr,
):  # fmt: skip
    """Results of some rows. The first program of a sample leaves the length of the bias and the variance."""
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    sample = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    valid = rows < N
    radius = tl.load(a + sample * N + rows, mask=valid, other=0.0)
    xs = load_rows(u + sample * N * WIDTH, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
    token_stats += (sample * N + rows) * 4
    chord = tl.load(token_stats, mask=valid, other=0.0)
    overlap = tl.load(token_stats + 1, mask=valid, other=0.0)
    stats += sample * 8
    mean_radius, length = tl.load(stats), tl.load(stats + 4)
    if HAS_EPS:
        EPS = tl.load(eps)
    variance = sum_parts(parts + sample * tl.num_programs(1), tl.num_programs(1), 1, 32) / N + EPS
    bias_norms = load_bias(bias, rows, WIDTH, LANES, HEIGHT, PIECES, EXACT)
    bias_norm = tl.max(bias_norms, 0)
    uhats = load_axes(mean + sample * WIDTH, rows, length + tl.zeros_like(radius), WIDTH, LANES, HEIGHT, PIECES)
    ws = load_axes(bias, rows, bias_norms, WIDTH, LANES, HEIGHT, PIECES)
    _, _, _, _, _, _, _, _, _, _, centred, alpha, beta = centred_rows(mean_radius, radius, chord, overlap)
    scaled = tl.load(gain) / tl.sqrt(variance) * centred
    bias_radius = tl.where(bias_norm == 0.0, ORIGIN, bias_norm)
    bias_chord, bias_overlap, moved, results = placed_rows(
        xs, uhats, ws, alpha, beta, bias_radius, scaled, PIECES, False
    )
    out += sample * N * WIDTH
    for i in tl.static_range(PIECES):
        store_piece(out, rows, valid, piece_columns(i, LANES, HEIGHT), results[i], WIDTH, WIDTH, LANES, EXACT)
    tl.store(out_radius + sample * N + rows, moved, mask=valid)
    tl.store(token_stats + 2, bias_chord, mask=valid)
    tl.store(token_stats + 3, bias_overlap, mask=valid)
    if tl.program_id(1) == 0:
        tl.store(stats + 5, bias_norm)
        tl.store(stats + 7, variance)
