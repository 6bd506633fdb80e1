"""Forward kernel of a layer whose point is a step: product, epilogue and boost residual of a sample's tokens.

As `polarvit.kernels.residual.triton`, but the step is made of the layer's product (`polarvit.kernels.linear.triton`)
where it is needed and never written down.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"

import triton
import triton.language as tl

from polarvit.kernels.linear.triton import NONE, point_of
from polarvit.kernels.pieces import fold, load_rows, per_row, piece_columns, store_piece
from polarvit.kernels.residual.triton import moved_rows, step_factor


@triton.jit
def step_forward_kernel(
    a, u, product, c, time_weight, beta, slope, phi0, size, kept, out_radius, out, signed, out_step, out_norm, N,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, LANES: tl.constexpr, HEIGHT: tl.constexpr, PIECES: tl.constexpr,
    ROWS: tl.constexpr, SPLIT: tl.constexpr, WHOLE: tl.constexpr, HAS_KEPT: tl.constexpr,
):  # fmt: skip
    EXACT: tl.constexpr = LANES * HEIGHT * PIECES == WIDTH
    sample = tl.program_id(0).to(tl.int64)
    u += sample * N * WIDTH
    product += sample * N * STRIDE
    c += sample * N
    out += sample * N * WIDTH
    lanes = tl.arange(0, ROWS)
    factor = step_factor(size, kept, sample, HAS_KEPT)
    mean = 0.0
    if not WHOLE:
        sums = tl.zeros([ROWS, LANES], tl.float32)
        for start in range(0, N, ROWS):
            rows = start + lanes
            valid = rows < N
            ys, step, _ = point_of(
                product, c, time_weight, beta, slope, phi0, rows, valid,
                WIDTH, STRIDE, LANES, HEIGHT, PIECES, NONE, 1.0,
            )  # fmt: skip
            step = tl.where(valid, step, 0.0)
            xs = load_rows(u, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
            for i in tl.static_range(PIECES):
                sums += fold(per_row(step) * xs[i] * ys[i])
        mean = tl.sum(tl.sum(sums, 1), 0) / N

    for start in range(tl.program_id(1) * ROWS, N, SPLIT * ROWS):
        rows = start + lanes
        valid = rows < N
        place = sample * N + rows
        radius = tl.load(a + place, mask=valid, other=0.0)
        ys, step, norm = point_of(
            product, c, time_weight, beta, slope, phi0, rows, valid,
            WIDTH, STRIDE, LANES, HEIGHT, PIECES, NONE, 1.0,
        )  # fmt: skip
        step = tl.where(valid, step, 0.0)
        xs = load_rows(u, rows, valid, WIDTH, LANES, HEIGHT, PIECES)
        moved, units = moved_rows(radius, step, xs, ys, factor, mean, N, LANES, HEIGHT, PIECES, WHOLE)
        for i in tl.static_range(PIECES):
            columns = piece_columns(i, LANES, HEIGHT)
            store_piece(out, rows, valid, columns, units[i], WIDTH, WIDTH, LANES, EXACT)
        tl.store(out_radius + place, tl.abs(moved), mask=valid)
        tl.store(signed + place, moved, mask=valid)
        tl.store(out_step + place, step, mask=valid)
        tl.store(out_norm + place, norm, mask=valid)
