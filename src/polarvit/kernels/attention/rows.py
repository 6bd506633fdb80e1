"""One thread for one query: distances from a block of queries to a single key, and how a row's sums become a point.

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

from polarvit.kernels.attention.elementary import (
    LN2,
    LOG2E,
    asinh_of_root,
    fast_log2,
    log1p,
    log_twice_sinh,
    logaddexp2,
    sinh,
)

HELD = tl.constexpr(85.0)
FAR = tl.constexpr(40.0)
NOTHING = tl.constexpr(-1e38)


@triton.jit
def half_powers(a):
    """1/2 e^(a/2), 1/2 e^(-a/2) and 1/4 sinh a of queries."""
    held = tl.minimum(a, HELD)
    return 0.5 * tl.exp(0.5 * held), 0.5 * tl.exp(-0.5 * held), 0.25 * sinh(held)


@triton.jit
def far_distance(a, b, square):
    """D of the asymptote e^D = e^|a-b| + sinh a sinh b |u-v|^2; `square` is |u-v|^2."""
    gap = tl.abs(a - b)
    angular = log_twice_sinh(a) + log_twice_sinh(b) + tl.log(0.25 * square)
    return tl.maximum(gap, angular) + log1p(tl.exp(-tl.abs(gap - angular)))


@triton.jit
def log2_distance(a, up, down, sinh_a, b, key_up, key_down, key_sinh, square, highest):
    """D log2 e from queries (a, ...) to one key (b, ...) at squared chord length `square`; `highest` is max a."""
    gap = up * key_down - down * key_up
    s = gap * gap + sinh_a * (key_sinh * square)
    result = fast_log2(1.0 + 2.0 * (s + tl.sqrt(s * s + s)))
    if b + highest > FAR:
        distance = far_distance(a, b, square)
        far = (distance > FAR) | (tl.maximum(a, b) > HELD)
        result = tl.where(far, distance * LOG2E, result)
    return result


@triton.jit
def finish_rows(mass, mean_norm, spread, mass_exponent, radial, radial_exponent):
    """Centroid radius and the logarithm of T+|V|, relative to `mass_exponent`."""
    log_v = tl.log2(mass * mean_norm)
    log_e = tl.log2(radial) + (radial_exponent - mass_exponent)
    lam = logaddexp2(tl.log2(spread / (1.0 + mean_norm)), log_e)
    tau = logaddexp2(1.0 + log_v, lam)
    far = 0.5 * (tau - lam) * LN2
    root = tl.exp2(log_v - 0.5 * lam - 0.5 * tau)
    return tl.where(far < 1.0, asinh_of_root(root * root), far), tau


@triton.jit
def store_exponent(place, valid, some, exponent):
    """The exponent of T+|V|, all that the backward pass asks of a row beside its centroid.

    Rows that attend to nothing (`some` is false) get one with which every weight of the backward pass vanishes.
    """
    tl.store(place, tl.where(some, exponent, -NOTHING), mask=valid)
