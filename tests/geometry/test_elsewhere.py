"""docs/geometry.md says what an operation is called in geoopt: here each line is held against it, in float64."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from polarvit.geometry import (
    PolarPoint,
    PolarTangent,
    centroid,
    distance,
    exp_map,
    from_tangent0,
    gyroadd,
    gyroneg,
    gyroscale,
    log_map,
    pairwise_distance,
    riemannian_gradient,
    to_ambient,
    to_ball,
    to_tangent0,
    transport,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    geoopt = pytest.importorskip("geoopt")

F64 = torch.float64


@pytest.fixture(params=[1.0, 2.3])
def k(request: pytest.FixtureRequest) -> float:
    return request.param


@pytest.fixture
def v() -> torch.Tensor:
    return torch.randn(2, 6, 3, dtype=F64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def lorentz(k: float) -> Any:
    return geoopt.Lorentz(k=torch.tensor(k, dtype=F64))


@pytest.fixture
def ball(k: float) -> Any:
    return geoopt.PoincareBall(c=torch.tensor(1 / k, dtype=F64))


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


def ambient_vector(p: PolarPoint, xi: PolarTangent, k: float) -> torch.Tensor:
    """The tangent vector at p on the hyperboloid [..., n+1]: outward is (sinh a, cosh a u), across is (0, t)."""
    a = (p.radius / k**0.5).unsqueeze(-1)
    outward = torch.cat([torch.sinh(a), torch.cosh(a) * p.direction], -1)
    across = torch.nn.functional.pad(xi.perpendicular, (1, 0))
    return xi.radial.unsqueeze(-1) * outward + across


def test_on_the_hyperboloid(v: torch.Tensor, k: float, lorentz: Any) -> None:
    p, q, z = (from_tangent0(each) for each in (*v, v.flip(1)[0]))
    x, y, w = (to_ambient(point, k=k) for point in (p, q, z))
    time = torch.zeros(6, 1, dtype=F64)
    assert_same(lorentz.expmap0(torch.cat([time, v[0]], -1)), x)
    assert_same(lorentz.logmap0(x)[:, 1:], to_tangent0(p))
    assert_same(lorentz.dist(x, y), distance(p, q, k=k))
    assert_same(lorentz.dist(x.unsqueeze(1), y.unsqueeze(0)), pairwise_distance(p, q, k=k))
    assert_same(lorentz.expmap(x, lorentz.transp0(x, lorentz.logmap0(y))), to_ambient(gyroadd(p, q, k=k), k=k))
    xi = log_map(p, z, k=k)
    assert_same(ambient_vector(p, xi, k), lorentz.logmap(x, w))
    half = PolarTangent(xi.radial / 2, xi.perpendicular / 2)
    assert_same(to_ambient(exp_map(p, half, k=k), k=k), lorentz.expmap(x, ambient_vector(p, half, k)))
    assert_same(ambient_vector(q, transport(p, q, xi, k=k), k), lorentz.transp(x, y, lorentz.logmap(x, w)))


def test_gradients_are_those_of_the_manifold(v: torch.Tensor, k: float, lorentz: Any) -> None:
    p, q = from_tangent0(v[0]), from_tangent0(v[1])
    stored = p.map(lambda part: part.clone().requires_grad_())
    distance(stored, q, k=k).sum().backward()
    found = riemannian_gradient(p, stored.map(lambda part: part.grad), k=k)
    x = to_ambient(p, k=k).requires_grad_()
    lorentz.dist(x, to_ambient(q, k=k)).sum().backward()
    assert_same(ambient_vector(p, found, k), lorentz.egrad2rgrad(x.detach(), x.grad))


def test_in_the_ball(v: torch.Tensor, k: float, ball: Any) -> None:
    p, q = from_tangent0(v[0]), from_tangent0(v[1])
    x, y = to_ball(p, k=k), to_ball(q, k=k)
    assert_same(ball.expmap0(v[0] / 2), x)
    assert_same(2 * ball.logmap0(x), to_tangent0(p))
    assert_same(ball.dist(x, y), distance(p, q, k=k))
    assert_same(ball.mobius_add(x, y), to_ball(gyroadd(p, q, k=k), k=k))
    assert_same(-x, to_ball(gyroneg(p), k=k))
    assert_same(ball.mobius_scalar_mul(torch.tensor(0.7, dtype=F64), x), to_ball(gyroscale(p, 0.7), k=k))
    weights = torch.arange(1, 7, dtype=F64)
    assert_same(ball.weighted_midpoint(x, weights), to_ball(centroid(p, weights, k=k), k=k))
    xi = log_map(p, q, k=k)
    assert_same(ball.norm(x, ball.logmap(x, y)), torch.hypot(xi.radial, xi.perpendicular.norm(dim=-1)))
    half = PolarTangent(xi.radial / 2, xi.perpendicular / 2)
    assert_same(ball.expmap(x, ball.logmap(x, y) / 2), to_ball(exp_map(p, half, k=k), k=k))
