"""Before and after the backward kernel: what it asks of a row, and the sum of the copies that its programs leave.

The letters are those of `backward`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: SIM102 - an outer condition of capitals is the compiler's, the inner one the kernel's

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LOG2E, scaled_sinh

HIGHEST = tl.constexpr(120.0)
LARGEST_PULL = tl.constexpr(1e36)


@triton.jit
def attention_turn_kernel(
    out_radius, out, exponents, grad_radius, grad, turned, terms, N,
    WIDTH: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """For each row: t, and as `terms` [heads, 3, N]: g/2, g/2 rho and the exponent of A1's denominator.

    The factor of t, rho and g/2 rho are held where floats end (rho = 2^120 is a centroid at radius 41).
    SIDE, unless 0, is N known to the compiler.
    """
    if SIDE > 0:
        N = SIDE
    head = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = rows < N
    dims = tl.arange(0, PAD)
    spot = head * WIDTH * N + dims[:, None] * N + rows[None, :]
    inside = (dims < WIDTH)[:, None] & valid[None, :]
    uhat = tl.load(out + spot, mask=inside, other=0.0)
    t = tl.load(grad + spot, mask=inside, other=0.0)
    exponent = tl.load(exponents + head * N + rows, mask=valid, other=0.0)
    r = tl.load(out_radius + head * N + rows, mask=valid, other=0.0)
    half = 0.5 * tl.load(grad_radius + head * N + rows, mask=valid, other=0.0)
    # a radius that underflows to 0 has no direction to turn
    turn = tl.where(r > 0.0, tl.minimum(1.0 / tl.where(r > 0.0, scaled_sinh(r), 1.0), LARGEST_PULL), 0.0)
    terms += head * 3 * N + rows
    tl.store(turned + spot, turn[None, :] * (t - tl.sum(uhat * t, 0)[None, :] * uhat), mask=inside)
    tl.store(terms, half, mask=valid)
    grown = half * tl.exp2(tl.minimum(r * (2.0 * LOG2E), HIGHEST))
    tl.store(terms + N, tl.minimum(tl.maximum(grown, -LARGEST_PULL), LARGEST_PULL), mask=valid)
    tl.store(terms + 2 * N, exponent, mask=valid)


@triton.jit
def finished(to_w, w, sh):
    """Gradients [dims, points] of value directions w, times sh(c) and perpendicular to w."""
    to_w *= sh[None, :]
    return to_w - tl.sum(to_w * w, 0)[None, :] * w


@triton.jit
def attention_gather_kernel(
    near, value_radius, value, key_radius_parts, key_parts, value_radius_parts, value_parts,
    to_key_radius, to_key, to_value_radius, to_value, PARTS, M, FAR: tl.constexpr,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds up the copies [PARTS, heads, ...] of the keys' and values' gradients, and finishes those of directions.

    FAR: of heads that are not near.
    """
    head = tl.program_id(0).to(tl.int64)
    if FAR:
        if tl.load(near + head) != 0:
            return
    heads = tl.num_programs(0)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = place < M
    dims, value_dims = tl.arange(0, PAD)[:, None], tl.arange(0, VALUE_PAD)[:, None]
    inside, value_inside = (dims < WIDTH) & valid[None, :], (value_dims < VALUE_WIDTH) & valid[None, :]
    spot, value_spot = dims * M + place[None, :], value_dims * M + place[None, :]
    key_sum = tl.zeros([BLOCK], tl.float32)
    value_sum = tl.zeros([BLOCK], tl.float32)
    to_k = tl.zeros([PAD, BLOCK], tl.float32)
    to_w = tl.zeros([VALUE_PAD, BLOCK], tl.float32)
    for part in range(PARTS):
        copy = part * heads + head
        key_sum += tl.load(key_radius_parts + copy * M + place, mask=valid, other=0.0)
        value_sum += tl.load(value_radius_parts + copy * M + place, mask=valid, other=0.0)
        to_k += tl.load(key_parts + copy * WIDTH * M + spot, mask=inside, other=0.0)
        to_w += tl.load(value_parts + copy * VALUE_WIDTH * M + value_spot, mask=value_inside, other=0.0)
    c = tl.load(value_radius + head * M + place, mask=valid, other=0.0).to(tl.float32)
    value_spot += head * VALUE_WIDTH * M
    w = tl.load(value + value_spot, mask=value_inside, other=0.0).to(tl.float32)
    tl.store(to_key_radius + head * M + place, key_sum, mask=valid)
    tl.store(to_value_radius + head * M + place, value_sum, mask=valid)
    tl.store(to_key + head * WIDTH * M + spot, to_k, mask=inside)
    tl.store(to_value + value_spot, finished(to_w, w, scaled_sinh(c)), mask=value_inside)
