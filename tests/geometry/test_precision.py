"""Every operation against 80 digits: within 2x the resolution limit in the median and 4x at the 99.9th percentile.

The yardstick is eps (r + sqrt k) + sqrt k sinh(a) eps for the largest radius among inputs and output: how well the
stored points are known at all. Errors are pooled over k, dimension and relation, at least 500 for each operation and
radius.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import mpmath as mp
import pytest
import torch
from oracle import Exact, compress, numbers, resolution
from samples import RELATIONS, pair
from torch import Tensor

import polarvit.geometry as geometry
from polarvit.geometry import PolarPoint, PolarTangent

CURVATURES = (0.5, 1.0, 2.3)
DIMENSIONS = (2, 4, 17, 64)
COUNT = 11
RADII = [(torch.float32, r) for r in (0.0, 1e-6, 0.3, 2.0, 4.0, 8.0, 12.0, 16.0)]
RADII += [(torch.float64, r) for r in (0.3, 8.0, 22.0, 30.0)]


class Case(NamedTuple):
    """Pairs of points [COUNT] of one relation, dimension and curvature, and what measures them exactly."""

    p: PolarPoint
    q: PolarPoint
    k: float
    exact: Exact
    generator: torch.Generator

    @property
    def n(self) -> int:
        return self.p.dim

    @property
    def dtype(self) -> torch.dtype:
        return self.p.radius.dtype

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.generator).to(self.dtype)

    def limit(self, *radii: Tensor | float) -> float:
        return resolution(max(float(r) for r in radii), self.k, self.dtype)


@functools.cache
def cases(dtype: torch.dtype, radius: float) -> list[Case]:
    found = []
    for k in CURVATURES:
        for n in DIMENSIONS:
            for relation in RELATIONS:
                seed = int(1000 * radius) + 100 * n + int(10 * k) + RELATIONS.index(relation)
                p, q = pair(relation, COUNT, n, radius, k, dtype, seed)
                found.append(Case(p, q, k, Exact(k), torch.Generator().manual_seed(seed)))
    return found


def axis(i: int, n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)[i]


def tangents(case: Case, base: PolarPoint, length: Tensor) -> PolarTangent:
    """Random tangent vectors at `base` of the given lengths."""
    x = torch.randn(COUNT, case.n + 1, dtype=torch.float64, generator=case.generator)
    u = base.direction.double()
    for _ in range(2):  # the second projection makes it perpendicular to the last digit
        x[:, 1:] -= (x[:, 1:] * u).sum(-1, keepdim=True) / u.square().sum(-1, keepdim=True) * u
        x = x / x.norm(dim=-1, keepdim=True)
    x = length[:, None] * x.to(case.dtype)
    return PolarTangent(x[:, 0], x[:, 1:])


def point_error(case: Case, z: PolarPoint, i: int, w: list, want: list) -> float:
    return float(case.exact.distance(want, case.exact.point(z.radius[i], w)))


# Each operation yields errors over the yardstick, one or more for each pair of the case.


def distance(case: Case, compute: Callable[[Case], Tensor]) -> Iterator[tuple[float, float, float]]:
    """(computed, true distance, resolution) of each pair."""
    p, q = case.p, case.q
    values = compute(case)
    for i in range(COUNT):
        u, v = compress(p.direction[i], q.direction[i])
        true = case.exact.distance(case.exact.point(p.radius[i], u), case.exact.point(q.radius[i], v))
        yield float(values[i]), float(mp.mpf(float(values[i])) - true), case.limit(p.radius[i], q.radius[i])


def distances(case: Case) -> Iterator[float]:
    for _, error, limit in distance(case, lambda c: geometry.distance(c.p, c.q, k=c.k)):
        yield abs(error) / limit


def pairwise_distances(case: Case) -> Iterator[float]:
    for _, error, limit in distance(case, lambda c: geometry.pairwise_distance(c.p, c.q, k=c.k).diagonal()):
        yield abs(error) / limit


def squared_distances(case: Case) -> Iterator[float]:
    """d^2 is known to (d + L)^2 - d^2."""
    p, q = case.p, case.q
    values = geometry.squared_distance(p, q, k=case.k)
    for i in range(COUNT):
        u, v = compress(p.direction[i], q.direction[i])
        d = case.exact.distance(case.exact.point(p.radius[i], u), case.exact.point(q.radius[i], v))
        limit = case.limit(p.radius[i], q.radius[i])
        yield float(abs(mp.mpf(float(values[i])) - d * d)) / (2 * float(d) * limit + limit**2)


def centroids(case: Case) -> Iterator[float]:
    """Uniform, softmax, one-hot and wide (1 to 1e-8) weights over six points, three of each kind."""
    p, q = case.p, case.q
    for first in range(0, COUNT - 2, 3):
        chosen = slice(first, first + 3)
        points = PolarPoint(
            torch.cat([p.radius[chosen], q.radius[chosen]]), torch.cat([p.direction[chosen], q.direction[chosen]])
        )
        noise = case.random(2, 6)
        weights = torch.stack(
            [
                torch.ones(6, dtype=case.dtype),
                torch.softmax(4 * noise[0], -1),
                axis(first % 6, 6).to(case.dtype),
                10 ** (-8 * torch.sigmoid(2 * noise[1])),
            ]
        )
        mean = geometry.centroid(points, weights, k=case.k)
        *us, w0, w1, w2, w3 = compress(*points.direction, *mean.direction)
        ambient = [case.exact.point(r, u) for r, u in zip(points.radius, us, strict=True)]
        for i, w in enumerate((w0, w1, w2, w3)):
            want = case.exact.centroid(ambient, numbers(weights[i]))
            yield point_error(case, mean, i, w, want) / case.limit(*points.radius, mean.radius[i])


def tangent_inners(case: Case) -> Iterator[float]:
    ones = torch.ones(COUNT, dtype=case.dtype)
    xi, zeta = tangents(case, case.p, ones), tangents(case, case.p, 3 * ones)
    values = geometry.tangent_inner(xi, zeta, k=case.k)
    for i in range(COUNT):
        a = [mp.mpf(float(xi.radial[i])), *numbers(xi.perpendicular[i])]
        b = [mp.mpf(float(zeta.radial[i])), *numbers(zeta.perpendicular[i])]
        yield float(abs(mp.mpf(float(values[i])) - mp.fdot(a, b))) / (3 * resolution(0, 1, case.dtype))


def riemannian_gradients(case: Case) -> Iterator[float]:
    """xi_perp = (g - (g.u)u)/(sqrt k sinh a), known to (a + 1) eps |g|/(sqrt k sinh a)."""
    p, gradient = case.p, PolarPoint(case.random(COUNT), case.random(COUNT, case.n))
    xi = geometry.riemannian_gradient(p, gradient, k=case.k)
    for i in range(COUNT):
        if float(p.radius[i]) == 0:
            yield float(xi.perpendicular[i].abs().max())
            continue
        u, g, got = compress(p.direction[i], gradient.direction[i], xi.perpendicular[i])
        unit, a = case.exact.direction(u), mp.mpf(float(p.radius[i])) / case.exact.s
        along, circle = mp.fdot(g, unit), case.exact.s * mp.sinh(a)
        want = [(x - along * y) / circle for x, y in zip(g, unit, strict=True)]
        unit_error = mp.sqrt(mp.fdot(g, g)) / circle * (torch.finfo(case.dtype).eps / 2) * (a + 1)
        yield float(Exact.frame_error(torch.zeros(()), got, (0, want)) / unit_error)


def exp_maps(case: Case) -> Iterator[float]:
    """Along the logarithm of the other point and along a random step of up to 3 sqrt k."""
    p = case.p
    steps = case.k**0.5 * 3 * torch.rand(COUNT, dtype=torch.float64, generator=case.generator).to(case.dtype)
    for xi in (geometry.log_map(p, case.q, k=case.k), tangents(case, p, steps)):
        z = geometry.exp_map(p, xi, k=case.k)
        length = geometry.tangent_inner(xi, xi).sqrt()
        for i in range(COUNT):
            u, part, w = compress(p.direction[i], xi.perpendicular[i], z.direction[i])
            start = case.exact.point(p.radius[i], u)
            want = case.exact.exp(start, case.exact.tangent(p.radius[i], u, xi.radial[i], part))
            yield point_error(case, z, i, w, want) / case.limit(p.radius[i], z.radius[i], length[i])


def log_maps(case: Case) -> Iterator[float]:
    p, q = case.p, case.q
    xi = geometry.log_map(p, q, k=case.k)
    for i in range(COUNT):
        u, v, part = compress(p.direction[i], q.direction[i], xi.perpendicular[i])
        towards = case.exact.log(case.exact.point(p.radius[i], u), case.exact.point(q.radius[i], v))
        error = case.exact.frame_error(xi.radial[i], part, case.exact.frame(p.radius[i], u, towards))
        yield float(error) / case.limit(p.radius[i], q.radius[i])


def transports(case: Case) -> Iterator[float]:
    """Dimensionless: |xi| times the resolution of the rescaled radius at k = 1."""
    p, q = case.p, case.q
    xi = tangents(case, p, torch.ones(COUNT, dtype=case.dtype))
    moved = geometry.transport(p, q, xi, k=case.k)
    for i in range(COUNT):
        u, v, part, got = compress(p.direction[i], q.direction[i], xi.perpendicular[i], moved.perpendicular[i])
        ends = case.exact.point(p.radius[i], u), case.exact.point(q.radius[i], v)
        want = case.exact.transport(*ends, case.exact.tangent(p.radius[i], u, xi.radial[i], part))
        error = case.exact.frame_error(moved.radial[i], got, case.exact.frame(q.radius[i], v, want))
        a = max(float(p.radius[i]), float(q.radius[i])) / case.k**0.5
        yield float(error) / resolution(a, 1.0, case.dtype)


def gyroadditions(case: Case, sign: int = 1) -> Iterator[float]:
    p, q = case.p if sign > 0 else geometry.gyroneg(case.p, k=case.k), case.q
    z = geometry.gyroadd(p, q, k=case.k)
    for i in range(COUNT):
        u, v, w = compress(p.direction[i], q.direction[i], z.direction[i])
        want = case.exact.gyroadd(case.exact.point(p.radius[i], u), case.exact.point(q.radius[i], v))
        yield point_error(case, z, i, w, want) / case.limit(p.radius[i], q.radius[i], z.radius[i])


def gyro_centerings(case: Case) -> Iterator[float]:
    """(-mean) (+) x, which cancels the most: for close points the result is near the origin."""
    return gyroadditions(case, -1)


def gyroscalings(case: Case) -> Iterator[float]:
    t = case.random(COUNT)
    z = geometry.gyroscale(case.p, t, k=case.k)
    for i in range(COUNT):
        u, w = compress(case.p.direction[i], z.direction[i])
        factor = mp.mpf(float(t[i]))
        a = factor * mp.mpf(float(case.p.radius[i])) / case.exact.s
        want = [case.exact.s * mp.cosh(a)] + [case.exact.s * mp.sinh(a) * x for x in case.exact.direction(u)]
        yield point_error(case, z, i, w, want) / case.limit(case.p.radius[i], z.radius[i])


def moved_along_axes(
    case: Case,
    axes: int,
    move: Callable[[PolarPoint, Tensor], PolarPoint],
    truth: Callable[[list, Tensor], list],
    t: Tensor,
) -> Iterator[float]:
    for points in (case.p, case.q):
        z = move(points, t)
        for i in range(COUNT):
            *_, u, w = compress(*(axis(j, case.n) for j in range(axes)), points.direction[i], z.direction[i])
            want = truth(case.exact.point(points.radius[i], u), t[i])
            yield point_error(case, z, i, w, want) / case.limit(points.radius[i], z.radius[i])


def horoshifts(case: Case) -> Iterator[float]:
    return moved_along_axes(
        case,
        2,
        lambda p, t: geometry.horoshift(p, t, k=case.k),
        lambda x, t: case.exact.horoshift(x, numbers(t), 0, [1]),
        2 * case.random(COUNT),
    )


def joint_horoshifts(case: Case) -> Iterator[float]:
    if case.n < 3:
        return iter(())
    return moved_along_axes(
        case,
        3,
        lambda p, t: geometry.horoshift(p, t, axes=(0, 1, 2), k=case.k),
        lambda x, t: case.exact.horoshift(x, numbers(t), 0, [1, 2]),
        2 * case.random(COUNT, 2),
    )


def boosts(case: Case) -> Iterator[float]:
    return moved_along_axes(
        case,
        1,
        lambda p, t: geometry.boost(p, t, k=case.k),
        lambda x, t: case.exact.boost(x, mp.mpf(float(t)), 0),
        2 * case.random(COUNT),
    )


def rotations(case: Case) -> Iterator[float]:
    return moved_along_axes(
        case,
        2,
        lambda p, t: geometry.rotate(p, t, k=case.k),
        lambda x, t: case.exact.rotate(x, mp.mpf(float(t)), 0, 1),
        2 * case.random(COUNT),
    )


def busemanns(case: Case) -> Iterator[float]:
    """Random directions, and directions near the ideal point and opposite to it."""
    r, u = case.p.radius, case.p.direction
    spread = 1 / math.sinh(max(float(r[0]) / case.k**0.5, 1.0))
    near = axis(0, case.n) + spread * u.double()
    near = (near / near.norm(dim=-1, keepdim=True)).to(case.dtype)
    for direction in (u, near, -near):
        values = geometry.busemann(PolarPoint(r, direction), k=case.k)
        for i in range(0, COUNT, 2):
            _, v = compress(axis(0, case.n), direction[i])
            want = case.exact.busemann(case.exact.point(r[i], v), 0)
            yield float(abs(mp.mpf(float(values[i])) - want)) / case.limit(r[i])


def concatenations(case: Case) -> Iterator[float]:
    p, q, n = case.p, case.q, case.n
    z = geometry.concat([p, q], k=case.k)
    for i in range(COUNT):
        left = torch.cat([p.direction[i], torch.zeros(n)])
        right = torch.cat([torch.zeros(n), q.direction[i]])
        u, v, w = compress(left, right, z.direction[i])
        parts = case.exact.point(p.radius[i], u), case.exact.point(q.radius[i], v)
        space = [a + b for a, b in zip(parts[0][1:], parts[1][1:], strict=True)]
        want = [mp.sqrt(case.exact.k + mp.fdot(space, space)), *space]
        yield point_error(case, z, i, w, want) / case.limit(p.radius[i], q.radius[i], z.radius[i])


def splits(case: Case) -> Iterator[float]:
    p, half = case.p, case.n // 2
    parts = geometry.split(p, [half, case.n - half], k=case.k)
    for i in range(COUNT):
        whole = mp.sqrt(mp.fdot(numbers(p.direction[i]), numbers(p.direction[i])))
        scale = case.exact.s * mp.sinh(mp.mpf(float(p.radius[i])) / case.exact.s) / whole
        for part, u in zip(parts, p.direction[i].split([half, case.n - half]), strict=True):
            v, w = compress(u, part.direction[i])
            space = [scale * x for x in v]
            want = [mp.sqrt(case.exact.k + mp.fdot(space, space)), *space]
            yield point_error(case, part, i, w, want) / case.limit(p.radius[i])


def from_coordinates(
    case: Case, read: Callable[[Tensor], PolarPoint], write: Callable[[PolarPoint], Tensor], radius: Callable
) -> Iterator[float]:
    """Points read from stored coordinates, against the exact radius of those coordinates."""
    x = write(case.q)
    z = read(x)
    for i in range(COUNT):
        v, w = compress(x[i], z.direction[i])
        norm = mp.sqrt(mp.fdot(v, v))
        a = radius(norm, case.exact.s) / case.exact.s
        unit = [value / norm for value in v] if norm else v
        want = [case.exact.s * mp.cosh(a)] + [case.exact.s * mp.sinh(a) * value for value in unit]
        yield point_error(case, z, i, w, want) / case.limit(float(a * case.exact.s), z.radius[i])


def from_spaces(case: Case) -> Iterator[float]:
    return from_coordinates(
        case,
        lambda x: geometry.from_space(x, k=case.k),
        lambda p: geometry.to_space(p, k=case.k),
        lambda norm, s: s * mp.asinh(norm / s),
    )


def from_ambients(case: Case) -> Iterator[float]:
    return from_coordinates(
        case,
        lambda x: geometry.from_ambient(torch.cat([x[:, :1], x], -1), k=case.k),
        lambda p: geometry.to_ambient(p, k=case.k)[:, 1:],
        lambda norm, s: s * mp.asinh(norm / s),
    )


def from_tangents(case: Case) -> Iterator[float]:
    return from_coordinates(case, geometry.from_tangent0, geometry.to_tangent0, lambda norm, s: norm)


OPERATIONS = {
    "distance": distances,
    "squared_distance": squared_distances,
    "pairwise_distance": pairwise_distances,
    "centroid": centroids,
    "tangent_inner": tangent_inners,
    "riemannian_gradient": riemannian_gradients,
    "exp_map": exp_maps,
    "log_map": log_maps,
    "transport": transports,
    "gyroadd": gyroadditions,
    "gyro_centering": gyro_centerings,
    "gyroscale": gyroscalings,
    "horoshift": horoshifts,
    "joint_horoshift": joint_horoshifts,
    "boost": boosts,
    "rotate": rotations,
    "busemann": busemanns,
    "concat": concatenations,
    "split": splits,
    "from_space": from_spaces,
    "from_ambient": from_ambients,
    "from_tangent0": from_tangents,
}


def measured(operation: str, dtype: torch.dtype, radius: float) -> list[float]:
    return sorted(ratio for case in cases(dtype, radius) for ratio in OPERATIONS[operation](case))


def name_of(value: object) -> str:
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else f"{value}"


@pytest.mark.parametrize(("dtype", "radius"), RADII, ids=[f"{name_of(d)}-r{r:g}" for d, r in RADII])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_is_within_the_resolution_limit(
    operation: str, dtype: torch.dtype, radius: float, record_property: Callable
) -> None:
    ratios = measured(operation, dtype, radius)
    median, tail = ratios[len(ratios) // 2], ratios[math.ceil(0.999 * len(ratios)) - 1]
    record_property("ratios", (operation, name_of(dtype), radius, median, tail))
    told = f"{operation} at r = {radius} in {dtype}: median {median:.2f}, 99.9 % {tail:.2f} of {len(ratios)}"
    assert len(ratios) >= 350, told
    assert median <= 2, told
    assert tail <= 4, told
