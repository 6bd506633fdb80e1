"""What every query asks of a key, computed once: seven numbers, padded to eight, for each key and its value.

The kernels that give each query a thread walk over the keys one by one; a row of the table is read by all threads at
once. Radii of keys are held at 85, beyond which `rows` takes the far formula from the radius itself.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LOG2E, scaled_sinh, sinh

HELD = tl.constexpr(85.0)
UP, DOWN, SINH, RADIUS, BETA, SH, SHRUNK = (tl.constexpr(i) for i in range(7))
ENTRIES = tl.constexpr(8)


@triton.jit
def key_kernel(key_radius, value_radius, table, COUNT, BLOCK: tl.constexpr):
    """For key radius b and value radius c: e^(b/2), e^(-b/2), sinh b, b, c log2 e, sh(c), e^-2c."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = place < COUNT
    b = tl.load(key_radius + place, mask=valid, other=0.0).to(tl.float32)
    c = tl.load(value_radius + place, mask=valid, other=0.0).to(tl.float32)
    held = tl.minimum(b, HELD)
    row = table + place * ENTRIES
    tl.store(row + UP, tl.exp(0.5 * held), mask=valid)
    tl.store(row + DOWN, tl.exp(-0.5 * held), mask=valid)
    tl.store(row + SINH, sinh(held), mask=valid)
    tl.store(row + RADIUS, b, mask=valid)
    tl.store(row + BETA, c * LOG2E, mask=valid)
    tl.store(row + SH, scaled_sinh(c), mask=valid)
    tl.store(row + SHRUNK, tl.exp(-2.0 * c), mask=valid)
