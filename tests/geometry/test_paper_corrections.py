"""Eleven places where the paper is wrong or unsafe: its form fails here, and ours holds."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
from oracle import Exact, numbers
from samples import directions, pair
from torch import Tensor

import polarvit.geometry as geometry
from polarvit.geometry import PolarPoint, ambient, from_tangent0, to_tangent0

EPS = torch.finfo(torch.float32).eps / 2


def unit(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    x = torch.tensor(values, dtype=torch.float64)
    return (x / x.norm()).to(dtype)


def cloud(seed: int, count: int = 6, n: int = 3, radius: float = 1.5) -> PolarPoint:
    generator = torch.Generator().manual_seed(seed)
    u = directions(count, n, torch.float64, generator)
    return PolarPoint(radius * torch.rand(count, generator=generator, dtype=torch.float64), u)


# 1. Polar-FC


@pytest.mark.parametrize("k", [0.5, 1.0, 2.3])
def test_1_polar_fc_starts_as_the_lorentz_layer_only_without_the_second_division(k: float) -> None:
    """At beta = 1 and zero lambda, phi the layer should be Wx with the time recomputed: sinh a' = |W x|/sqrt k."""
    generator = torch.Generator().manual_seed(4)
    weight = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    p = cloud(4)
    h = geometry.to_ambient(p, k=k) @ weight.mT
    lorentz = geometry.from_space(h, k=k).radius / math.sqrt(k)

    ours = torch.asinh(h.norm(dim=-1) / math.sqrt(k))
    papers = torch.asinh((h / math.sqrt(k)).norm(dim=-1) / math.sqrt(k))
    torch.testing.assert_close(ours, lorentz)
    assert torch.allclose(papers, lorentz) == (k == 1)


# 2. Order of gyro centering


def test_2_centering_puts_the_centroid_at_the_origin_only_from_the_left() -> None:
    p = geometry.boost(cloud(1), 2.0)
    mean = geometry.gyroneg(geometry.centroid(p))
    ours, appendix = geometry.gyroadd(mean, p), geometry.gyroadd(p, mean)
    assert float(geometry.centroid(ours).radius) < 1e-12
    assert float(geometry.centroid(appendix).radius) > 0.1


# 3. What the norm's scaling keeps


def test_3_scaling_moves_the_centroid_but_sets_the_mean_squared_distance_exactly() -> None:
    p, gain, eps = cloud(2, radius=3.0), 1.7, 1e-3
    mean, bias = geometry.centroid(p), from_tangent0(torch.tensor([0.3, -0.8, 0.4], dtype=torch.float64))
    centred = geometry.gyroadd(geometry.gyroneg(mean), p)
    variance = geometry.squared_distance(p, mean).mean()
    scaled = geometry.gyroscale(centred, float(gain / (variance + eps).sqrt()))
    normed = geometry.gyroadd(bias, scaled)

    assert float(geometry.centroid(centred).radius) < 1e-12, "before the gain the centroid is the origin"
    assert float(geometry.centroid(scaled).radius) > 0.02, "after it, it is not: the paper's claim"
    spread = geometry.squared_distance(normed, bias).mean()
    torch.testing.assert_close(spread, gain**2 * variance / (variance + eps))


# 4. Laws of rotation and boost


def test_4_rotation_law_of_the_paper_holds_only_in_the_rotated_plane() -> None:
    """arcosh(cosh^2 a - sinh^2 a cos t) ignores how much of u lies in the plane."""
    a, t = 2.0, 0.9
    papers = math.acosh(math.cosh(a) ** 2 - math.sinh(a) ** 2 * math.cos(t))
    for u, holds in ((unit(0.6, 0.8, 0, dtype=torch.float64), True), (unit(1, 1, 1, dtype=torch.float64), False)):
        p = PolarPoint(torch.tensor(a, dtype=torch.float64), u)
        d = float(geometry.distance(p, geometry.rotate(p, t)))
        plane = float(u[:2].square().sum())
        assert math.isclose(math.cosh(d), 1 + math.sinh(a) ** 2 * plane * (1 - math.cos(t)), rel_tol=1e-12)
        assert math.isclose(d, papers, rel_tol=1e-12) == holds


def test_4_boost_moves_by_more_than_its_rapidity_off_the_axis() -> None:
    """sinh(d/2) = sinh(|t|/2) sqrt(1 + sinh^2 a (1 - u_1^2)): the paper gives only the lower bound |t|."""
    a, t = 2.0, 0.7
    for u in (unit(1, 0, 0, dtype=torch.float64), unit(1, 2, 2, dtype=torch.float64)):
        p = PolarPoint(torch.tensor(a, dtype=torch.float64), u)
        d = float(geometry.distance(p, geometry.boost(p, t)))
        reach = math.sqrt(1 + math.sinh(a) ** 2 * float(u[1:].square().sum()))
        assert math.isclose(math.sinh(d / 2), math.sinh(t / 2) * reach, rel_tol=1e-12)
        assert d >= t - 1e-12


# 5. The range a < 88.7


def test_5_the_papers_distance_overflows_long_before_its_range_ends() -> None:
    """arsinh sqrt(c (c + 2)) squares c = cosh d - 1, which leaves float32 once d > 44."""
    p = PolarPoint(torch.tensor([20.0, 24.0, 80.0]), unit(1, 0).expand(3, 2))
    q = PolarPoint(p.radius, -p.direction)
    c = 2 * torch.sinh((p.radius - q.radius) / 2).square() + torch.sinh(p.radius) * torch.sinh(q.radius) * 2
    papers = torch.asinh(torch.sqrt(c * (c + 2)))
    assert papers.isfinite().tolist() == [True, False, False]
    torch.testing.assert_close(geometry.distance(p, q), 2 * p.radius)


def test_5_the_papers_gyroaddition_overflows_in_its_sums_of_squares() -> None:
    """Space parts in units of sqrt(k): R u + Q t with R, Q unscaled, then a norm."""
    a = torch.tensor(50.0)
    u, v = unit(0.6, 0.8), unit(0.8, -0.6)
    gap = 0.5 * (u + v).square().sum()
    space = (torch.cosh(a) * torch.sinh(a) * gap) * u + torch.sinh(a) * (v - (v * u).sum() * u)
    assert not torch.sqrt(space.square().sum()).isfinite()
    z = geometry.gyroadd(PolarPoint(a, u), PolarPoint(a, v))
    assert abs(float(z.radius) - (100 + math.log(0.5))) < 1e-3


def test_5_the_papers_exponential_has_a_nan_gradient() -> None:
    """1 - tanh a as 2/(e^2a + 1): e^2a overflows, and inf/inf^2 is NaN in backward; 2e^-2a/(1 + e^-2a) is safe."""
    a = torch.tensor(45.0, requires_grad=True)
    (papers,) = torch.autograd.grad(2 / (torch.exp(2 * a) + 1), a)
    assert papers.isnan()
    (safe,) = torch.autograd.grad(2 * torch.exp(-2 * a) / (1 + torch.exp(-2 * a)), a)
    assert safe.isfinite()
    far = torch.tensor([0.6, 0.8]) * 200
    far.requires_grad_()
    point = from_tangent0(far)
    other = PolarPoint(torch.tensor(150.0), unit(1, 0))
    for value in (geometry.distance(point, other), geometry.gyroadd(point, other).radius, geometry.busemann(point)):
        assert torch.autograd.grad(value, far, retain_graph=True)[0].isfinite().all()


# 6. nu near the ideal point


@pytest.mark.parametrize(("radius", "failing"), [(8.0, 1e-2), (12.0, 0.2)])
def test_6_one_minus_u_1_cancels_near_the_ideal_point(radius: float, failing: float) -> None:
    """Directions at an angle of about e^-a from the axis, where the angular term of nu matters at all."""
    generator = torch.Generator().manual_seed(6)
    tilt = 2 * math.exp(-radius) * directions(400, 3, torch.float64, generator)
    u = torch.cat([torch.ones(400, 1, dtype=torch.float64), tilt], -1)
    u = (u / u.norm(dim=-1, keepdim=True)).float()
    p = PolarPoint(torch.full((400,), radius), u)
    exact = Exact(1.0)
    true = torch.tensor([float(mp.exp(exact.busemann(exact.point(p.radius[i], u[i]), 0))) for i in range(400)])
    papers = torch.exp(-p.radius) + torch.sinh(p.radius) * (1 - u[:, 0])
    ours = torch.exp(geometry.busemann(p))
    assert float(((papers - true) / true).abs().max()) > failing
    assert float(((ours - true) / true).abs().max()) < 20 * EPS * (radius + 1)


# 7. The centroid past a = 17


def papers_centroid(p: PolarPoint) -> Tensor:
    """a_mu with the direction V/|V|, in log form with e^m removed so that nothing overflows."""
    m = p.radius.max()
    mass = -0.5 * torch.expm1(-2 * p.radius) * torch.exp(p.radius - m)
    v = (mass[:, None] * p.direction).sum(0)
    mean = v / v.norm()
    s = (mass * 0.5 * (p.direction - mean).square().sum(-1)).sum()
    log_e = torch.logsumexp(-p.radius - m, 0)
    lam = torch.logaddexp(torch.log(s), log_e)
    return 0.5 * (torch.logaddexp(torch.log(2 * v.norm()), lam) - lam)


def test_7_equal_points_far_out_are_their_own_centroid() -> None:
    """V/|V| is off by eps, so S = eps^2 e^a swamps E = e^-a: the paper's centroid falls back to about 17."""
    generator = torch.Generator().manual_seed(7)
    fallen = []
    for u in directions(20, 17, torch.float32, generator):
        p = PolarPoint(torch.full((5,), 200.0), u.expand(5, 17))
        fallen.append(float(papers_centroid(p)))
        assert float(geometry.centroid(p).radius) == 200.0
    assert min(fallen) < 25


# 8. The boost residual


def test_8_the_radius_of_the_residual_can_turn_negative() -> None:
    """a + alpha (b_par - mean) below zero is no radius: the point passes through the origin to (|a'|, -u')."""
    u = unit(0.6, 0.8, dtype=torch.float64)
    signed = torch.tensor(0.2 - 0.5, dtype=torch.float64)
    with pytest.raises(ValueError, match="non-negative"):
        geometry.validate(PolarPoint(signed, u))
    through = geometry.validate(geometry.gyroscale(PolarPoint(torch.ones((), dtype=torch.float64), u), signed))
    step = PolarPoint(torch.tensor(0.5, dtype=torch.float64), -u)
    geodesic = geometry.gyroadd(PolarPoint(torch.tensor(0.2, dtype=torch.float64), u), step)
    assert float(geometry.distance(through, geodesic)) < 1e-12


def test_8_only_signed_radii_keep_their_mean() -> None:
    radius, steps = torch.tensor([0.2, 3.0]), torch.tensor([-0.5, 0.5])
    signed = radius + steps
    assert torch.isclose(signed.mean(), radius.mean())
    assert not torch.isclose(signed.abs().mean(), radius.mean())


def test_8_the_tilt_has_no_gradient_in_its_own_direction_form_at_zero() -> None:
    """sinh(b_perp) v_perp/|v_perp| is NaN in backward where v is parallel to u; sinhc(b|t|) b t is smooth."""
    u = torch.tensor([1.0, 0.0])

    def across(v: Tensor) -> Tensor:
        return v - (v * u).sum() * u

    def papers(v: Tensor) -> Tensor:
        t = across(v)
        length = t.norm()
        return torch.sinh(length) * t / length

    def ours(v: Tensor) -> Tensor:
        """sinh(x)/x through the space part of the point t: sinh|t| t/|t|."""
        return geometry.to_space(from_tangent0(across(v)))

    for function, finite in ((papers, False), (ours, True)):
        v = torch.tensor([0.7, 0.0], requires_grad=True)
        (gradient,) = torch.autograd.grad(function(v)[1], v)
        assert bool(gradient.isfinite().all()) == finite
    torch.testing.assert_close(gradient, torch.tensor([0.0, 1.0]))


# 9. Sign of the Busemann function


def test_9_the_busemann_function_falls_towards_its_ideal_point() -> None:
    """b(x) = lim d(x, y_s) - s for y_s going to the ideal point; the paper's -ln nu is minus that."""
    x = from_tangent0(torch.tensor([0.8, -0.5, 0.3], dtype=torch.float64))
    s = torch.tensor(200.0, dtype=torch.float64)
    limit = geometry.distance(x, PolarPoint(s, unit(1, 0, 0, dtype=torch.float64))) - s
    ours, papers = geometry.busemann(x), -geometry.busemann(x)
    torch.testing.assert_close(ours, limit)
    assert not torch.isclose(papers, limit)
    along = PolarPoint(torch.tensor(5.0), unit(1, 0, 0))
    assert float(geometry.busemann(along)) == -5


# 10. The frame at the origin


def test_10_at_the_origin_the_frame_is_that_of_the_stored_direction() -> None:
    """Were every tangent vector there perpendicular, log_o q carried along the ray to q would not point outward."""
    origin = PolarPoint(torch.tensor(0.0, dtype=torch.float64), unit(0.6, 0.8, dtype=torch.float64))
    q = from_tangent0(torch.tensor([1.1, -0.4], dtype=torch.float64))
    xi = geometry.log_map(origin, q)
    torch.testing.assert_close(xi.radial * origin.direction + xi.perpendicular, to_tangent0(q))
    assert float(geometry.distance(geometry.exp_map(origin, xi), q)) < 1e-12

    papers = geometry.PolarTangent(torch.zeros_like(xi.radial), to_tangent0(q))
    ours, theirs = geometry.transport(origin, q, xi), geometry.transport(origin, q, papers)
    torch.testing.assert_close(ours.radial, q.radius)
    assert float(ours.perpendicular.norm()) < 1e-12
    assert abs(float(theirs.radial - q.radius)) > 0.05


# 11. The weight-decay example


@pytest.mark.parametrize(("radius", "true"), [(8.0, 7.9853), (9.0, 8.9610), (12.0, 11.5170)])
def test_11_weight_decay_gives_the_true_radius_where_the_ambient_step_does_not(radius: float, true: float) -> None:
    """Centroid of x and o with weights (1 - w, w), w = 1e-5. The paper's two accounts of the ambient step (outward
    at 8, NaN at 9; outward beyond 9) exclude each other; measured over directions it is wrong in both ways."""
    w = torch.tensor([1 - 1e-5, 1e-5])
    p, _ = pair("far", 300, 8, radius, 1.0, torch.float32, 11)
    both = PolarPoint(torch.stack([p.radius, 0 * p.radius], -1), torch.stack([p.direction, p.direction], 1))
    rows = w.expand(300, 2)
    torch.testing.assert_close(geometry.centroid(both, rows).radius, torch.full((300,), true), atol=6e-5, rtol=0)

    exact = Exact(1.0)
    one = exact.centroid([exact.point(p.radius[0], p.direction[0]), [mp.mpf(1)] + [mp.mpf(0)] * 8], numbers(w))
    assert abs(float(exact.radius(one)) - true) < 6e-5

    steps = geometry.from_ambient(ambient.centroid(geometry.to_ambient(both), rows)).radius - radius
    assert (steps > 0).any(), "some directions move outward"
    assert float((steps - (true - radius)).abs().min()) > 0.01, "and not one is right to a hundredth"
