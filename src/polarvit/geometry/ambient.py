"""The same operations in ambient arithmetic, as published models compute them: the baseline that fails.

Points are one tensor [..., n+1], time first, on the hyperboloid <x, x> = -k; tangent vectors likewise. Formulas are
the textbook ones. Floors are those of published code (1e-8 under the centroid's root, 0 under other roots), so that
a failure looks as it does in practice: a wrong point, silently, or NaN. Use this to compare, never to train.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

FLOOR = 1e-8
"""The clamp of published centroids under |<v, v>|."""


def inner(x: Tensor, y: Tensor) -> Tensor:
    """Lorentzian inner product -x_0 y_0 + x_s . y_s, [...]."""
    product = x * y
    return product[..., 1:].sum(-1) - product[..., 0]


def from_space(x: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """Space coordinates to the hyperboloid: the time coordinate is recomputed as sqrt(k + |x|^2)."""
    return torch.cat([torch.sqrt(k + x.square().sum(-1, keepdim=True)), x], -1)


def to_space(x: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """Drop the time coordinate."""
    return x[..., 1:]


def origin(n: int, *, k: float | Tensor = 1.0, like: Tensor) -> Tensor:
    """(sqrt(k), 0, ..., 0), [n+1]."""
    return from_space(like.new_zeros(n), k=k)


def from_tangent0(v: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """Exponential map at the origin of v [..., n]."""
    root = _root(k, v)
    norm = v.norm(dim=-1, keepdim=True)
    a = norm / root
    return torch.cat([root * torch.cosh(a), root * torch.sinh(a) * v / torch.where(norm > 0, norm, 1.0)], -1)


def to_tangent0(x: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """Logarithmic map at the origin, [..., n]."""
    root = _root(k, x)
    space = x[..., 1:]
    norm = space.norm(dim=-1, keepdim=True)
    return root * torch.acosh((x[..., :1] / root).clamp_min(1.0)) * space / torch.where(norm > 0, norm, 1.0)


def to_ball(x: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """Stereographic projection to the Poincare ball of radius sqrt(k)."""
    root = _root(k, x)
    return root * x[..., 1:] / (root + x[..., :1])


def from_ball(y: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """Inverse stereographic projection."""
    root, square = _root(k, y), y.square().sum(-1, keepdim=True)
    return torch.cat([root * (k + square), 2 * k * y], -1) / (k - square)


def to_klein(x: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """Space over time."""
    return x[..., 1:] / x[..., :1]


def distance(x: Tensor, y: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """sqrt(k) arcosh(-<x, y>/k)."""
    return _root(k, x) * torch.acosh(-inner(x, y) / k)


def squared_distance(x: Tensor, y: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """The squared Lorentzian distance -2k - 2<x, y> = 2k (cosh(d/sqrt k) - 1) that attention models use for d^2."""
    return -2 * k - 2 * inner(x, y)


def pairwise_distance(x: Tensor, y: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """Distances of all pairs [..., N, n+1] x [..., M, n+1] -> [..., N, M]; the inner products are one product."""
    flipped = torch.cat([-y[..., :1], y[..., 1:]], -1)
    return _root(k, x) * torch.acosh(-(x @ flipped.mT) / k)


def centroid(points: Tensor, weights: Tensor | None = None, *, k: float | Tensor = 1.0) -> Tensor:
    """sqrt(k) sum w x / | sum w x |_L for points [..., M, n+1] and weights [..., M] or [..., N, M].

    Weights make it a matrix product, without them it is a mean, which TF32 does not touch.
    """
    single = weights is None or weights.ndim == points.ndim - 1
    if weights is None:
        mean = points.mean(-2, keepdim=True)
    else:
        mean = (weights.unsqueeze(-2) if single else weights) @ points
    mean = _root(k, points) * mean / inner(mean, mean).abs().clamp_min(FLOOR).sqrt().unsqueeze(-1)
    return mean.squeeze(-2) if single else mean


def tangent_inner(xi: Tensor, zeta: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """<xi, zeta>, a difference of large numbers far out."""
    return inner(xi, zeta)


def riemannian_gradient(x: Tensor, gradient: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """Minkowski-raised Euclidean gradient projected onto the tangent space at x."""
    raised = torch.cat([-gradient[..., :1], gradient[..., 1:]], -1)
    return raised + inner(x, raised).unsqueeze(-1) * x / k


def exp_map(x: Tensor, xi: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """cosh(w) x + sinh(w)/w xi with w = |xi|_L / sqrt(k)."""
    w = (inner(xi, xi).clamp_min(0.0).sqrt() / _root(k, x)).unsqueeze(-1)
    return torch.cosh(w) * x + torch.where(w > 0, torch.sinh(w) / torch.where(w > 0, w, 1.0), 1.0) * xi


def log_map(x: Tensor, y: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """d (y + <x, y> x/k) / |.|_L."""
    towards = y + inner(x, y).unsqueeze(-1) * x / k
    norm = inner(towards, towards).clamp_min(0.0).sqrt().unsqueeze(-1)
    return distance(x, y, k=k).unsqueeze(-1) * towards / torch.where(norm > 0, norm, 1.0)


def transport(x: Tensor, y: Tensor, xi: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """xi + <y, xi> (x + y)/(k - <x, y>)."""
    return xi + (inner(y, xi) / (k - inner(x, y))).unsqueeze(-1) * (x + y)


def gyroadd(x: Tensor, y: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """exp_x(PT_o->x(log_o y)), one operation after the other."""
    lifted = torch.nn.functional.pad(to_tangent0(y, k=k), (1, 0))
    start = origin(x.shape[-1] - 1, k=k, like=x).expand_as(x)
    return exp_map(x, transport(start, x, lifted, k=k), k=k)


def gyroneg(x: Tensor, *, k: float | Tensor = 1.0) -> Tensor:
    """(x_0, -x_s)."""
    return torch.cat([x[..., :1], -x[..., 1:]], -1)


def gyroscale(x: Tensor, t: Tensor | float, *, k: float | Tensor = 1.0) -> Tensor:
    """exp_o(t log_o x)."""
    factor = t.unsqueeze(-1) if isinstance(t, Tensor) else t
    return from_tangent0(factor * to_tangent0(x, k=k), k=k)


def horoshift(x: Tensor, t: Tensor | float, *, axes: tuple[int, int] = (0, 1), k: float | Tensor = 1.0) -> Tensor:
    """x_s += t nu, x_0 and x_i += t x_s + t^2 nu/2 with nu = x_0 - x_i subtracted."""
    ideal, slide = axes[0] + 1, axes[1] + 1
    nu = x[..., 0] - x[..., ideal]
    lift = t * x[..., slide] + 0.5 * t * t * nu
    return _add_columns(x, {0: lift, ideal: lift, slide: t * nu})


def boost(x: Tensor, t: Tensor | float, *, axis: int = 0, k: float | Tensor = 1.0) -> Tensor:
    """x_0, x_i <- cosh t x_0 + sinh t x_i, sinh t x_0 + cosh t x_i."""
    t = torch.as_tensor(t, dtype=x.dtype, device=x.device)
    time, space = x[..., 0], x[..., axis + 1]
    cosh, sinh = torch.cosh(t), torch.sinh(t)
    return _add_columns(x, {0: (cosh - 1) * time + sinh * space, axis + 1: sinh * time + (cosh - 1) * space})


def rotate(x: Tensor, t: Tensor | float, *, axes: tuple[int, int] = (0, 1), k: float | Tensor = 1.0) -> Tensor:
    """Rotation of two space axes; the time coordinate is kept."""
    t = torch.as_tensor(t, dtype=x.dtype, device=x.device)
    i, j = axes[0] + 1, axes[1] + 1
    cosine, sine = torch.cos(t), torch.sin(t)
    first, second = x[..., i], x[..., j]
    return _add_columns(x, {i: (cosine - 1) * first - sine * second, j: sine * first + (cosine - 1) * second})


def busemann(x: Tensor, *, axis: int = 0, k: float | Tensor = 1.0) -> Tensor:
    """sqrt(k) ln((x_0 - x_i)/sqrt(k))."""
    root = _root(k, x)
    return root * torch.log((x[..., 0] - x[..., axis + 1]) / root)


def concat(points: Sequence[Tensor], *, k: float | Tensor = 1.0) -> Tensor:
    """Direct concatenation: t = sqrt(sum t_i^2 - (N-1) k), space parts side by side."""
    time = torch.stack([x[..., 0].square() for x in points]).sum(0) - (len(points) - 1) * k
    return torch.cat([time.sqrt().unsqueeze(-1), *(x[..., 1:] for x in points)], -1)


def split(x: Tensor, sections: int, *, k: float | Tensor = 1.0) -> tuple[Tensor, ...]:
    """Cut the space part into equal slices and recompute each time coordinate."""
    return tuple(from_space(part, k=k) for part in x[..., 1:].chunk(sections, -1))


def _root(k: float | Tensor, like: Tensor) -> float | Tensor:
    """sqrt(k); a number stays one, so that nothing is copied to a device and a CUDA graph can be captured."""
    return k.to(dtype=like.dtype, device=like.device).sqrt() if isinstance(k, Tensor) else math.sqrt(k)


def _add_columns(x: Tensor, changes: dict[int, Tensor]) -> Tensor:
    batch = torch.broadcast_shapes(x.shape[:-1], *(change.shape for change in changes.values()))
    columns = list(x.expand(*batch, -1).unbind(-1))
    for index, change in changes.items():
        columns[index] = columns[index] + change
    return torch.stack(columns, -1)
