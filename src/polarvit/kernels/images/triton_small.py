"""What lies between the passes of a batch norm: a few numbers and vectors [n], each step one small program."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import triton
import triton.language as tl

TINY = tl.constexpr(1e-300)


@triton.jit
def log_sum(x, y):
    """ln(e^x + e^y) in float64."""
    large = tl.maximum(x, y)
    return large + tl.log(1.0 + tl.exp(tl.minimum(x, y) - large))


@triton.jit
def centroid_point(mass, mean, spread, log_e, columns):
    """b, v, |V|, ln(T - |V|) and ln(T + |V|) from the sums of a centroid in float64, as in `sums.Sums.point`."""
    length = tl.sqrt(tl.sum(mean * mean, 0))
    v = mean / tl.where(length == 0.0, 1.0, length) + tl.where(columns == 0, tl.where(length == 0.0, 1.0, 0.0), 0.0)
    size = mass * length
    gap = spread / (1.0 + length)
    minus = tl.where(gap > TINY, log_sum(tl.log(tl.maximum(gap, TINY)), log_e), log_e)
    plus = tl.where(size > TINY, log_sum(tl.log(tl.maximum(2.0 * size, TINY)), minus), minus)
    far = 0.5 * (plus - minus)
    x = size * tl.exp(tl.minimum(-0.5 * (plus + minus), 350.0))
    small = x - x * x * x / 6.0
    near = tl.where(x < 1e-3, small, tl.log(x + tl.sqrt(x * x + 1.0)))
    return tl.where(far < 1.0, near, far), v, size, minus, plus


@triton.jit
def centroid_kernel(means, largest, scale, centre, out_b, out_v, facts, WIDTH: tl.constexpr, PAD: tl.constexpr):
    """The centroid from the means of `centroid_sums`; |V|, ln(T - |V|), ln(T + |V|) into `facts`."""
    columns = tl.arange(0, PAD)
    inside = columns < WIDTH
    mass, square, rest = tl.load(means), tl.load(means + 1), tl.load(means + 2)
    moment = tl.load(means + 3 + columns, mask=inside, other=0.0)
    c = tl.load(centre + columns, mask=inside, other=0.0).to(tl.float64)
    offset = moment / tl.where(mass > 0.0, mass, 1.0)
    spread = tl.maximum(square - mass * tl.sum(offset * offset, 0), 0.0)
    log_e = tl.log(rest) - tl.load(largest).to(tl.float64) - tl.load(scale).to(tl.float64)
    b, v, size, minus, plus = centroid_point(mass, c + offset, spread, log_e, columns)
    tl.store(out_b, b.to(tl.float32))
    tl.store(out_v + columns, v.to(tl.float32), mask=inside)
    tl.store(facts, size.to(tl.float32))
    tl.store(facts + 1, minus.to(tl.float32))
    tl.store(facts + 2, plus.to(tl.float32))


@triton.jit
def remember_kernel(
    old_mean, old_spread, b_in, v_in, s_in, root_in, new_mean, new_spread, momentum,
    WIDTH: tl.constexpr, PAD: tl.constexpr,
):  # fmt: skip
    """Running statistics with a batch let in: the mean r u by a weighted centroid, the spread by an average."""
    columns = tl.arange(0, PAD)
    inside = columns < WIDTH
    root, b = tl.load(root_in).to(tl.float64), tl.load(b_in).to(tl.float64)
    v = tl.load(v_in + columns, mask=inside, other=0.0).to(tl.float64)
    x = tl.load(old_mean + columns, mask=inside, other=0.0).to(tl.float64)
    norm = tl.sqrt(tl.sum(x * x, 0))
    u = x / tl.where(norm == 0.0, 1.0, norm) + tl.where(columns == 0, tl.where(norm == 0.0, 1.0, 0.0), 0.0)
    a = norm / root
    t = tl.maximum(tl.maximum(a, b) - 40.0, 0.0)
    one = (1.0 - momentum) * 0.5 * (tl.exp(a - t) - tl.exp(-a - t))
    two = momentum * 0.5 * (tl.exp(b - t) - tl.exp(-b - t))
    mass = one + two
    part = two / tl.where(mass > 0.0, mass, 1.0)
    apart = v - u
    spread = one * part * tl.sum(apart * apart, 0)
    log_e = tl.log((1.0 - momentum) * tl.exp(-a) + momentum * tl.exp(-b)) - t
    radius, direction, _, _, _ = centroid_point(mass, u + part * apart, spread, log_e, columns)
    tl.store(new_mean + columns, (root * radius * direction).to(tl.float32), mask=inside)
    before = tl.load(old_spread)
    tl.store(new_spread, before + momentum * (tl.load(s_in) * tl.load(root_in) - before))


@triton.jit
def shared_backward_kernel(
    sums, slopes, v_in, f_in, gain_in, root_in, s_in, scale, facts, scalars, out_g, tail, eps, weight,
    WIDTH: tl.constexpr, PAD: tl.constexpr,
):  # fmt: skip
    """From the sums of the first backward pass to what the last one needs, and the gradients of gain and root."""
    columns = tl.arange(0, PAD)
    inside = columns < WIDTH
    f, root, s = tl.load(f_in), tl.load(root_in), tl.load(s_in)
    size, minus, plus = tl.load(facts), tl.load(facts + 1), tl.load(facts + 2)
    v = tl.load(v_in + columns, mask=inside, other=0.0)
    to_f = tl.load(sums + 1)
    fall = -to_f * f / (root * s + eps)
    to_distance = weight * fall * root
    to_b = weight * (tl.load(sums) + to_distance * tl.load(slopes))
    to_v = tl.load(sums + 3 + columns, mask=inside, other=0.0)
    to_v = weight * (to_v + to_distance * tl.load(slopes + 1 + columns, mask=inside, other=0.0))
    g = to_v - tl.sum(to_v * v, 0) * v
    g = tl.where(size > 0.0, g / tl.where(size > 0.0, size, 1.0), 0.0)
    tl.store(scalars, to_distance)
    tl.store(scalars + 1, to_b)
    tl.store(scalars + 2, tl.load(scale))
    tl.store(scalars + 3, plus)
    tl.store(scalars + 4, minus)
    tl.store(out_g + columns, g, mask=inside)
    tl.store(tail, to_f * f / tl.load(gain_in))
    tl.store(tail + 1, fall * s)
