"""Forward kernel of polar attention for heads of up to 32 dimensions: a thread for a query, one pass over the keys.

Exponents are counted in powers of two. For a score s (times log2 e) and a value radius c (times log2 e, `beta`), a key
contributes the mass 2^(s + beta) sh(c) and the radial term 2^(s - beta); each of the two sums has its own running
maximum, so neither can overflow or vanish at any radius. Mean and spread of the value directions take in one key at a
time, as offsets from the first value: equal and one-hot directions give a spread of exactly zero.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LN2
from polarvit.kernels.attention.keys import BETA, DOWN, ENTRIES, RADIUS, SH, SINH, UP
from polarvit.kernels.attention.rows import NOTHING, finish_rows, half_powers, log2_distance, store_exponent


@triton.jit(do_not_specialize=["ZERO"])
def attention_forward_kernel(
    query_radius, query, packed, mask, scale, out_radius, out, exponents,
    HEADS, N, M, ZERO,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr,
    BLOCK: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    b, h = head // HEADS, head % HEADS
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row_valid = rows < N
    place = rows + ZERO
    dims, value_dims = tl.arange(0, PAD), tl.arange(0, VALUE_PAD)
    in_width, in_value = dims < WIDTH, value_dims < VALUE_WIDTH
    LONG: tl.constexpr = WIDTH + VALUE_WIDTH + ENTRIES
    packed += head * M * LONG
    factor = tl.load(scale + h) * -LN2
    place_in = query + head * WIDTH * N + dims[:, None] * N + place[None, :]
    q = tl.load(place_in, mask=in_width[:, None] & row_valid[None, :], other=0.0).to(tl.float32)
    a = tl.load(query_radius + head * N + place, mask=row_valid, other=0.0).to(tl.float32)
    up, down, sinh_a = half_powers(a)
    highest = tl.max(a, 0)
    first = tl.load(packed + WIDTH + value_dims, mask=in_value, other=0.0)

    mass = tl.zeros([BLOCK], tl.float32)
    spread = tl.zeros([BLOCK], tl.float32)
    radial = tl.zeros([BLOCK], tl.float32)
    mass_exponent = tl.full([BLOCK], NOTHING, tl.float32)
    radial_exponent = tl.full([BLOCK], NOTHING, tl.float32)
    offset = tl.zeros([VALUE_PAD, BLOCK], tl.float32)
    for j in range(M):
        row = packed + j * LONG
        v = tl.load(row + dims, mask=in_width, other=0.0)
        u = tl.load(row + WIDTH + value_dims, mask=in_value, other=0.0) - first
        row += WIDTH + VALUE_WIDTH
        beta = tl.load(row + BETA)
        step = q - v[:, None]
        length = log2_distance(
            a, up, down, sinh_a,
            tl.load(row + RADIUS), tl.load(row + UP), tl.load(row + DOWN), tl.load(row + SINH),
            tl.sum(step * step, 0), highest,
        )  # fmt: skip
        score = factor * (length * length)
        attend = True
        if HAS_MASK:
            attend = tl.load(mask + b * M + j) != 0
            score = tl.where(attend, score, NOTHING)

        exponent = score + beta
        top = tl.maximum(mass_exponent, exponent)
        old = tl.exp2(mass_exponent - top)
        m = tl.exp2(exponent - top) * tl.load(row + SH)
        if HAS_MASK:
            m = tl.where(attend, m, 0.0)
        before = mass * old
        mass = before + m
        mass_exponent = top
        share = m / tl.where(mass > 0.0, mass, 1.0)
        apart = u[:, None] - offset
        spread = spread * old + before * share * tl.sum(apart * apart, 0)
        offset += share[None, :] * apart

        exponent = score - beta
        top = tl.maximum(radial_exponent, exponent)
        term = tl.exp2(exponent - top)
        if HAS_MASK:
            term = tl.where(attend, term, 0.0)
        radial = radial * tl.exp2(radial_exponent - top) + term
        radial_exponent = top

    # Values that all sit at the origin have no mean direction; any will do, and the reference takes the first.
    mean = first[:, None] + offset
    norm = tl.sqrt(tl.sum(mean * mean, 0))
    some = radial > 0.0
    radius, tau = finish_rows(mass, norm, spread, mass_exponent, radial, radial_exponent)
    pole = tl.where(value_dims == 0, 1.0, 0.0)
    pointed = some & (norm > 0.0)
    direction = tl.where(pointed[None, :], mean / tl.where(pointed, norm, 1.0)[None, :], pole[:, None])
    tl.store(out_radius + head * N + place, tl.where(some, radius, 0.0), mask=row_valid)
    place_out = out + head * N * VALUE_WIDTH + value_dims[:, None] * N + place[None, :]
    tl.store(place_out, direction, mask=in_value[:, None] & row_valid[None, :])
    store_exponent(exponents + head * N + place, row_valid, some, mass_exponent + tau)
