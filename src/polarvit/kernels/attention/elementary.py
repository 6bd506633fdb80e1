"""Elementary functions in float32 for Triton kernels, written from exp, log and sqrt.

Triton's interpreter has no libdevice, and the compiled `exp` and `log` lose the small arguments that hyperbolic
geometry lives on: `exp(x) - 1` is 0 for x = 1e-9. Each function here keeps a relative error of a few units in the last
place over its whole range, and `tests/kernels/test_elementary.py` measures it.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def fast_log2(x):
    """log2 x by the hardware's approximation: to 2^-22 between 1/2 and 2, to 2^-22 of itself elsewhere, x >= 2^-126."""
    if INTERPRETED:
        return tl.log2(x)
    return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def fast_exp2(x):
    """2^x by the hardware's approximation, to 2 units in the last place; 0 below 2^-126."""
    if INTERPRETED:
        return tl.exp2(x)
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def fast_rsqrt(x):
    """1/sqrt(x) for x >= 2^-126 by the hardware's approximation, to 2 units in the last place."""
    if INTERPRETED:
        return tl.rsqrt(x)
    return tl.inline_asm_elementwise(
        "rsqrt.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def fast_reciprocal(x):
    """1/x for x >= 2^-126 by the hardware's approximation, to 1 unit in the last place; inf below."""
    if INTERPRETED:
        return 1.0 / x
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def expm1(x):
    """e^x - 1: the Taylor series below |x| = 1/2, where the subtraction would cancel."""
    series = 1.0 / 5040.0 + x * (1.0 / 40320.0)
    series = 1.0 / 720.0 + x * series
    series = 1.0 / 120.0 + x * series
    series = 1.0 / 24.0 + x * series
    series = 1.0 / 6.0 + x * series
    series = 0.5 + x * series
    series = 1.0 + x * series
    return tl.where(tl.abs(x) < 0.5, x * series, tl.exp(x) - 1.0)


@triton.jit
def log1p(x):
    """ln(1 + x) for x >= 0: the rounding of 1 + x is undone by the factor x / ((1 + x) - 1)."""
    rounded = 1.0 + x
    step = rounded - 1.0
    return tl.where(step == 0.0, x, tl.log(rounded) * (x / tl.where(step == 0.0, 1.0, step)))


@triton.jit
def sinh_series(x):
    """sinh x for |x| <= 1 by its Taylor series."""
    y = x * x
    series = 1.0 / 5040.0 + y * (1.0 / 362880.0)
    series = 1.0 / 120.0 + y * series
    series = 1.0 / 6.0 + y * series
    return x + x * y * series


@triton.jit
def sinh(x):
    """sinh x, to the overflow of e^x."""
    grown = tl.exp(tl.abs(x))
    far = 0.5 * (grown - 1.0 / grown)
    return tl.where(tl.abs(x) < 1.0, sinh_series(x), tl.where(x < 0.0, -far, far))


@triton.jit
def cosh(x):
    """cosh x, to the overflow of e^x."""
    grown = tl.exp(tl.abs(x))
    return 0.5 * (grown + 1.0 / grown)


@triton.jit
def scaled_sinh(x):
    """sh(x) = sinh(x) e^-x for x >= 0: between 0 and 1/2 at every radius."""
    return -0.5 * expm1(-2.0 * x)


@triton.jit
def scaled_cosh(x):
    """ch(x) = cosh(x) e^-x for x >= 0: between 1/2 and 1 at every radius."""
    return 0.5 + 0.5 * tl.exp(-2.0 * x)


@triton.jit
def log_twice_sinh(x):
    """ln(2 sinh x) for x >= 0, at any radius."""
    return x + tl.log(2.0 * scaled_sinh(x))


@triton.jit
def asinh_series(root, square):
    """arsinh(root) for square = root^2 below 1/4: the root times a polynomial (fitted to 1.2e-9)."""
    series = 0.028076207874594025 - square * 0.013099914532999208
    series = -0.04436184388877733 + square * series
    series = 0.07498412604260289 + square * series
    series = -0.16666633460773211 + square * series
    return root + root * (square * series)


@triton.jit
def asinh_of_root(square):
    """arsinh(sqrt(square)) for square >= 0: the series below 1/4, else the logarithm."""
    root = tl.sqrt(square)
    return tl.where(square < 0.25, asinh_series(root, square), tl.log(root + tl.sqrt(1.0 + square)))


@triton.jit
def logaddexp2(x, y):
    """log2(2^x + 2^y); either may be -inf, both give -inf."""
    large = tl.maximum(x, y)
    gap = tl.where(large == float("-inf"), 0.0, tl.minimum(x, y) - large)
    return large + log1p(tl.exp2(gap)) * LOG2E


@triton.jit
def normal_share(x):
    """Phi(x) and phi(x), distribution and density of the standard normal: to 5e-7, the lower tail to 2e-5 of itself.

    Phi(-t) = phi(t) m(t) for t = |x|, with m the product of s = 1/(1 + 0.41 t) and a polynomial in s. The reciprocal is
    the square of a reciprocal root: two instructions where a division takes nine.
    """
    root = tl.rsqrt(1.0 + 0.41 * tl.abs(x))
    s = root * root
    ratio = 0.4341026246547699 - s * 0.08916011452674866
    ratio = -0.7440452575683594 + s * ratio
    ratio = 0.3712959587574005 + s * ratio
    ratio = 0.10729128867387772 + s * ratio
    ratio = 0.354555606842041 + s * ratio
    ratio = 0.4092670679092407 + s * ratio
    ratio = 0.41000694036483765 + s * ratio
    density = 0.3989422804014327 * tl.exp2((-0.7213475204444817 * x) * x)
    tail = density * (s * ratio)
    return tl.where(x < 0.0, tail, 1.0 - tail), density
