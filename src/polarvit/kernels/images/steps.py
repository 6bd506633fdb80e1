"""The passes of a batch norm over the points of a batch, in plain PyTorch: the definition of the kernels.

Points are rows: a [rows], u [rows, n], in units of sqrt(k). A mean is (b [], v [n]), a bias (c [], e [n]).
"""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry.directions import norm_and_direction, norm_of, wide
from polarvit.geometry.scaled import ch, exp_capped, scaled_asinh_slope, scaled_asinh_value, sh
from polarvit.kernels.images.centre import centre, polar
from polarvit.kernels.images.scale import LARGEST, scaled_sinh
from polarvit.kernels.images.shift import shift
from polarvit.kernels.images.sums import Sums, centroid_logs, merged, radius_of_logs
from polarvit.kernels.images.sync import added, count, gather


def centroid_sums(a: Tensor, u: Tensor, largest: Tensor, t: Tensor, c: Tensor) -> Tensor:
    """Means of m, m |o|^2, e^(largest-a) and m o [n + 3] with m = sinh a e^-t, o = u - c; in float64."""
    mass, offset = wide(scaled_sinh(a, t)), wide(u) - wide(c)
    weighted = mass.unsqueeze(-1) * offset
    rest = torch.exp(wide(largest) - wide(a))
    means = [mass.mean(), (weighted * offset).sum(-1).mean(), rest.mean()]
    return torch.cat([torch.stack(means), weighted.mean(0)])


def centroid(a: Tensor, u: Tensor, largest: Tensor, t: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centroid (b, v) of the points of all processes, and |V|, ln(T - |V|), ln(T + |V|) after division by e^t, [3].

    One pass: with offsets o = u - c from the direction c of the farthest point, M2 = sum m |o|^2 - |sum m o|^2/P. That
    difference is taken in float64, of terms formed in float64, and equal directions give 0 exactly.
    """
    means = gather(centroid_sums(a, u, largest, t, c).unsqueeze(0)).mean(0)
    mass, square, rest, moment = means[0], means[1], means[2], means[3:]
    offset = moment / torch.where(mass > 0, mass, torch.ones_like(mass))
    spread = (square - mass * offset.square().sum()).clamp_min(0.0)
    length, v = norm_and_direction(wide(c) + offset)
    size = mass * length
    minus, plus = centroid_logs(size, spread / (1 + length), torch.log(rest) - wide(largest) - wide(t))
    b = radius_of_logs(size, minus, plus)
    return b.to(a.dtype), v.to(a.dtype), torch.stack([size, minus, plus]).to(a.dtype)


def remember(
    old: Tensor, spread: Tensor, b: Tensor, v: Tensor, s: Tensor, root: Tensor, momentum: float
) -> tuple[Tensor, Tensor]:
    """Running statistics with a batch let in: the mean r u [n] by a weighted centroid, the spread by an average."""
    norm, direction = norm_and_direction(old)
    points = (norm / root, direction), (b, v)
    t = torch.relu(torch.maximum(points[0][0], b) - LARGEST)
    one, two = (Sums(scaled_sinh(a, t), u, torch.zeros_like(a), -a) for a, u in points)
    a, u = merged(one, two, momentum).point(t)
    return root * a * u, torch.lerp(spread, root * s, momentum)


def shared_backward(
    sums: Tensor,
    slopes: Tensor,
    v: Tensor,
    f: Tensor,
    gain: Tensor,
    root: Tensor,
    s: Tensor,
    t: Tensor,
    facts: Tensor,
    eps: float,
    rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """From the sums of the first backward pass to `scalars` and g of the last, and the gradients of gain and root."""
    size, minus, plus = facts.unbind()
    fall = -sums[1] * f / (root * s + eps)
    weight = 1 / (rows * count())  # of a point in the statistics of all processes
    to_distance = weight * added(fall * root)
    to_mean = torch.cat([sums[:1], sums[3 : 3 + len(v)]]) + to_distance * slopes
    to_mean = weight * added(to_mean)
    g = to_mean[1:] - (to_mean[1:] * v).sum() * v
    g = torch.where(size > 0, g / torch.where(size > 0, size, torch.ones_like(size)), torch.zeros_like(g))
    scalars = torch.stack([to_distance, to_mean[0], t, plus, minus])
    return scalars, g, torch.stack([sums[1] * f / gain, fall * s])


def distance_sum(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Sum of the distances to the mean [1]."""
    seen = centre(a, u, b, v)
    return scaled_asinh_value(norm_of(seen.y).squeeze(-1), seen.s).sum().reshape(1)


def distance_slopes(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Derivative of that sum by b and v, [1 + n]."""
    _, _, to_b, to_v = _distance_backward(a, u, b, v)
    return torch.cat([to_b.reshape(1), to_v])


def _distance_backward(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    seen = centre(a, u, b, v)
    norm = norm_of(seen.y).squeeze(-1)
    safe = torch.where(norm > 0, norm, torch.ones_like(norm))
    pull = torch.where(norm > 0, scaled_asinh_slope(norm, seen.s) / safe, torch.zeros_like(norm))
    return seen.backward(pull.unsqueeze(-1) * seen.y, v)


def normalised(
    a: Tensor, u: Tensor, b: Tensor, v: Tensor, f: Tensor, c: Tensor, e: Tensor, relu: bool
) -> tuple[Tensor, Tensor]:
    """bias (+) (f (x) ((-mean) (+) x)); with `relu`, that of the space part."""
    seen = centre(a, u, b, v)
    delta, w, _, _ = polar(seen.y, seen.s)
    x = shift(c, e, f * delta, w).x
    radius, direction, _, _ = polar(torch.relu(x) if relu else x, f * delta + c)
    return radius, direction


def normalised_backward(
    a: Tensor,
    u: Tensor,
    b: Tensor,
    v: Tensor,
    f: Tensor,
    c: Tensor,
    e: Tensor,
    grad_radius: Tensor,
    grad_direction: Tensor,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a and u, and in one vector [3 + 2n] those of b, f, c, v and e."""
    seen = centre(a, u, b, v)
    inner = polar(seen.y, seen.s)
    delta, w = inner.radius, inner.direction
    moved = shift(c, e, f * delta, w)
    g = polar(torch.relu(moved.x) if relu else moved.x, f * delta + c).backward(grad_radius, grad_direction)
    if relu:
        g = torch.where(moved.x > 0, g, torch.zeros_like(g))
    to_r, to_w, to_c, to_e = moved.backward(g, w, e)
    to_a, to_u, to_b, to_v = seen.backward(inner.backward(f * to_r, to_w), v)
    return to_a, to_u, torch.cat([torch.stack([to_b, (to_r * delta).sum(), to_c]), to_v, to_e])


def statistics_backward(
    a: Tensor, u: Tensor, b: Tensor, v: Tensor, scalars: Tensor, g: Tensor, to_a: Tensor, to_u: Tensor
) -> tuple[Tensor, Tensor]:
    """`to_a` and `to_u` with what reaches the points through the mean distance and through the centroid added.

    `scalars` are the gradients of one distance and of b (times the weight of a point), t, ln(T+|V|) and ln(E+S), the
    last two after division by e^t; g [n] is the gradient of v across v, times the weight, over |V| e^-t.
    """
    to_distance, to_b, t, plus, minus = scalars.unbind()
    by_a, by_u, _, _ = _distance_backward(a, u, b, v)
    gap = u - v
    chi = 0.5 * gap.square().sum(-1)
    grown = exp_capped(a - t)
    up, over, under = exp_capped(a - t - plus), exp_capped(a - t - minus), exp_capped(-a - t - minus)
    sinh, cosh = sh(a), ch(a)
    sideways = cosh * grown * (gap * g).sum(-1)
    by_centroid = 0.5 * to_b * (up * (1 - cosh * chi) + under - cosh * chi * over) + sideways
    pull = 0.5 * to_b * sinh * (up + over)
    turned = (pull * (chi - 1)).unsqueeze(-1) * gap + (pull * chi).unsqueeze(-1) * v + (sinh * grown).unsqueeze(-1) * g
    return to_a + to_distance * by_a + by_centroid, to_u + to_distance * by_u + turned
