"""docs/geometry.md says what an operation is called in geoopt: here each line is held against it, in float64."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from polarvit.geometry import (
    centroid,
    distance,
    exp_map,
    from_tangent0,
    gyroadd,
    gyroneg,
    gyroscale,
    log_map,
    to_ambient,
    to_ball,
    to_tangent0,
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


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


def test_on_the_hyperboloid(v: torch.Tensor, k: float, lorentz: Any) -> None:
    p, q = from_tangent0(v[0]), from_tangent0(v[1])
    x, y = to_ambient(p, k=k), to_ambient(q, k=k)
    time = torch.zeros(6, 1, dtype=F64)
    same(lorentz.expmap0(torch.cat([time, v[0]], -1)), x)
    same(lorentz.logmap0(x)[:, 1:], to_tangent0(p))
    same(lorentz.dist(x, y), distance(p, q, k=k))
    same(lorentz.expmap(x, lorentz.transp0(x, lorentz.logmap0(y))), to_ambient(gyroadd(p, q, k=k), k=k))
    same(to_ambient(exp_map(p, log_map(p, q, k=k), k=k), k=k), lorentz.expmap(x, lorentz.logmap(x, y)))


def test_in_the_ball(v: torch.Tensor, k: float, ball: Any) -> None:
    p, q = from_tangent0(v[0]), from_tangent0(v[1])
    x, y = to_ball(p, k=k), to_ball(q, k=k)
    same(ball.expmap0(v[0] / 2), x)
    same(2 * ball.logmap0(x), to_tangent0(p))
    same(ball.dist(x, y), distance(p, q, k=k))
    same(ball.mobius_add(x, y), to_ball(gyroadd(p, q, k=k), k=k))
    same(-x, to_ball(gyroneg(p), k=k))
    same(ball.mobius_scalar_mul(torch.tensor(0.7, dtype=F64), x), to_ball(gyroscale(p, 0.7), k=k))
    weights = torch.arange(1, 7, dtype=F64)
    same(ball.weighted_midpoint(x, weights), to_ball(centroid(p, weights, k=k), k=k))


def test_tangent_vectors_have_the_length_they_have_there(v: torch.Tensor, k: float, lorentz: Any, ball: Any) -> None:
    p, q = from_tangent0(v[0]), from_tangent0(v[1])
    xi = log_map(p, q, k=k)
    length = torch.hypot(xi.radial, xi.perpendicular.norm(dim=-1))
    x, y = to_ambient(p, k=k), to_ambient(q, k=k)
    same(lorentz.norm(lorentz.logmap(x, y)), length)
    x, y = to_ball(p, k=k), to_ball(q, k=k)
    same(ball.norm(x, ball.logmap(x, y)), length)
