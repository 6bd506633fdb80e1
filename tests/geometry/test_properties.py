"""Laws of hyperbolic geometry for arbitrary points. Tolerances are a few resolution limits of the farthest point."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import resolution
from samples import directions

import polarvit.geometry as geometry
from polarvit.geometry import PolarPoint, PolarTangent


def law(*strategies: st.SearchStrategy) -> Callable:
    """Hypothesis with few, repeatable examples."""
    return lambda test: settings(max_examples=25, deadline=None, derandomize=True)(given(*strategies)(test))


N = 4
COUNT = 6
SLACK = 8  # several operations follow one another, each within 4 limits
seeds = st.integers(0, 2**20)
radii = st.floats(0, 14)
curvatures = st.sampled_from([0.5, 1.0, 2.3])
steps = st.floats(-3, 3)


def points(seed: int, radius: float) -> PolarPoint:
    """COUNT points up to `radius`, the last one at it."""
    generator = torch.Generator().manual_seed(seed)
    r = radius * torch.rand(COUNT, generator=generator)
    r[-1] = radius
    return PolarPoint(r, directions(COUNT, N, torch.float32, generator))


def doubled(p: PolarPoint) -> PolarPoint:
    """In float64, with directions of unit length there too."""
    u = p.direction.double()
    return PolarPoint(p.radius.double(), u / u.norm(dim=-1, keepdim=True))


def limit(k: float, *radii: torch.Tensor | float) -> float:
    return SLACK * resolution(max(float(torch.as_tensor(r).max()) for r in radii), k, torch.float32)


def assert_same(p: PolarPoint, q: PolarPoint, k: float, *radii: torch.Tensor | float) -> None:
    assert float(geometry.distance(p, q, k=k).max()) <= limit(k, p.radius, q.radius, *radii)


@law(seeds, seeds, radii, radii, steps, curvatures)
@pytest.mark.parametrize("name", ["boost", "rotate", "horoshift", "joint_horoshift", "gyroadd"])
def test_isometries_keep_distances(name: str, one: int, two: int, r: float, s: float, t: float, k: float) -> None:
    p, q, centre = points(one, r), points(two, s), points(one ^ 77, min(s, 3.0))
    move = {
        "boost": lambda x: geometry.boost(x, t, axis=1, k=k),
        "rotate": lambda x: geometry.rotate(x, t, axes=(0, 2), k=k),
        "horoshift": lambda x: geometry.horoshift(x, t, axes=(2, 0), k=k),
        "joint_horoshift": lambda x: geometry.horoshift(x, torch.tensor([t, 1 - t]), axes=(2, 0, 3), k=k),
        "gyroadd": lambda x: geometry.gyroadd(centre, x, k=k),
    }[name]
    before, after = geometry.distance(p, q, k=k), geometry.distance(move(p), move(q), k=k)
    assert float((before - after).abs().max()) <= limit(k, move(p).radius, move(q).radius, p.radius, q.radius)


@law(seeds, seeds, radii, radii, curvatures)
def test_exp_and_log_undo_each_other(one: int, two: int, r: float, s: float, k: float) -> None:
    p, q = points(one, r), points(two, s)
    xi = geometry.log_map(p, q, k=k)
    assert_same(geometry.exp_map(p, xi, k=k), q, k, p.radius, geometry.distance(p, q, k=k))
    length = geometry.tangent_inner(xi, xi).sqrt()
    assert float((length - geometry.distance(p, q, k=k)).abs().max()) <= limit(k, p.radius, q.radius)


@law(seeds, seeds, st.floats(0, 9), st.floats(0, 5), curvatures)
def test_log_and_exp_undo_each_other(one: int, two: int, r: float, length: float, k: float) -> None:
    p = points(one, r)
    generator = torch.Generator().manual_seed(two)
    x = torch.randn(COUNT, N, generator=generator)
    x = x - (x * p.direction).sum(-1, keepdim=True) * p.direction
    xi = PolarTangent(torch.randn(COUNT, generator=generator), x)
    size = length / geometry.tangent_inner(xi, xi).sqrt()
    xi = PolarTangent(size * xi.radial, size[:, None] * xi.perpendicular)
    q = geometry.exp_map(p, xi, k=k)
    back = geometry.log_map(p, q, k=k)
    error = torch.hypot(back.radial - xi.radial, (back.perpendicular - xi.perpendicular).norm(dim=-1))
    assert float(error.max()) <= limit(k, p.radius, q.radius)


@law(seeds, seeds, radii, radii, curvatures)
def test_gyroaddition_has_a_left_inverse(one: int, two: int, r: float, s: float, k: float) -> None:
    x, y = points(one, r), points(two, s)
    moved = geometry.gyroadd(x, y, k=k)
    assert_same(geometry.gyroadd(geometry.gyroneg(x, k=k), moved, k=k), y, k, moved.radius, x.radius)


@law(seeds, seeds, radii, radii, curvatures)
def test_gyroaddition_is_exp_of_the_transported_log(one: int, two: int, r: float, s: float, k: float) -> None:
    x, y = points(one, r), points(two, s)
    origin = PolarPoint(torch.zeros(COUNT), x.direction)
    xi = geometry.transport(origin, x, geometry.log_map(origin, y, k=k), k=k)
    assert_same(geometry.exp_map(x, xi, k=k), geometry.gyroadd(x, y, k=k), k, x.radius, y.radius)


@law(seeds, seeds, seeds, radii, curvatures)
def test_triangle_inequality_and_symmetry(one: int, two: int, three: int, r: float, k: float) -> None:
    x, y, z = points(one, r), points(two, r), points(three, r)
    sides = geometry.distance(x, y, k=k) + geometry.distance(y, z, k=k) - geometry.distance(x, z, k=k)
    assert float(sides.min()) >= -limit(k, r)
    assert torch.equal(geometry.distance(x, y, k=k), geometry.distance(y, x, k=k))


@law(seeds, radii, steps, steps, curvatures)
def test_horoshifts_are_a_group_that_keeps_horospheres(seed: int, r: float, s: float, t: float, k: float) -> None:
    p = points(seed, r)
    both = geometry.horoshift(geometry.horoshift(p, s, k=k), t, k=k)
    once = geometry.horoshift(p, s + t, k=k)
    first = geometry.horoshift(p, s, k=k)
    assert_same(both, once, k, p.radius, first.radius)
    assert_same(geometry.horoshift(first, -s, k=k), p, k, first.radius)
    change = geometry.busemann(first, k=k) - geometry.busemann(p, k=k)
    assert float(change.abs().max()) <= limit(k, p.radius, first.radius)


@law(seeds, radii, steps, curvatures)
def test_horoshift_obeys_its_law(seed: int, r: float, t: float, k: float) -> None:
    """sinh(d / 2 sqrt k) = |t| nu / 2 sqrt k, with nu = sqrt k exp(busemann / sqrt k)."""
    p, root = points(seed, r), math.sqrt(k)
    moved = geometry.horoshift(p, t, k=k)
    nu = torch.exp(geometry.busemann(p, k=k).double() / root)
    expected = 2 * root * torch.asinh(0.5 * abs(t) * nu)
    assert float((geometry.distance(p, moved, k=k) - expected).abs().max()) <= limit(k, p.radius, moved.radius)


@law(seeds, radii, steps, curvatures)
def test_boost_obeys_its_corrected_law(seed: int, r: float, t: float, k: float) -> None:
    """sinh(d / 2 sqrt k) = sinh(|t| / 2) sqrt(1 + sinh^2 a (1 - u_1^2))."""
    p, root = points(seed, r), math.sqrt(k)
    u = p.direction.double()
    rest = u[:, 1:].square().sum(-1) / u.square().sum(-1)
    reach = (1 + torch.sinh(p.radius.double() / root).square() * rest).sqrt()
    expected = 2 * root * torch.asinh(math.sinh(abs(t) / 2) * reach)
    moved = geometry.boost(p, t, k=k)
    assert float((geometry.distance(p, moved, k=k) - expected).abs().max()) <= limit(k, p.radius, moved.radius)


@law(seeds, radii, steps, curvatures)
def test_rotation_obeys_its_corrected_law(seed: int, r: float, t: float, k: float) -> None:
    """cosh(d / sqrt k) = 1 + sinh^2 a (u_i^2 + u_j^2)(1 - cos t)."""
    p, root = points(seed, r), math.sqrt(k)
    u = p.direction.double()
    plane = u[:, :2].square().sum(-1) / u.square().sum(-1)
    half = torch.sinh(p.radius.double() / root) * plane.sqrt() * abs(math.sin(t / 2))
    expected = 2 * root * torch.asinh(half)
    moved = geometry.rotate(p, t, k=k)
    assert float((geometry.distance(p, moved, k=k) - expected).abs().max()) <= limit(k, p.radius)


@law(seeds, seeds, st.floats(0, 8), st.tuples(*[st.floats(-2, 2)] * 6), curvatures)
def test_joint_shift_is_relative_in_both_axes(one: int, two: int, r: float, t: tuple[float, ...], k: float) -> None:
    p, q = (doubled(points(seed, r)) for seed in (one, two))
    here, there, common = (torch.tensor(t[i : i + 2], dtype=torch.float64) for i in (0, 2, 4))

    def score(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        moved = (geometry.horoshift(x, s, axes=(0, 1, 2), k=k) for x, s in ((p, a), (q, b)))
        return geometry.distance(*moved, k=k)

    difference = score(here, there) - score(here + common, there + common)
    assert float(difference.abs().max()) <= 100 * resolution(r + 6, k, torch.float64)


def test_separate_shifts_are_not_relative() -> None:
    """Two ideal points: the shifts do not commute, and a common offset of both axes changes the distance."""
    p, q = doubled(points(1, 2.0)), doubled(points(2, 2.0))

    def score(a: tuple[float, float], b: tuple[float, float]) -> torch.Tensor:
        moved = (
            geometry.horoshift(geometry.horoshift(x, s[0], axes=(0, 1)), s[1], axes=(2, 3)) for x, s in ((p, a), (q, b))
        )
        return geometry.distance(*moved)

    assert float((score((0.2, 0.5), (0.9, 0.1)) - score((1.2, 1.5), (1.9, 1.1))).abs().max()) > 0.05


@law(seeds, radii, st.floats(-6, 6), curvatures)
def test_weights_scaled_by_a_constant_change_nothing(seed: int, r: float, exponent: float, k: float) -> None:
    p = points(seed, r)
    weights = torch.rand(3, COUNT, generator=torch.Generator().manual_seed(seed))
    one, two = geometry.centroid(p, weights, k=k), geometry.centroid(p, weights * 10**exponent, k=k)
    assert_same(one, two, k, p.radius)


@law(seeds, radii, curvatures)
def test_permuting_points_changes_nothing(seed: int, r: float, k: float) -> None:
    p, generator = points(seed, r), torch.Generator().manual_seed(seed)
    weights, order = torch.rand(COUNT, generator=generator), torch.randperm(COUNT, generator=generator)
    shuffled = geometry.centroid(p.map(lambda x: x[order]), weights[order], k=k)
    assert_same(geometry.centroid(p, weights, k=k), shuffled, k)


@law(seeds, radii, steps, curvatures)
def test_centroid_commutes_with_isometries(seed: int, r: float, t: float, k: float) -> None:
    p = points(seed, r)
    moved = geometry.boost(p, t, k=k)
    assert_same(
        geometry.boost(geometry.centroid(p, k=k), t, k=k), geometry.centroid(moved, k=k), k, p.radius, moved.radius
    )


@law(seeds, radii, curvatures)
def test_centroid_of_coinciding_points_is_that_point(seed: int, r: float, k: float) -> None:
    p = points(seed, r).map(lambda x: x[-1:].expand(5, *x.shape[1:]))
    weights = torch.rand(5, generator=torch.Generator().manual_seed(seed)) + 0.01
    assert_same(geometry.centroid(p, weights, k=k), p.map(lambda x: x[0]), k)


@law(seeds, seeds, radii, radii, curvatures)
def test_concat_and_split_undo_each_other(one: int, two: int, r: float, s: float, k: float) -> None:
    p, q = points(one, r), points(two, s)
    joined = geometry.concat([p, q], k=k)
    for part, whole in zip(geometry.split(joined, 2, k=k), (p, q), strict=True):
        assert_same(part, whole, k, joined.radius)
    heads = PolarPoint(torch.stack([p.radius, q.radius], -1), torch.stack([p.direction, q.direction], -2))
    for got, want in zip(geometry.concat(heads, k=k), joined, strict=True):
        assert torch.equal(got, want)
    # A slice's rounded radius moves its size sinh a_i by a_i eps: the way back is conditioned worse by that factor.
    back = geometry.concat(geometry.split(joined, [3, 5], k=k), k=k)
    slack = limit(k, joined.radius) * (1 + float(joined.radius.max()) / math.sqrt(k))
    assert float(geometry.distance(back, joined, k=k).max()) <= slack


@law(seeds, seeds, seeds, radii, radii, curvatures)
def test_transport_keeps_inner_products_and_comes_back(
    one: int, two: int, three: int, r: float, s: float, k: float
) -> None:
    """Frame components are rotated: the tolerance is dimensionless."""
    p, q = points(one, r), points(two, s)
    generator = torch.Generator().manual_seed(three)
    xi, zeta = (
        PolarTangent(x[:, 0], x[:, 1:] - (x[:, 1:] * p.direction).sum(-1, keepdim=True) * p.direction)
        for x in torch.randn(2, COUNT, N + 1, generator=generator)
    )
    there = [geometry.transport(p, q, x, k=k) for x in (xi, zeta)]
    size = geometry.tangent_inner(xi, xi).sqrt() * geometry.tangent_inner(zeta, zeta).sqrt()
    change = geometry.tangent_inner(*there) - geometry.tangent_inner(xi, zeta)
    a = max(r, s) / math.sqrt(k)
    assert float((change.abs() / size).max()) <= SLACK * resolution(a, 1.0, torch.float32)
    back = geometry.transport(q, p, there[0], k=k)
    error = torch.hypot(back.radial - xi.radial, (back.perpendicular - xi.perpendicular).norm(dim=-1))
    assert float((error / geometry.tangent_inner(xi, xi).sqrt()).max()) <= 2 * SLACK * resolution(a, 1.0, torch.float32)
