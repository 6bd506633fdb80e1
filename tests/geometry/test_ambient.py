"""The ambient baseline: the same geometry at small radius, and failure where the paper says."""

from __future__ import annotations

import pytest
import torch
from samples import pair
from torch import Tensor

import polarvit.geometry as geometry
from polarvit.geometry import PolarPoint, PolarTangent, ambient

K = 1.7


def to_tangent(p: PolarPoint, xi: PolarTangent) -> Tensor:
    """Frame components to an ambient tangent vector."""
    a = p.radius / K**0.5
    radial = torch.cat([torch.sinh(a)[:, None], torch.cosh(a)[:, None] * p.direction], -1)
    return xi.radial[:, None] * radial + torch.nn.functional.pad(xi.perpendicular, (1, 0))


def small_points() -> tuple[PolarPoint, PolarPoint, Tensor, Tensor]:
    p, q = pair("far", 20, 4, 1.2, K, torch.float64, 3)
    p, q = (PolarPoint(x.radius, x.direction / x.direction.norm(dim=-1, keepdim=True)) for x in (p, q))
    return p, q, geometry.to_ambient(p, k=K), geometry.to_ambient(q, k=K)


def agreements() -> dict[str, tuple[Tensor, Tensor]]:
    """Polar result, in ambient coordinates, beside the ambient one."""
    p, q, x, y = small_points()
    t = torch.linspace(-1, 1, 20, dtype=torch.float64)
    weights = torch.rand(3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    xi, zeta = geometry.log_map(p, q, k=K), geometry.log_map(p, geometry.gyroneg(q), k=K)
    step, other = to_tangent(p, xi), to_tangent(p, zeta)
    gradient = torch.linspace(-1, 1, 100, dtype=torch.float64).reshape(20, 5)
    flat = lambda z: geometry.to_ambient(z, k=K)  # noqa: E731
    leaf = [value.clone().requires_grad_() for value in p]
    (flat(PolarPoint(*leaf)) * gradient).sum().backward()
    polar_gradient = geometry.riemannian_gradient(p, PolarPoint(leaf[0].grad, leaf[1].grad), k=K)
    v = p.radius[:, None] * p.direction
    halves = zip(geometry.split(p, 2, k=K), ambient.split(x, 2, k=K), strict=True)
    return {
        "from_space": (flat(geometry.from_space(v, k=K)), ambient.from_space(v, k=K)),
        "to_space": (geometry.to_space(p, k=K), ambient.to_space(x, k=K)),
        "from_tangent0": (x, ambient.from_tangent0(v, k=K)),
        "to_tangent0": (geometry.to_tangent0(p), ambient.to_tangent0(x, k=K)),
        "to_ball": (geometry.to_ball(p, k=K), ambient.to_ball(x, k=K)),
        "from_ball": (x, ambient.from_ball(geometry.to_ball(p, k=K), k=K)),
        "to_klein": (geometry.to_klein(p, k=K), ambient.to_klein(x, k=K)),
        "distance": (geometry.distance(p, q, k=K), ambient.distance(x, y, k=K)),
        "squared_distance": (
            2 * K * (torch.cosh(geometry.distance(p, q, k=K) / K**0.5) - 1),
            ambient.squared_distance(x, y, k=K),
        ),
        "pairwise_distance": (geometry.pairwise_distance(p, q, k=K), ambient.pairwise_distance(x, y, k=K)),
        "centroid": (flat(geometry.centroid(p, weights, k=K)), ambient.centroid(x, weights, k=K)),
        "centroid of equal weights": (flat(geometry.centroid(p, k=K)), ambient.centroid(x, k=K)),
        "tangent_inner": (geometry.tangent_inner(xi, zeta, k=K), ambient.tangent_inner(step, other, k=K)),
        "riemannian_gradient": (to_tangent(p, polar_gradient), ambient.riemannian_gradient(x, gradient, k=K)),
        "exp_map": (flat(geometry.exp_map(p, xi, k=K)), ambient.exp_map(x, step, k=K)),
        "log_map": (step, ambient.log_map(x, y, k=K)),
        "transport": (to_tangent(q, geometry.transport(p, q, zeta, k=K)), ambient.transport(x, y, other, k=K)),
        "gyroadd": (flat(geometry.gyroadd(p, q, k=K)), ambient.gyroadd(x, y, k=K)),
        "gyroneg": (flat(geometry.gyroneg(p, k=K)), ambient.gyroneg(x, k=K)),
        "gyroscale": (flat(geometry.gyroscale(p, t, k=K)), ambient.gyroscale(x, t, k=K)),
        "horoshift": (flat(geometry.horoshift(p, t, axes=(2, 0), k=K)), ambient.horoshift(x, t, axes=(2, 0), k=K)),
        "boost": (flat(geometry.boost(p, t, axis=1, k=K)), ambient.boost(x, t, axis=1, k=K)),
        "rotate": (flat(geometry.rotate(p, t, axes=(1, 3), k=K)), ambient.rotate(x, t, axes=(1, 3), k=K)),
        "busemann": (geometry.busemann(p, axis=1, k=K), ambient.busemann(x, axis=1, k=K)),
        "concat": (flat(geometry.concat([p, q], k=K)), ambient.concat([x, y], k=K)),
        "split": tuple(torch.cat(side) for side in zip(*((flat(a), b) for a, b in halves), strict=True)),
    }


@pytest.mark.parametrize("name", agreements())
def test_ambient_agrees_with_polar_near_the_origin(name: str) -> None:
    polar, baseline = agreements()[name]
    torch.testing.assert_close(baseline, polar, rtol=1e-12, atol=1e-12)


def test_ambient_distance_is_noise_or_nan_far_out() -> None:
    """One unit apart at radius 12: float32 ambient coordinates hold nothing of it."""
    p, q = pair("close", 200, 16, 12.0, 1.0, torch.float32, 5)
    x, y = geometry.to_ambient(p), geometry.to_ambient(q)
    true = geometry.distance(p.map(torch.Tensor.double), q.map(torch.Tensor.double))
    wrong = ambient.distance(x, y)
    assert wrong.isnan().any()
    assert float((wrong.nan_to_num(99.0) - true).abs().median()) > 1
    assert float((geometry.distance(p, q) - true).abs().max()) < 0.1
    assert not ambient.distance(x, x).eq(0).all()


def test_ambient_centroid_of_equal_points_leaves_them_far_out() -> None:
    p, _ = pair("far", 1, 16, 12.0, 1.0, torch.float32, 5)
    five = p.map(lambda z: z.expand(5, *z.shape[1:]))
    mean = geometry.from_ambient(ambient.centroid(geometry.to_ambient(five)))
    assert abs(float(mean.radius) - 12) > 0.2
    torch.testing.assert_close(geometry.centroid(five).radius, torch.tensor(12.0))


def test_ambient_weight_decay_pushes_outward_at_radius_nine() -> None:
    """The centroid of x and the origin with weights (1 - w, w), w = 1e-5: the step should be inward."""
    weights = torch.tensor([1 - 1e-5, 1e-5]).expand(500, 2)
    directions = torch.nn.functional.normalize(torch.randn(500, 8, generator=torch.Generator().manual_seed(2)), dim=-1)
    for radius, want in ((8.0, 7.9853), (9.0, 8.9610), (12.0, 11.5170)):
        pairs = PolarPoint(torch.tensor([radius, 0.0]).expand(500, 2), torch.stack([directions, directions], 1))
        polar = geometry.centroid(pairs, weights)
        torch.testing.assert_close(polar.radius, torch.full((500,), want), atol=6e-5, rtol=0)
        baseline = geometry.from_ambient(ambient.centroid(geometry.to_ambient(pairs), weights)).radius
        assert float((baseline - want).abs().median()) > 0.05
    assert (baseline > 12).any()


def test_ambient_tangent_vectors_have_no_norm_far_out() -> None:
    """(sinh a, cosh a u) has norm 1; in float32 cosh^2 - sinh^2 is a multiple of the last bit of e^2a/4."""
    for a in (8.0, 12.0):
        p, _ = pair("far", 100, 8, a, 1.0, torch.float32, 7)
        outward = torch.cat([torch.sinh(p.radius)[:, None], torch.cosh(p.radius)[:, None] * p.direction], -1)
        assert float((ambient.tangent_inner(outward, outward) - 1).abs().max()) > 0.1


def test_a_centroid_without_weights_is_no_matrix_product() -> None:
    """TF32 would cut the points of a batch norm to ten bits."""
    points = small_points()[2].view(4, 5, -1)
    with torch.profiler.profile() as seen:
        mean = ambient.centroid(points, k=K)
    assert not {"aten::matmul", "aten::bmm", "aten::mm"} & {event.key for event in seen.key_averages()}
    torch.testing.assert_close(mean, ambient.centroid(points, torch.ones(4, 5, dtype=torch.float64), k=K))
