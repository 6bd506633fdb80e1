"""Geometry in 80 digits, by the textbook formulas in ambient coordinates: the truth that tests compare with.

A stored point means the exact point of its radius and its (renormalised) direction, so rounding of the inputs is
not held against an operation.
"""

from __future__ import annotations

import math

import mpmath as mp
import torch

from polarvit.geometry import PolarPoint

mp.mp.dps = 80
Vector = list


def numbers(x: torch.Tensor | Vector) -> Vector:
    """Exact values of a float tensor."""
    return x if isinstance(x, list) else [mp.mpf(value) for value in x.reshape(-1).double().tolist()]


def compress(*vectors: torch.Tensor) -> list[Vector]:
    """Coordinates of some vectors of R^n in an orthonormal basis of their span, one basis vector after the other.

    The geometry of a few points is that of the few dimensions they span, which makes 80 digits affordable in R^64. The
    inner products are exact (integers); axis vectors that come first keep their coordinates.
    """
    if len(vectors[0]) <= len(vectors):
        return [numbers(x) for x in vectors]
    whole = [[int(value * 2.0**200) for value in x.double().tolist()] for x in vectors]
    basis: list[Vector] = []
    for x in whole:
        dots = [mp.ldexp(sum(map(int.__mul__, x, y)), -400) for y in whole[: len(basis) + 1]]
        row: Vector = []
        for j, other in enumerate(basis):
            row.append((dots[j] - mp.fdot(row, other[:j])) / other[j] if other[j] else mp.mpf(0))
        rest = dots[-1] - mp.fdot(row, row)
        basis.append([*row, mp.sqrt(rest) if rest > mp.mpf(10) ** -60 else mp.mpf(0)])
    return [row + [mp.mpf(0)] * (len(basis) - len(row)) for row in basis]


class Exact:
    """The Lorentz model of curvature -1/k in high precision."""

    def __init__(self, k: float) -> None:
        self.k = mp.mpf(k)
        self.s = mp.sqrt(self.k)

    def direction(self, u: torch.Tensor | Vector) -> Vector:
        values = numbers(u)
        inverse = 1 / mp.sqrt(mp.fdot(values, values))
        return [inverse * value for value in values]

    def point(self, r: torch.Tensor, u: torch.Tensor | Vector) -> Vector:
        grown = mp.exp(mp.mpf(float(r)) / self.s)
        sinh = self.s * (grown - 1 / grown) / 2
        return [self.s * (grown + 1 / grown) / 2] + [sinh * value for value in self.direction(u)]

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
        dot = mp.fdot(x[1:], y[1:])
        along = (y[0] + dot / (self.s + x[0])) / self.s
        return [(x[0] * y[0] + dot) / self.s] + [b + along * a for a, b in zip(x[1:], y[1:], strict=True)]

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

    def rotate(self, x: Vector, t, i: int, j: int) -> Vector:
        out = list(x)
        out[i + 1] = mp.cos(t) * x[i + 1] - mp.sin(t) * x[j + 1]
        out[j + 1] = mp.sin(t) * x[i + 1] + mp.cos(t) * x[j + 1]
        return out

    def busemann(self, x: Vector, axis: int):
        return self.s * mp.log((x[0] - x[axis + 1]) / self.s)

    def tangent(self, r: torch.Tensor, u: torch.Tensor | Vector, radial: torch.Tensor, perpendicular: Vector) -> Vector:
        """Frame components at the exact point to an ambient tangent vector (made exactly tangent)."""
        a, unit = mp.mpf(float(r)) / self.s, self.direction(u)
        part = numbers(perpendicular)
        along = mp.fdot(part, unit)
        part = [value - along * direction for value, direction in zip(part, unit, strict=True)]
        xi = mp.mpf(float(radial))
        return [xi * mp.sinh(a)] + [
            xi * mp.cosh(a) * direction + value for direction, value in zip(unit, part, strict=True)
        ]

    def frame(self, r: torch.Tensor, u: torch.Tensor | Vector, xi: Vector) -> tuple:
        """Components (radial, perpendicular) of an ambient tangent vector in the exact frame at (r, u)."""
        a, unit = mp.mpf(float(r)) / self.s, self.direction(u)
        along = mp.fdot(unit, xi[1:])
        radial = along * mp.cosh(a) - xi[0] * mp.sinh(a)
        return radial, [value - along * direction for value, direction in zip(xi[1:], unit, strict=True)]

    @staticmethod
    def frame_error(radial: torch.Tensor, perpendicular: torch.Tensor | Vector, want: tuple):
        """Length of the difference of two tangent vectors in the same frame."""
        gaps = [mp.mpf(float(radial)) - want[0]]
        gaps += [a - b for a, b in zip(numbers(perpendicular), want[1], strict=True)]
        return mp.sqrt(mp.fdot(gaps, gaps))


def resolution(radius: float, k: float, dtype: torch.dtype) -> float:
    """eps (r + sqrt k) + sqrt k sinh(a) eps: how well a point at this radius is known at all."""
    eps, s = torch.finfo(dtype).eps / 2, k**0.5
    return eps * (radius + s) + s * math.sinh(radius / s) * eps
