"""What the norm's kernels compute for one token at a time: gyroaddition as scalars, and the centroid's radius.

(a, x) (+) (b, y) has the space part R x + Q t with t = y - (y.x)x. Of the two unit vectors only cos = x.y,
P = 1 + cos = 1/2|x + y|^2 and |t|^2 enter R, Q and the length N of the result:

    R = sinh a cosh b + cosh a sinh b cos = sinh(a-b) + cosh a sinh b P,   Q = sinh b,   N^2 = R^2 + Q^2 |t|^2.

Everything carries a factor e^-S, as in `geometry.gyro.frame_components`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

from polarvit.kernels.attention.elementary import cosh, expm1, log1p, scaled_cosh, scaled_sinh, sinh

ORIGIN = tl.constexpr(2.0**-60)
SMALLEST = tl.constexpr(1.1754944e-38)
HIGHEST = tl.constexpr(80.0)
LARGEST_SLOPE = tl.constexpr(1e25)


@triton.jit
def thread_a_row(x):
    """The same numbers, laid out with a row to a thread; and back, where a tile takes them next.

    Sums over columns leave every row in eight threads or more, which would all go through its chain of scalars. A
    gather, as the compiler would undo a mere change of layout, or go through the chain in both.
    """
    return tl.gather(x, tl.arange(0, x.shape[0]), 0)


@triton.jit
def capped(x):
    return tl.exp(tl.minimum(x, HIGHEST))


@triton.jit
def held(x):
    """Slopes grow like e^(2a) and mean nothing past a = 17; beyond 28 they stop growing, so that no sum overflows."""
    return tl.minimum(tl.maximum(x, -LARGEST_SLOPE), LARGEST_SLOPE)


@triton.jit
def asinh_series(x):
    """arsinh x for 0 <= x <= 1/2, down to numbers whose square is none (the polynomial of `asinh_of_root`)."""
    square = x * x
    series = 0.028076207874594025 - square * 0.013099914532999208
    series = -0.04436184388877733 + square * series
    series = 0.07498412604260289 + square * series
    series = -0.16666633460773211 + square * series
    return x + x * (square * series)


@triton.jit
def asinh(x):
    """arsinh x for x >= 0."""
    return tl.where(x < 0.5, asinh_series(x), tl.log(x + tl.sqrt(1.0 + x * x)))


@triton.jit
def logaddexp(x, y):
    """ln(e^x + e^y), one of them finite."""
    return tl.maximum(x, y) + log1p(tl.exp(-tl.abs(x - y)))


@triton.jit
def frame(a, b, gap, cosine):
    """e^-S times R, Q, cosh b, dR/db, (cosh a - 1) sinh b and R - Q cos; then S. `gap` is P = 1 + cos.

    S is the larger radius while the smaller is at most 40, else the exponent of the larger term of R. `a` is one number
    for all tokens: where it is at most 40, so is the smaller radius of each.
    """
    everywhere_near = a <= 40.0
    a = a + tl.zeros_like(b)
    outward, wide = a >= b, gap >= 0.5
    large, small = tl.maximum(a, b), tl.minimum(a, b)
    n = tl.minimum(small, 40.0)
    sinh_n, cosh_n, sinh_l, cosh_l = sinh(n), cosh(n), scaled_sinh(large), scaled_cosh(large)
    shrink, delta = tl.exp(-n), large - small
    cosh_sinh = tl.where(outward, cosh_l * sinh_n, cosh_n * sinh_l)
    sinh_cosh = tl.where(outward, cosh_n * sinh_l, cosh_l * sinh_n)
    radial = shrink * scaled_sinh(delta)
    radial = tl.where(outward, radial, -radial)
    r = tl.where(wide, sinh_cosh + cosh_sinh * cosine, radial + cosh_sinh * gap)
    q = tl.where(outward, sinh_n * tl.exp(-large), sinh_l)
    cosh_b = tl.where(outward, cosh_n * tl.exp(-large), cosh_l)
    slope = cosh_n * cosh_l
    slope = tl.where(wide, sinh_n * sinh_l + slope * cosine, slope * gap - shrink * scaled_cosh(delta))
    half, fall = sinh(0.5 * n), expm1(-large)
    lift = tl.where(outward, 0.5 * sinh_n * fall * fall, 2.0 * sinh_l * half * half)
    s = large
    if not everywhere_near:
        far = small > 40.0
        s = tl.where(far, tl.maximum(delta, a + b + tl.log(0.5 * gap)), s)
        growth = tl.where(far, capped(a + b - s), 0.0)
        fall = tl.where(far, tl.exp(delta - s), 0.0)
        sinh_a, cosh_a, sinh_b, cosh_far = scaled_sinh(a), scaled_cosh(a), scaled_sinh(b), scaled_cosh(b)
        radial = scaled_sinh(delta) * fall
        radial = tl.where(outward, radial, -radial) + cosh_a * sinh_b * (gap * growth)
        r = tl.where(far, tl.where(wide, (sinh_a * cosh_far + cosh_a * sinh_b * cosine) * growth, radial), r)
        q = tl.where(far, sinh_b * capped(b - s), q)
        cosh_b = tl.where(far, cosh_far * capped(b - s), cosh_b)
        radial = cosh_a * cosh_far * (gap * growth) - scaled_cosh(delta) * fall
        radial = tl.where(wide, (sinh_a * sinh_b + cosh_a * cosh_far * cosine) * growth, radial)
        slope = tl.where(far, radial, slope)
        lift = tl.where(far, (cosh_a - tl.exp(-a)) * sinh_b * growth, lift)
    # The first form cancels for large a, the second for small.
    turn = tl.where(a < 1.0, sinh_cosh + lift * cosine, r - q * cosine)
    return r, q, cosh_b, slope, lift, turn, s


@triton.jit
def landed(r, q, sine2, s):
    """R, N, hypot(N, e^-S), the radius asinh(e^S N) and whether N is 0, for R, Q and |t|^2.

    N = 0 is the origin, an ordinary point: it takes the direction x and the radius 2^-60, and gives its true gradient.
    """
    side = q * tl.sqrt(sine2)
    size = tl.maximum(tl.abs(r), side)
    inverse = 1.0 / tl.where(size > 0.0, size, 1.0)
    n = size * tl.sqrt((r * inverse) * (r * inverse) + (side * inverse) * (side * inverse))
    zero = n == 0.0
    tiny = ORIGIN * tl.exp(-tl.minimum(s, 40.0))
    away = tl.exp(-s)
    cosh_c = tl.sqrt(n * n + away * away)
    far = tl.maximum(s + tl.log(n + tl.maximum(n, cosh_c)), 0.0)
    near = tl.exp(tl.minimum(s, 40.0)) * n
    radius = tl.where((s <= 40.0) & (near < 0.5), asinh_series(near), far)
    cosh_c = tl.maximum(cosh_c, tl.exp(-tl.minimum(s, 80.0)))
    return tl.where(zero, tiny, r), tl.where(zero, tiny, n), cosh_c, tl.where(zero, ORIGIN, radius), zero


@triton.jit
def pulled_back(r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, by_radius, by_x, by_t, ACROSS: tl.constexpr):
    """Gradients of (a, x) (+) (b, y) for upstream g of the direction, given g.x and g.t, and `by_radius` of the radius.

    ACROSS says that g is perpendicular to the direction of the result already.

    Returns d/da, d/db and the coefficients rho, kappa, lambda of

        d/dy = rho g + lambda x (made perpendicular to y),   d/dx = kappa g + lambda t (made perpendicular to x).
    """
    cos_o, sin_o, kappa = r / n, held(q / n), held(turn / n)
    out = held((cos_o * by_t - (sin_o * sine2) * by_x) / n)
    radial = held(by_radius / cosh_c)
    space_x = held(radial * cos_o - sin_o * out)
    space_t = held(radial * (sin_o * sine2) + cos_o * out)
    eta = radial
    if not ACROSS:
        eta = held(radial - (cos_o * by_x + sin_o * by_t) / n)
    by_b = held(space_x * slope) + held(cosh_b * space_t)
    bend = held(held(q * kappa) * eta) + held(lift * space_x)
    return held(space_x * cosh_c), held(by_b), sin_o, kappa, held(bend)


@triton.jit
def centroid_radius(mass, length, spread, radial, highest, lowest):
    """a_mu, ln(T+|V|), ln(E+S) and |V|, the last three over e^highest (docs/numerics.md; equal weights).

    `mass` is the sum of sinh a over e^highest, `radial` that of e^(lowest - a), `spread` M2 over e^highest.
    """
    size = mass * length
    log_minus = logaddexp(tl.log(spread / (1.0 + length)), tl.log(radial) - highest - lowest)
    log_plus = logaddexp(tl.log(2.0 * size), log_minus)
    far = 0.5 * (log_plus - log_minus)
    near = asinh(size * capped(-0.5 * (log_minus + log_plus)))
    return tl.where(far < 1.0, near, far), log_plus, log_minus, size


@triton.jit
def store_centroid(stats, mean_radius, log_plus, log_minus, size, length, highest):
    """What backward asks of a sample's centroid; places 5 and 7 are for the length of the bias and the variance."""
    tl.store(stats, mean_radius)
    tl.store(stats + 1, log_plus)
    tl.store(stats + 2, log_minus)
    tl.store(stats + 3, size)
    tl.store(stats + 4, length)
    tl.store(stats + 6, highest)


@triton.jit
def centred_rows(mean_radius, radius, chord, overlap):
    """The centred tokens (-mean) (+) x: what gyroaddition made of them, their radii and their directions.

    The last two numbers are the coefficients of u - uhat and of uhat in the centred token's direction. `overlap` is
    (u - uhat).uhat, which is -chord but for rounding: with it t is perpendicular to uhat to the last bit, and the
    direction of a token close to the mean comes out with length 1.
    """
    r, q, cosh_b, slope, lift, turn, s = frame(mean_radius, radius, chord, -1.0 - overlap)
    sine2 = tl.maximum(2.0 * chord - overlap * overlap, 0.0)
    r, n, cosh_c, centred, zero = landed(r, q, sine2, s)
    turned = sine2 > 0.0
    alpha = tl.where(turned, q / n, 0.0)
    beta = -(r / n + alpha * overlap)
    return r, q, cosh_b, slope, lift, turn, n, cosh_c, sine2, zero, centred, alpha, beta
