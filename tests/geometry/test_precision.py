"""Every operation against 80 digits: within 2x the resolution limit in the median and 4x at the 99.9th percentile.

The yardstick is eps (r + sqrt k) + sqrt k sinh(a) eps for the largest radius among inputs and output: how well the
stored points are known at all. Errors are pooled over k, dimension and relation, at least 500 for each operation and
radius.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
RADII += [(torch.float64, r) for r in (0.0, 1e-6, 0.3, 2.0, 8.0, 16.0, 30.0)]


@dataclass(eq=False)
class Case:
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

    @functools.cache  # noqa: B019 (three operations share it, and cases live as long as the tests)
    def true_distances(self) -> list:
        found = []
        for i in range(COUNT):
            u, v = compress(self.p.direction[i], self.q.direction[i])
            ends = self.exact.point(self.p.radius[i], u), self.exact.point(self.q.radius[i], v)
            found.append(self.exact.distance(*ends))
        return found

    @property
    def mixed(self) -> PolarPoint:
        """Every second point from p, the others from q."""
        odd = torch.arange(COUNT) % 2 == 1
        radius = torch.where(odd, self.q.radius, self.p.radius)
        return PolarPoint(radius, torch.where(odd[:, None], self.q.direction, self.p.direction))

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
                generator = torch.Generator()
                generator.manual_seed(seed)
                found.append(Case(p, q, k, Exact(k), generator))
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


def distances(case: Case, compute: Callable[[Case], Tensor] | None = None) -> Iterator[float]:
    values = compute(case) if compute else geometry.distance(case.p, case.q, k=case.k)
    for i, d in enumerate(case.true_distances()):
        yield float(abs(mp.mpf(float(values[i])) - d)) / case.limit(case.p.radius[i], case.q.radius[i])


def pairwise_distances(case: Case) -> Iterator[float]:
    return distances(case, lambda c: geometry.pairwise_distance(c.p, c.q, k=c.k).diagonal())


def squared_distances(case: Case) -> Iterator[float]:
    """d^2 is known to (d + L)^2 - d^2."""
    values = geometry.squared_distance(case.p, case.q, k=case.k)
    for i, d in enumerate(case.true_distances()):
        limit = case.limit(case.p.radius[i], case.q.radius[i])
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
    """Along the logarithm of the other point, and along a random step of up to 3 sqrt k."""
    p, odd = case.p, torch.arange(COUNT) % 2 == 1
    steps = case.k**0.5 * 3 * torch.rand(COUNT, dtype=torch.float64, generator=case.generator).to(case.dtype)
    free, towards = tangents(case, p, steps), geometry.log_map(p, case.q, k=case.k)
    xi = PolarTangent(
        torch.where(odd, free.radial, towards.radial),
        torch.where(odd[:, None], free.perpendicular, towards.perpendicular),
    )
    z = geometry.exp_map(p, xi, k=case.k)
    length = geometry.tangent_inner(xi, xi).sqrt()
    for i in range(COUNT):
        u, part, w = compress(p.direction[i], xi.perpendicular[i], z.direction[i])
        want = case.exact.exp(case.exact.point(p.radius[i], u), case.exact.tangent(p.radius[i], u, xi.radial[i], part))
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
    """Dimensionless: |xi| times the resolution of the rescaled radius at k = 1.

    Near the origin that is a bare eps, the length of one rounding: twice the samples show the tail.
    """
    for p, q in [(case.p, case.q), (case.q, case.p)][: 2 if float(case.p.radius[0]) < 0.1 else 1]:
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
    *,
    both: bool = False,
) -> Iterator[float]:
    for p in (case.p, case.q) if both else (case.mixed,):
        z = move(p, t)
        for i in range(COUNT):
            *_, u, w = compress(*(axis(j, case.n) for j in range(axes)), p.direction[i], z.direction[i])
            want = truth(case.exact.point(p.radius[i], u), t[i])
            yield point_error(case, z, i, w, want) / case.limit(p.radius[i], z.radius[i])


def horoshifts(case: Case) -> Iterator[float]:
    return moved_along_axes(
        case,
        2,
        lambda p, t: geometry.horoshift(p, t, k=case.k),
        lambda x, t: case.exact.horoshift(x, numbers(t), 0, [1]),
        2 * case.random(COUNT),
        both=float(case.p.radius[0]) >= 4,
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
        both=case.n == 4,
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


def from_balls(case: Case) -> Iterator[float]:
    """Coordinates inside the ball: half the radius keeps them off the boundary at every radius."""
    return from_coordinates(
        case,
        lambda x: geometry.from_ball(x, k=case.k),
        lambda p: geometry.to_ball(geometry.gyroscale(p, 0.5), k=case.k),
        lambda norm, s: 2 * s * mp.atanh(norm / s),
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
    "from_ball": from_balls,
    "from_tangent0": from_tangents,
}


def measured(operation: str, dtype: torch.dtype, radius: float) -> list[float]:
    ratios: list[float] = []
    for case in cases(dtype, radius):
        case.generator.manual_seed(case.generator.initial_seed())
        ratios += OPERATIONS[operation](case)
    return sorted(ratios)


def name_of(value: object) -> str:
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else f"{value}"


@pytest.mark.parametrize(("dtype", "radius"), RADII, ids=[f"{name_of(d)}-r{r:g}" for d, r in RADII])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_is_within_the_resolution_limit(
    operation: str, dtype: torch.dtype, radius: float, record_property: Callable
) -> None:
    ratios = measured(operation, dtype, radius)
    median, tail = torch.tensor(ratios).quantile(torch.tensor([0.5, 0.999])).tolist()
    record_property("ratios", (operation, name_of(dtype), radius, median, tail))
    told = f"{operation} at r = {radius} in {dtype}: median {median:.2f}, 99.9 % {tail:.2f} of {len(ratios)}"
    assert len(ratios) >= 500, told
    assert median <= 2, told
    assert tail <= 4, told


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=name_of)
@pytest.mark.parametrize("k", CURVATURES)
@pytest.mark.parametrize("name", ["to_ball", "to_klein", "to_space", "to_ambient", "to_tangent0"])
def test_coordinates_are_right_to_a_few_ulps(name: str, k: float, dtype: torch.dtype) -> None:
    """Ball, Klein and tangent coordinates in plain ulps. Space and time grow as e^a, so the rounding of a = r/sqrt(k)
    alone moves them by a/2 ulps: theirs are counted in (1 + a/2) ulps, and in plain ulps for k = 1."""
    exact, found = Exact(k), []
    formulas = {
        "to_ball": lambda r, u: [exact.s * mp.tanh(r / (2 * exact.s)) * x for x in u],
        "to_klein": lambda r, u: [mp.tanh(r / exact.s) * x for x in u],
        "to_space": lambda r, u: [exact.s * mp.sinh(r / exact.s) * x for x in u],
        "to_ambient": lambda r, u: [exact.s * mp.cosh(r / exact.s)] + [exact.s * mp.sinh(r / exact.s) * x for x in u],
        "to_tangent0": lambda r, u: [r * x for x in u],
    }
    for radius in (1e-6, 0.3, 2.0, 8.0, 16.0):
        p, _ = pair("far", 30, 4, radius, k, dtype, 7)
        got = getattr(geometry, name)(p, k=k)
        slack = 1 + radius / k**0.5 / 2 if name in ("to_space", "to_ambient") and k != 1 else 1
        for i in range(30):
            want = formulas[name](mp.mpf(float(p.radius[i])), exact.direction(p.direction[i]))
            for x, y in zip(got[i], want, strict=True):
                found.append(float(abs(mp.mpf(float(x)) - y) / abs(y)) / torch.finfo(dtype).eps / slack)
    found.sort()
    told = f"{name}: median {found[len(found) // 2]:.2f}, most {found[-1]:.2f} ulps"
    assert found[len(found) // 2] <= 2, told
    assert found[-1] <= 4, told


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=name_of)
def test_klein_vectors_are_read_as_well_as_they_are_stored(dtype: torch.dtype) -> None:
    """A rounding of |y| moves the radius by sqrt(k) cosh^2(a) eps: that is the yardstick of `from_klein`."""
    for k in CURVATURES:
        exact = Exact(k)
        for radius in (1e-6, 0.3, 2.0, 4.0):
            p, _ = pair("far", 30, 4, radius, k, dtype, 11)
            y = geometry.to_klein(p, k=k)
            z = geometry.from_klein(y, k=k)
            for i in range(30):
                norm = mp.sqrt(mp.fdot(numbers(y[i]), numbers(y[i])))
                want = exact.s * mp.atanh(norm)
                limit = exact.s * mp.cosh(want / exact.s) ** 2 * torch.finfo(dtype).eps / 2
                assert abs(mp.mpf(float(z.radius[i])) - want) <= 4 * limit


def test_ambient_points_are_read_from_their_space_part() -> None:
    p, _ = pair("far", 30, 4, 8.0, 2.3, torch.float32, 13)
    x = geometry.to_ambient(p, k=2.3)
    for got, want in zip(geometry.from_ambient(x, k=2.3), geometry.from_space(x[:, 1:], k=2.3), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("radius", [0.0, 4.0, 16.0])
def test_directions_of_results_stay_unit_vectors(radius: float) -> None:
    for case in cases(torch.float32, radius)[::3]:
        p, q, k = case.p, case.q, case.k
        half = geometry.split(p, [1, case.n - 1], k=k)
        results = [
            geometry.gyroadd(p, q, k=k),
            geometry.exp_map(p, geometry.log_map(p, q, k=k), k=k),
            geometry.centroid(p, k=k),
            geometry.horoshift(p, 1.7, k=k),
            geometry.boost(p, 1.7, k=k),
            geometry.rotate(p, 1.7, k=k),
            geometry.concat([p, q], k=k),
            *half,
        ]
        for z in results:
            geometry.validate(z, k=k)
            assert (z.direction.double().norm(dim=-1) - 1).abs().max() <= 8 * EPS


# Far out in float32, where even the exponent of a float32 ends: e^200 and e^1000 are no numbers there.


FAR = (200.0, 1000.0)
EPS = torch.finfo(torch.float32).eps / 2


def far_point(radius: float, *direction: float) -> PolarPoint:
    u = torch.tensor(direction, dtype=torch.float64)
    return PolarPoint(torch.tensor(radius), (u / u.norm()).float())


def far_pairs(radius: float) -> dict[str, tuple[PolarPoint, PolarPoint]]:
    here = far_point(radius, 0.3, -0.5, 0.7, 0.2)
    return {
        "across": (here, far_point(radius - 3, -0.1, 0.9, 0.4, -0.6)),
        "neighbours": (here, far_point(radius - 0.5, *(here.direction + torch.tensor([3e-2, 0, -1e-2, 0])).tolist())),
        "one-ray": (here, PolarPoint(here.radius - 7, here.direction)),
        "opposite": (here, PolarPoint(here.radius, -here.direction)),
        "near-the-origin": (here, far_point(1.5, 0.5, 0.5, -0.5, 0.5)),
        "from-near-the-origin": (far_point(1.5, 0.5, 0.5, -0.5, 0.5), here),
    }


def assert_far(exact: Exact, z: PolarPoint, want: list, largest: float, told: str) -> None:
    """Radius to 4 eps (a + 1) and direction to 6 eps, against an ambient point with enough digits for e^(2a)."""
    a = float(largest) / float(exact.s)
    space = mp.sqrt(mp.fdot(want[1:], want[1:]))
    radius_error = abs(mp.mpf(float(z.radius)) - exact.radius(want)) / exact.s
    units = float(radius_error / EPS / (a + 1))
    assert units <= 4, f"{told}: radius off by {units:.1f} eps (a + 1)"
    if exact.radius(want) > 1e-3:
        gaps = [x - y / space for x, y in zip(numbers(z.direction), want[1:], strict=True)]
        direction_error = mp.sqrt(mp.fdot(gaps, gaps))
        assert direction_error <= 6 * EPS, f"{told}: direction off by {float(direction_error / EPS):.1f} eps"


@pytest.mark.parametrize("k", [1.0, 2.3])
@pytest.mark.parametrize("relation", far_pairs(1.0))
@pytest.mark.parametrize("radius", FAR)
def test_pairs_far_out_are_right_to_a_few_roundings(radius: float, relation: str, k: float) -> None:
    with mp.workdps(2200):
        exact = Exact(k)
        p, q = far_pairs(radius)[relation]
        x, y = exact.point(*p), exact.point(*q)
        largest = 2 * radius
        d = geometry.distance(p, q, k=k)
        assert abs(mp.mpf(float(d)) - exact.distance(x, y)) <= 4 * EPS * (largest + exact.s)
        row = PolarPoint(torch.stack([p.radius, q.radius]), torch.stack([p.direction, q.direction]))
        assert torch.allclose(geometry.pairwise_distance(row, row, k=k), torch.stack([d * 0, d, d, d * 0]).view(2, 2))
        assert_far(exact, geometry.gyroadd(p, q, k=k), exact.gyroadd(x, y), largest, "gyroadd")
        minus = geometry.gyroneg(p, k=k)
        assert_far(exact, geometry.gyroadd(minus, q, k=k), exact.gyroadd(exact.point(*minus), y), largest, "centering")
        xi = geometry.log_map(p, q, k=k)
        want = exact.frame(*p, exact.log(x, y))
        error = exact.frame_error(*xi, want)
        assert error <= 4 * EPS * (largest + exact.s), f"log_map off by {float(error / EPS)} eps"
        assert_far(exact, geometry.exp_map(p, xi, k=k), exact.exp(x, exact.tangent(*p, *xi)), largest, "exp_map")
        part = torch.tensor([0.1, 0.2, 0.3, -0.4])
        zeta = PolarTangent(torch.tensor(0.7), part - (part * p.direction).sum() * p.direction)
        moved = geometry.transport(p, q, zeta, k=k)
        want = exact.frame(*q, exact.transport(x, y, exact.tangent(*p, *zeta)))
        gap = float((p.direction - q.direction).norm())
        assert exact.frame_error(*moved, want) <= 8 * EPS / (gap or 1), "transport: the axes are known to eps/angle"
        joined = geometry.concat([p, q], k=k)
        space = x[1:] + y[1:]
        assert_far(exact, joined, [mp.sqrt(exact.k + mp.fdot(space, space)), *space], largest, "concat")
        for part, whole in zip(geometry.split(joined, 2, k=k), (p, q), strict=True):
            if whole.radius >= joined.radius - 20:  # what is e^-20 smaller has rounded in the direction
                assert abs(part.radius - whole.radius) <= 4 * EPS * (largest + 1)


@pytest.mark.parametrize("k", [1.0, 2.3])
@pytest.mark.parametrize("radius", FAR)
@pytest.mark.parametrize("kind", ["slanted", "along-the-axis", "against-the-axis", "nearly-along"])
def test_shifts_far_out_are_right_to_a_few_roundings(radius: float, kind: str, k: float) -> None:
    p = {
        "slanted": far_point(radius, 0.3, -0.5, 0.7, 0.2),
        "along-the-axis": far_point(radius, 1, 0, 0, 0),
        "against-the-axis": far_point(radius, -1, 0, 0, 0),
        "nearly-along": far_point(radius, 1, 1e-6, 0, -1e-6),
    }[kind]
    with mp.workdps(2200):
        exact = Exact(k)
        x = exact.point(*p)
        t, pair_of_steps = torch.tensor(1.3), torch.tensor([0.9, -0.4])
        step = mp.mpf(float(t))
        assert_far(exact, geometry.horoshift(p, t, k=k), exact.horoshift(x, [step], 0, [1]), radius, "horoshift")
        joint = geometry.horoshift(p, pair_of_steps, axes=(0, 1, 2), k=k)
        assert_far(exact, joint, exact.horoshift(x, numbers(pair_of_steps), 0, [1, 2]), radius, "joint horoshift")
        for sign in (1, -1):
            assert_far(exact, geometry.boost(p, sign * t, k=k), exact.boost(x, sign * step, 0), radius, "boost")
        assert_far(exact, geometry.rotate(p, t, k=k), exact.rotate(x, step, 0, 1), radius, "rotate")
        got, want = geometry.busemann(p, k=k), exact.busemann(x, 0)
        assert abs(mp.mpf(float(got)) - want) <= 4 * EPS * (radius + exact.s), "busemann"


@pytest.mark.parametrize("radius", FAR)
def test_busemann_is_the_radius_along_the_axis_and_against_it(radius: float) -> None:
    assert float(geometry.busemann(far_point(radius, 1, 0, 0))) == -radius
    assert float(geometry.busemann(far_point(radius, -1, 0, 0))) == radius


@pytest.mark.parametrize("radius", FAR)
@pytest.mark.parametrize("k", [1.0, 2.3])
def test_centroids_far_out_are_right_to_a_few_roundings(radius: float, k: float) -> None:
    """Equal points, one-hot rows, mixed radii, any scale of weights, one point beyond the others, a decay step."""
    p, q = far_pairs(radius)["across"]
    origin, near = far_point(0.0, 1, 0, 0, 0), far_point(1.5, 0.5, 0.5, -0.5, 0.5)
    sets = {
        "equal": ([p, p, p], [1.0, 2.0, 0.5]),
        "one-hot": ([p, q, near], [0.0, 1.0, 0.0]),
        "one-hot-near": ([p, q, near], [0.0, 0.0, 1.0]),
        "mixed": ([p, q, near], [0.2, 0.7, 0.1]),
        "wide": ([p, q, near], [1e-9, 1.0, 1e-20]),
        "tiny": ([p, q, near], [3e-37, 1e-37, 2e-37]),
        "huge": ([p, q, near], [3e37, 1e37, 2e37]),
        "one-far": ([p, near], [1.0, 2.0]),
        "one-farther": ([p, far_point(0.7 * radius, 0.3, 0.8, 0.1, -0.5), near], [0.2, 0.5, 1.0]),
        "decay": ([p, origin], [1 - 1e-5, 1e-5]),
        "one-ray": ([p, PolarPoint(p.radius - 5, p.direction)], [0.5, 0.5]),
    }
    with mp.workdps(2200):
        exact = Exact(k)
        for name, (points, weights) in sets.items():
            w = torch.tensor(weights)
            stacked = PolarPoint(torch.stack([x.radius for x in points]), torch.stack([x.direction for x in points]))
            mean = geometry.centroid(stacked, w, k=k)
            assert_far(exact, mean, exact.centroid(exact.points(stacked), numbers(w)), radius, name)


@pytest.mark.parametrize("a", [44.0, 46.0, 48.0, 50.0, 52.0, 60.0])
def test_transport_between_equal_points_changes_nothing_where_squares_underflow(a: float) -> None:
    p = far_point(a, 0.6, 0.8, 0)
    xi = PolarTangent(torch.tensor(0.3), torch.tensor([0.8, -0.6, 0.5]))
    moved = geometry.transport(p, p, xi)
    assert torch.allclose(moved.radial, xi.radial)
    assert torch.allclose(moved.perpendicular, xi.perpendicular)


@pytest.mark.parametrize("radius", [0.0, 4.0, 30.0, 39.0, 41.0, *FAR])
def test_a_zero_slice_is_the_origin_at_every_radius(radius: float) -> None:
    joined = geometry.concat([far_point(0.0, 1, 0), far_point(radius, 0.6, -0.8)])
    zero, other = geometry.split(joined, 2)
    assert float(zero.radius) < 1e-15
    assert abs(float(other.radius) - radius) <= 4 * EPS * (radius + 1)


@pytest.mark.parametrize("slice_length", [1e-10, 1e-20, 1e-30])
def test_a_tiny_slice_far_out_keeps_its_radius(slice_length: float) -> None:
    p = PolarPoint(torch.tensor(100.0), torch.tensor([slice_length, 1.0]))
    small, _ = geometry.split(p, 2)
    assert abs(float(small.radius) - (100 + math.log(float(p.direction[0])))) <= 4 * EPS * 101


def test_the_radius_of_a_vanishing_slice_is_never_negative() -> None:
    """s + ln(x + hypot(x, e^-s)) is a rounding of s below zero there."""
    radius = torch.linspace(41, 100, 400)
    length = torch.exp(-radius - torch.linspace(0, 9, 400))
    small, _ = geometry.split(PolarPoint(radius, torch.stack([length, torch.ones(400)], -1)), 2)
    assert (small.radius >= 0).all()
    assert (small.radius <= 1 + 4 * EPS * 100).all()


@pytest.mark.parametrize("radius", [4.0, 39.0, 41.0, *FAR])
def test_a_point_minus_itself_is_the_origin(radius: float) -> None:
    p = far_point(radius, 0.3, -0.5, 0.7)
    assert float(geometry.gyroadd(geometry.gyroneg(p), p).radius) < 1e-15
    assert float(geometry.log_map(p, p).radial.abs()) < 1e-15
    assert float(geometry.distance(p, p)) == 0


@pytest.mark.parametrize("t", [1e8, 1e12, 1e20, 1e30])
def test_enormous_shifts_do_not_overflow(t: float) -> None:
    """x_1 = t^2 nu/2, and so a' = 2 ln t + ln nu."""
    for radius, nu in ((0.0, 1.0), (300.0, 0.5 * 1.6)):
        z = geometry.horoshift(far_point(radius, -0.6, 0.8), t)
        want = radius + 2 * math.log(t) + math.log(nu)
        assert abs(float(z.radius) - want) <= 4 * EPS * (want + 1)
