"""One thread for one query: distance to a key, for a block of queries and a single key.

A tile is [dimensions, queries] with all dimensions of a query in one thread, so sums over dimensions need no exchange
between threads. The compiler lays a tile out like that if it sees that queries are neighbours in memory, but not that
they are aligned, for then it would give a thread four of them: that is what the argument ZERO of the kernels, always 0
and never specialised, is for.

    sinh^2(D/2) = sinh^2((a-b)/2) + 1/4 sinh a sinh b |u-v|^2,   D = ln(1 + 2 (s + sqrt(s^2 + s))),  s = sinh^2(D/2)

The angle enters by differences of coordinates only. Beyond D = 40, where s^2 would leave float32, e^D = e^|a-b| +
sinh a sinh b |u-v|^2 is taken in the log domain instead.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import LN2, LOG2E, asinh_series, log1p, log_twice_cosh, log_twice_sinh, sinh
from polarvit.kernels.attention.keys import HELD

FAR = tl.constexpr(40.0)
LARGEST_SLOPE = tl.constexpr(1e34)
INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def fast_log2(x):
    """log2 x for x >= 1 by the hardware's approximation, off by at most 2^-22: a distance stays within its rounding."""
    if INTERPRETED:
        return tl.log2(x)
    return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def half_powers(a):
    """1/2 e^(a/2), 1/2 e^(-a/2) and 1/4 sinh a of queries."""
    held = tl.minimum(a, HELD)
    return 0.5 * tl.exp(0.5 * held), 0.5 * tl.exp(-0.5 * held), 0.25 * sinh(held)


@triton.jit
def far_terms(a, b, square):
    """|a-b|, the logarithm of sinh a sinh b |u-v|^2, and D of the asymptote; `square` is |u-v|^2."""
    gap = tl.abs(a - b)
    angular = log_twice_sinh(a) + log_twice_sinh(b) + tl.log(0.25 * square)
    return gap, angular, tl.maximum(gap, angular) + log1p(tl.exp(-tl.abs(gap - angular)))


@triton.jit
def log2_distance(a, up, down, sinh_a, b, key_up, key_down, key_sinh, square, highest):
    """D log2 e from queries (a, ...) to one key (b, ...) at squared chord length `square`; `highest` is max a."""
    gap = up * key_down - down * key_up
    s = gap * gap + sinh_a * (key_sinh * square)
    result = fast_log2(1.0 + 2.0 * (s + tl.sqrt(s * s + s)))
    if b + highest > FAR:
        _, _, distance = far_terms(a, b, square)
        far = (distance > FAR) | (tl.maximum(a, b) > HELD)
        result = tl.where(far, distance * LOG2E, result)
    return result


@triton.jit
def distance_gradients(a, up, down, sinh_a, cosh_a, b, key_up, key_down, key_sinh, square, highest):
    """D^2 and half its derivatives by 1/2|u-v|^2 and by a, from queries to one key (or from keys to one query).

    With K = D / sinh D they are K sinh a sinh b and K (sinh(a-b) + 1/2 cosh a sinh b |u-v|^2). Far out the first one
    outgrows every float and is held at 1e34.
    """
    first, second = up * key_down, down * key_up
    apart = 0.5 * (a - b)
    near = apart * apart
    near = apart + apart * near * (1.0 / 6.0 + near * (1.0 / 120.0))
    gap = tl.where(tl.abs(apart) < 0.25, near, first - second)
    s = gap * gap + sinh_a * (key_sinh * square)
    inverse, inverse_cosh = tl.rsqrt(tl.maximum(s, 1e-36)), tl.rsqrt(1.0 + s)
    root = s * inverse
    half = tl.where(s < 0.25, asinh_series(root, s), LN2 * fast_log2(root + (1.0 + s) * inverse_cosh))
    slope = tl.where(s > 1e-30, half * inverse * inverse_cosh, 1.0)
    distance2 = 4.0 * half * half
    by_chord = tl.minimum((4.0 * sinh_a) * (slope * key_sinh), LARGEST_SLOPE)
    radial = slope * (2.0 * gap * (first + second))
    angular = 0.5 * slope * square
    by_a = radial + cosh_a * (key_sinh * angular)
    if b + highest > FAR:
        far_gap, _, distance = far_terms(a, b, square)
        far = (distance > FAR) | (tl.maximum(a, b) > HELD)
        distance2 = tl.where(far, distance * distance, distance2)
        growth = log_twice_sinh(a) + log_twice_sinh(b) - distance
        by_chord = tl.where(far, 0.5 * distance * tl.exp(tl.minimum(growth, 72.0)), by_chord)
        by_chord = tl.where(square > 0.0, by_chord, 0.0)
        radial = distance * tl.exp(far_gap - distance)
        radial = tl.where(a < b, -radial, radial)
        size = tl.log(0.25 * square) - distance
        by_a = tl.where(far, radial + distance * tl.exp(log_twice_cosh(a) + log_twice_sinh(b) + size), by_a)
    return distance2, by_chord, by_a
