"""The three one-parameter groups of isometries, and the Busemann function.

A rotation turns two space axes, a boost mixes time with a space axis, and a horospherical shift slides every
horosphere around an ideal point along itself. How far each moves a point (corrected laws; a = r/sqrt(k)):

    rotation   cosh(d/sqrt k) = 1 + sinh^2 a (u_i^2 + u_j^2)(1 - cos t)            bounded in t
    boost      sinh(d/2 sqrt k) = sinh(|t|/2) sqrt(1 + sinh^2 a (1 - u_1^2))       linear in t
    horoshift  sinh(d/2 sqrt k) = |t| nu / 2 sqrt k                                logarithmic in t
"""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry.directions import axis_vector, chord, scaled_polar
from polarvit.geometry.door import as_step, geometric, need_axes, need_broadcast, need_point
from polarvit.geometry.gyro import add
from polarvit.geometry.points import PolarPoint
from polarvit.geometry.scaled import rescale, restore, sh


def _gap(u: Tensor, axis: int) -> Tensor:
    """1 - u_axis, by the chord where it would cancel."""
    ideal = axis_vector(axis, u)
    return torch.where(u[..., axis] >= 0, chord(u, ideal), 1 - u[..., axis])


@geometric
def horoshift(
    p: PolarPoint, t: Tensor | float, *, axes: tuple[int, ...] = (0, 1), k: float | Tensor = 1.0
) -> PolarPoint:
    """Slide along horospheres around the ideal point e_0 + e_axes[0], by `t` along the other axes.

    With nu = x_0 - x_i (kept), x_s += t_s nu and x_0, x_i += sum t_s x_s + 1/2 |t|^2 nu. One slide axis takes t [...];
    `axes=(i, s1, s2, ...)` takes t [..., number of slide axes] and is exact in all of them, because shifts around one
    ideal point commute. A group: horoshift(horoshift(p, s), t) = horoshift(p, s + t), inverse -t.
    """
    need_point("horoshift", "p", p)
    ideal, *slides = need_axes("horoshift", axes, p.dim, 2)
    t = as_step("horoshift", t, p.radius)
    if len(slides) == 1:
        t = t.unsqueeze(-1)
    elif t.ndim == 0 or t.shape[-1] != len(slides):
        raise ValueError(
            f"horoshift: t must have shape [..., {len(slides)}] for axes {tuple(axes)}, got {list(t.shape)}"
        )
    need_broadcast("horoshift", p.shape, t.shape[:-1], ("p", "t"))
    # A shift past 1e9 is divided by its square as well; below that the factor is 1.
    huge = t.detach().abs().amax(-1)
    unit = torch.where(huge > 1e9, huge, torch.ones_like(huge))
    t = t / unit.unsqueeze(-1)

    a, u = rescale(p.radius, k), p.direction
    shrink = (1 / unit) / unit
    nu = torch.exp(-2 * a) + sh(a) * _gap(u, ideal)
    lift = torch.zeros_like(nu)
    move = torch.zeros_like(u)
    for index, axis in enumerate(slides):
        step = t[..., index]
        lift = lift + step * (sh(a) * u[..., axis] / unit + 0.5 * step * nu)
        move = move + (step * nu / unit).unsqueeze(-1) * axis_vector(axis, u)
    space = (sh(a) * shrink).unsqueeze(-1) * u + move + lift.unsqueeze(-1) * axis_vector(ideal, u)
    radius, direction = scaled_polar(space, a + 2 * torch.log(unit))
    return PolarPoint(restore(radius, k), direction)


@geometric
def boost(p: PolarPoint, t: Tensor | float, *, axis: int = 0, k: float | Tensor = 1.0) -> PolarPoint:
    """Lorentz boost of rapidity `t` [...] along a space axis: x_0, x_i <- cosh t, sinh t mixed; inverse -t.

    It carries the origin to distance sqrt(k)|t| along the axis, so it is gyroaddition of that point from the left.
    """
    need_point("boost", "p", p)
    (axis,) = need_axes("boost", (axis,), p.dim, 1)
    t = as_step("boost", t, p.radius)
    need_broadcast("boost", p.shape, t.shape, ("p", "t"))
    sign = torch.where(t < 0, -torch.ones_like(t), torch.ones_like(t))
    goal = sign.unsqueeze(-1) * axis_vector(axis, p.direction)
    radius, direction = add(t * sign, goal, rescale(p.radius, k), p.direction)
    return PolarPoint(restore(radius, k), direction)


@geometric
def rotate(p: PolarPoint, t: Tensor | float, *, axes: tuple[int, int] = (0, 1), k: float | Tensor = 1.0) -> PolarPoint:
    """Rotation by the angle `t` [...] in the plane of two space axes, from the first towards the second."""
    need_point("rotate", "p", p)
    checked = need_axes("rotate", axes, p.dim, 2)
    if len(checked) != 2:
        raise ValueError(f"rotate: axes must be 2 distinct space axes, got {tuple(axes)}")
    t = as_step("rotate", t, p.radius)
    need_broadcast("rotate", p.shape, t.shape, ("p", "t"))
    i, j = checked
    u = p.direction
    cosine, sine = torch.cos(t), torch.sin(t)
    first = (cosine - 1) * u[..., i] - sine * u[..., j]
    second = sine * u[..., i] + (cosine - 1) * u[..., j]
    turned = u + first.unsqueeze(-1) * axis_vector(i, u) + second.unsqueeze(-1) * axis_vector(j, u)
    return PolarPoint(p.radius.expand(turned.shape[:-1]), turned)


@geometric
def busemann(p: PolarPoint, *, axis: int = 0, k: float | Tensor = 1.0) -> Tensor:
    """Busemann function towards the ideal point e_0 + e_axis: sqrt(k) ln(nu/sqrt(k)), [...].

    0 at the origin, -r along the axis, +r opposite to it; the usual sign (the paper has the other one).
    """
    need_point("busemann", "p", p)
    (axis,) = need_axes("busemann", (axis,), p.dim, 1)
    a = rescale(p.radius, k)
    side = sh(a) * _gap(p.direction, axis)
    some = side > 0
    near = -a + torch.log1p(side * torch.exp(2 * a.clamp_max(40.0)))
    far = a + torch.log(torch.where(some, side, torch.ones_like(side)) + torch.exp(-2 * a))
    return restore(torch.where(a <= 40, near, torch.where(some, far, -a)), k)
