"""What every query asks of a key, in one row: its direction, its value's direction and six numbers, padded to eight.

The forward kernel that gives each query a thread walks over the keys one by one; a row is read by all threads at once.
Radii of keys are held at 85, beyond which `rows` takes the far formula from the radius itself.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LOG2E, scaled_sinh, sinh
from polarvit.kernels.attention.rows import HELD

UP, DOWN, SINH, RADIUS, BETA, SH = (tl.constexpr(i) for i in range(6))
ENTRIES = tl.constexpr(8)


@triton.jit
def attention_pack_kernel(
    key_radius, key, value_radius, value, packed, M,
    WIDTH: tl.constexpr, PAD: tl.constexpr, VALUE_WIDTH: tl.constexpr, VALUE_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """For key radius b and value radius c the numbers are e^(b/2), e^(-b/2), sinh b, b, c log2 e, sh(c)."""
    head = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = place < M
    dims, value_dims = tl.arange(0, PAD), tl.arange(0, VALUE_PAD)
    inside = (dims < WIDTH)[:, None] & valid[None, :]
    value_inside = (value_dims < VALUE_WIDTH)[:, None] & valid[None, :]
    u = tl.load(key + head * WIDTH * M + dims[:, None] * M + place[None, :], mask=inside, other=0.0).to(tl.float32)
    spot = head * VALUE_WIDTH * M + value_dims[:, None] * M + place[None, :]
    w = tl.load(value + spot, mask=value_inside, other=0.0).to(tl.float32)
    row = packed + (head * M + place) * (WIDTH + VALUE_WIDTH + ENTRIES)
    tl.store(row[None, :] + dims[:, None], u, mask=inside)
    row += WIDTH
    tl.store(row[None, :] + value_dims[:, None], w, mask=value_inside)
    row += VALUE_WIDTH
    b = tl.load(key_radius + head * M + place, mask=valid, other=0.0).to(tl.float32)
    c = tl.load(value_radius + head * M + place, mask=valid, other=0.0).to(tl.float32)
    held = tl.minimum(b, HELD)
    entry = tl.arange(0, ENTRIES)[:, None]
    numbers = tl.where(entry == UP, tl.exp(0.5 * held)[None, :], tl.exp(-0.5 * held)[None, :])
    numbers = tl.where(entry == SINH, sinh(held)[None, :], numbers)
    numbers = tl.where(entry == RADIUS, b[None, :], numbers)
    numbers = tl.where(entry == BETA, (c * LOG2E)[None, :], numbers)
    numbers = tl.where(entry == SH, scaled_sinh(c)[None, :], numbers)
    tl.store(row[None, :] + entry, numbers, mask=valid[None, :])
