"""What the kernels compute for a tile of points, in Triton: the functions of `centre` and `shift`, row by row.

A tile is a [R] with u [R, PAD]; columns beyond the width are zero in every vector.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import asinh_of_root, expm1, scaled_cosh, scaled_sinh

ORIGIN = tl.constexpr(2.0**-60)


@triton.jit
def exp_capped(x):
    return tl.exp(tl.minimum(x, 80.0))


@triton.jit
def radius_of(x, s):
    """asinh(e^s x) and its slope by x, for x >= 0 and s >= 0 of any size."""
    grown = tl.exp(tl.minimum(s, 40.0))
    z = grown * x
    reach = tl.sqrt(x * x + tl.exp(-2.0 * s))
    close = s <= 40.0
    radius = tl.where(close, asinh_of_root(z * z), tl.maximum(s + tl.log(x + reach), 0.0))
    return radius, tl.where(close | (x == 0.0), grown / tl.sqrt(z * z + 1.0), 1.0 / reach)


@triton.jit
def polar(x, s, columns):
    """Radius, direction, length and slope of the space parts e^s x; zero is the origin."""
    norm = tl.sqrt(tl.sum(x * x, 1))
    zero = norm == 0.0
    radius, slope = radius_of(norm, s)
    axis = tl.where(zero[:, None] & (columns == 0)[None, :], 1.0, 0.0)
    direction = x / tl.where(zero, 1.0, norm)[:, None] + axis
    length = tl.where(zero, ORIGIN * tl.exp(-tl.minimum(s, 40.0)), norm)
    return tl.where(zero, ORIGIN, radius), direction, length, slope


@triton.jit
def polar_backward(direction, length, slope, grad_radius, grad):
    """Gradient of x."""
    along = tl.sum(grad * direction, 1)
    inverse = 1.0 / length
    return (grad_radius * slope - along * inverse)[:, None] * direction + grad * inverse[:, None]


@triton.jit
def centre(a, u, b, v):
    """u - v, y, S and the coefficients of the gradient, as in `centre.centre`."""
    gap = u - v[None, :]
    chi = 0.5 * tl.sum(gap * gap, 1)
    step = a - b
    length = tl.abs(step)
    s = tl.maximum(length, a + b + tl.log(0.5 * chi))
    near = tl.exp(length - s)
    grown = exp_capped(a - s)
    both = exp_capped(a + b - s)
    sh, ch = scaled_sinh(a), scaled_cosh(a)
    less = expm1(-b)
    bent = 0.5 * less * less * both
    kappa = tl.where(step < 0.0, -near, near) * scaled_sinh(length) - bent * sh * chi
    rise = near * scaled_cosh(length)
    kappa_a = rise - bent * ch * chi
    kappa_b = -rise - scaled_sinh(b) * both * sh * chi
    sinh = sh * grown
    y = sinh[:, None] * gap + kappa[:, None] * v[None, :]
    return gap, y, s, sinh, ch * grown, kappa, kappa_a, kappa_b, bent * sh


@triton.jit
def centre_backward(gap, sinh, cosh, kappa, kappa_a, kappa_b, turn, g, v):
    """Gradients of a, u, and in every row those of b and v, from that of y."""
    along = tl.sum(g * v[None, :], 1)
    tilt = (turn * along)[:, None] * gap
    to_a = cosh * tl.sum(g * gap, 1) + kappa_a * along
    return to_a, sinh[:, None] * g - tilt, kappa_b * along, (kappa - sinh)[:, None] * g + tilt


@triton.jit
def shift(c, e, r, w):
    """x, w + e and the coefficients of the gradient, as in `shift.shift`."""
    both = w + e[None, :]
    p = 0.5 * tl.sum(both * both, 1)
    near, far, back = -expm1(-c), tl.exp(-c), tl.exp(-2.0 * r)
    sh, ch = scaled_sinh(r), scaled_cosh(r)
    bend = 0.5 * near * near
    turn = bend * sh
    f = 0.5 * near * (far + back) + turn * p
    f_r = 0.5 * near * (far - back) + bend * ch * p
    f_c = 0.5 * (back + far * far) + scaled_sinh(c) * sh * p
    sinh = sh * far
    return sinh[:, None] * w + f[:, None] * e[None, :], both, sinh, ch * far, f, f_r, f_c, turn


@triton.jit
def shift_backward(both, sinh, cosh, f, f_r, f_c, turn, g, w, e):
    """Gradients of r, w, and in every row those of c and e, from that of x."""
    along = tl.sum(g * e[None, :], 1)
    tilt = (turn * along)[:, None] * both
    to_r = cosh * tl.sum(g * w, 1) + f_r * along
    return to_r, sinh[:, None] * g + tilt, f_c * along, f[:, None] * g + tilt


@triton.jit
def distance_backward(gap, y, s, sinh, cosh, kappa, kappa_a, kappa_b, turn, v):
    """`centre_backward` of the distance to the mean; 0 at the mean itself."""
    norm = tl.sqrt(tl.sum(y * y, 1))
    _, slope = radius_of(norm, s)
    pull = tl.where(norm > 0.0, slope / tl.where(norm > 0.0, norm, 1.0), 0.0)
    return centre_backward(gap, sinh, cosh, kappa, kappa_a, kappa_b, turn, pull[:, None] * y, v)
