"""Geometry in 60 to 80 digits, by the textbook formulas in ambient coordinates: the truth that tests compare with.

A stored point means the exact point of its radius and its (renormalised) direction, so rounding of the inputs is
not held against an operation.
"""

from __future__ import annotations

import mpmath as mp
import torch

from polarvit.geometry import PolarPoint, PolarTangent

mp.mp.dps = 80
Vector = list


def numbers(x: torch.Tensor) -> list:
    """Exact values of a float tensor."""
    return [mp.mpf(float(value)) for value in x.reshape(-1).double()]


class Exact:
    """The Lorentz model of curvature -1/k in high precision."""

    def __init__(self, k: float) -> None:
        self.k = mp.mpf(k)
        self.s = mp.sqrt(self.k)

    def direction(self, u: torch.Tensor) -> Vector:
        values = numbers(u)
        norm = mp.sqrt(mp.fdot(values, values))
        return [value / norm for value in values]

    def point(self, r: torch.Tensor, u: torch.Tensor) -> Vector:
        a, unit = mp.mpf(float(r)) / self.s, self.direction(u)
        return [self.s * mp.cosh(a)] + [self.s * mp.sinh(a) * value for value in unit]

    def points(self, p: PolarPoint) -> list[Vector]:
        return [self.point(r, u) for r, u in zip(p.radius, p.direction, strict=True)]

    @staticmethod
    def inner(x: Vector, y: Vector):
        return mp.fdot(x[1:], y[1:]) - x[0] * y[0]

    def distance(self, x: Vector, y: Vector):
        difference = [a - b for a, b in zip(x, y, strict=True)]
        square = max(self.inner(difference, difference), mp.mpf(0))  # = 4k sinh^2(d/2s)
        return 2 * self.s * mp.asinh(mp.sqrt(square) / (2 * self.s))

    def radius(self, x: Vector):
        return self.s * mp.asinh(mp.sqrt(mp.fdot(x[1:], x[1:])) / self.s)

    def onto(self, x: Vector) -> Vector:
        """Scale a time-like vector onto the sheet."""
        factor = self.s / mp.sqrt(-self.inner(x, x))
        return [factor * value for value in x]

    def centroid(self, points: list[Vector], weights: list) -> Vector:
        return self.onto([mp.fdot(weights, [p[i] for p in points]) for i in range(len(points[0]))])

    def exp(self, x: Vector, xi: Vector) -> Vector:
        w = mp.sqrt(max(self.inner(xi, xi), mp.mpf(0))) / self.s
        factor = mp.sinh(w) / w if w else mp.mpf(1)
        return [mp.cosh(w) * a + factor * b for a, b in zip(x, xi, strict=True)]

    def log(self, x: Vector, y: Vector) -> Vector:
        along = self.inner(x, y) / self.k
        towards = [b + along * a for a, b in zip(x, y, strict=True)]
        norm = mp.sqrt(max(self.inner(towards, towards), mp.mpf(0)))
        factor = self.distance(x, y) / norm if norm else mp.mpf(0)
        return [factor * value for value in towards]

    def transport(self, x: Vector, y: Vector, xi: Vector) -> Vector:
        factor = self.inner(y, xi) / (self.k - self.inner(x, y))
        return [c + factor * (a + b) for a, b, c in zip(x, y, xi, strict=True)]

    def gyroadd(self, x: Vector, y: Vector) -> Vector:
        """Boost of y that carries the origin to x."""
        n = len(x) - 1
        origin = [self.s] + [mp.mpf(0)] * n
        return self.exp(x, self.transport(origin, x, self.log(origin, y)))

    def horoshift(self, x: Vector, t: list, ideal: int, slides: list[int]) -> Vector:
        out = list(x)
        nu = x[0] - x[ideal + 1]
        lift = sum(step * x[axis + 1] + step * step * nu / 2 for step, axis in zip(t, slides, strict=True))
        out[0] += lift
        out[ideal + 1] += lift
        for step, axis in zip(t, slides, strict=True):
            out[axis + 1] += step * nu
        return out

    def boost(self, x: Vector, t, axis: int) -> Vector:
        out = list(x)
        out[0] = mp.cosh(t) * x[0] + mp.sinh(t) * x[axis + 1]
        out[axis + 1] = mp.sinh(t) * x[0] + mp.cosh(t) * x[axis + 1]
        return out

    def tangent(self, r: torch.Tensor, u: torch.Tensor, radial: torch.Tensor, perpendicular: torch.Tensor) -> Vector:
        """Frame components at the exact point to an ambient tangent vector (made exactly tangent)."""
        a, unit = mp.mpf(float(r)) / self.s, self.direction(u)
        part = numbers(perpendicular)
        along = mp.fdot(part, unit)
        part = [value - along * direction for value, direction in zip(part, unit, strict=True)]
        xi = mp.mpf(float(radial))
        return [xi * mp.sinh(a)] + [
            xi * mp.cosh(a) * direction + value for direction, value in zip(unit, part, strict=True)
        ]

    def frame(self, r: torch.Tensor, u: torch.Tensor, xi: Vector) -> tuple:
        """Components (radial, perpendicular) of an ambient tangent vector in the exact frame at (r, u)."""
        a, unit = mp.mpf(float(r)) / self.s, self.direction(u)
        along = mp.fdot(unit, xi[1:])
        radial = along * mp.cosh(a) - xi[0] * mp.sinh(a)
        return radial, [value - along * direction for value, direction in zip(xi[1:], unit, strict=True)]

    def frame_error(self, got: PolarTangent, want: tuple):
        """Length of the difference of two tangent vectors in the same frame."""
        gaps = [mp.mpf(float(got.radial)) - want[0]]
        gaps += [a - b for a, b in zip(numbers(got.perpendicular), want[1], strict=True)]
        return mp.sqrt(mp.fdot(gaps, gaps))


def resolution(radius: float, k: float, dtype: torch.dtype) -> float:
    """eps (r + sqrt k) + sqrt k sinh(a) eps: how well a point at this radius is known at all."""
    eps, s = torch.finfo(dtype).eps / 2, k**0.5
    return float(eps * (radius + s) + s * mp.sinh(radius / s) * eps)
