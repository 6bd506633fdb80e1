"""The horospherical shift of a head, in numbers: it moves up to four coordinates and scales all others by one factor.

A unit direction is held as its coordinates c0..c3 and R, the sum of squares of the rest. Everything is divided by e^a:
x = sh(a) u, nu = e^-2a + sh(a) (1 - u_ideal), the gap 1 - u_ideal as a chord where it would cancel. The shift by t
along `slide` adds t nu to x_slide and t x_slide + t^2 nu/2 to x_ideal; the direction then follows from the length of x.

Backwards a gradient of the rest is a combination alpha g + beta u of two vectors that the kernel holds, g the upstream
gradient and u the unshifted direction, so it is two numbers too; q = g.u over the rest.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import asinh_of_root, scaled_sinh
from polarvit.kernels.linear.triton import ORIGIN

NO_SHIFT, SEPARATE, JOINT = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def scaled_asinh(x, s):
    """asinh(e^s x) for x, s >= 0."""
    near = tl.exp(tl.minimum(s, 40.0)) * x
    far = s + tl.log(x + tl.sqrt(x * x + tl.exp(-2.0 * s)))
    return tl.where(s <= 40.0, asinh_of_root(near * near), tl.maximum(far, 0.0))


@triton.jit
def horosphere(a, ideal, others):
    """sh(a), nu e^-a/sqrt(k) and the gap 1 - u_ideal; `others` is the sum of squares of all other coordinates."""
    sh = scaled_sinh(a)
    gap = tl.where(ideal >= 0.0, 0.5 * ((1.0 - ideal) * (1.0 - ideal) + others), 1.0 - ideal)
    return sh, tl.exp(-2.0 * a) + sh * gap, gap


@triton.jit
def shift(a, ideal, slide, third, fourth, R, t, second, BOTH: tl.constexpr):
    """Shift by t along `slide` and, if BOTH, by `second` along `third`: radius, coordinates, rest's factor, length."""
    sh, nu, _ = horosphere(a, ideal, slide * slide + third * third + fourth * fourth + R)
    lift = t * (sh * slide + 0.5 * t * nu)
    x_slide, x_third, x_fourth = sh * slide + t * nu, sh * third, sh * fourth
    if BOTH:
        lift += second * (sh * third + 0.5 * second * nu)
        x_third += second * nu
    x_ideal = sh * ideal + lift
    square = x_ideal * x_ideal + x_slide * x_slide + x_third * x_third + x_fourth * x_fourth + sh * sh * R
    zero = square == 0.0
    norm = tl.where(zero, ORIGIN, tl.sqrt(square))
    inverse = 1.0 / norm
    return (
        scaled_asinh(norm, a),
        tl.where(zero, 1.0, x_ideal * inverse),
        x_slide * inverse,
        x_third * inverse,
        x_fourth * inverse,
        sh * inverse,
        norm,
    )


@triton.jit
def shift_backward(
    a, ideal, slide, third, fourth, R, t, second, scale,
    to_ideal, to_slide, to_third, to_fourth, factor, norm,
    g_radius, g_ideal, g_slide, g_third, g_fourth, alpha, beta, q,
    BOTH: tl.constexpr,
):  # fmt: skip
    """Gradients of a, the coordinates, the rest (alpha, beta), t and second.

    The rest that went in was `scale` u, R its sum of squares over scale^2; what came out are `to_ideal`..., `factor`
    and `norm`.
    """
    others = slide * slide + third * third + fourth * fourth + scale * scale * R
    sh, nu, gap = horosphere(a, ideal, others)
    shrunk = tl.exp(-2.0 * a)
    hypot = tl.sqrt(norm * norm + shrunk)
    inverse = 1.0 / norm
    along = g_ideal * to_ideal + g_slide * to_slide + g_third * to_third + g_fourth * to_fourth
    along += factor * scale * (alpha * q + beta * R)
    turn = g_radius / hypot - along * inverse
    x_ideal = turn * to_ideal + g_ideal * inverse
    x_slide = turn * to_slide + g_slide * inverse
    x_third = turn * to_third + g_third * inverse
    x_fourth = turn * to_fourth + g_fourth * inverse
    alpha, beta = alpha * inverse, turn * factor * scale + beta * inverse
    g_t = nu * x_slide + (sh * slide + t * nu) * x_ideal
    g_nu = t * x_slide + 0.5 * t * t * x_ideal
    g_second = g_t
    x_slide += t * x_ideal
    if BOTH:
        g_second = nu * x_third + (sh * third + second * nu) * x_ideal
        g_nu += second * x_third + 0.5 * second * second * x_ideal
        x_third += second * x_ideal
    inner = x_ideal * ideal + x_slide * slide + x_third * third + x_fourth * fourth + scale * (alpha * q + beta * R)
    g_a = g_radius * norm / hypot + shrunk * (inner + g_nu * (gap - 2.0))
    g_gap = g_nu * sh
    chord = tl.where(ideal >= 0.0, g_gap, 0.0)
    return (
        g_a,
        sh * x_ideal + chord * ideal - g_gap,
        sh * x_slide + chord * slide,
        sh * x_third + chord * third,
        sh * x_fourth + chord * fourth,
        sh * alpha,
        sh * beta + chord * scale,
        g_t,
        g_second,
    )
