"""What the norm and the residuals promise, close in and far out."""

from __future__ import annotations

import math

import pytest
import torch

from polarvit.geometry import PolarPoint, ambient, centroid, distance, from_tangent0, gyroadd, gyroneg, to_ambient
from polarvit.nn import BoostResidual, ExactBoostResidual, GyroLayerNorm, SpaceResidual, residual

RADII = (0.1, 12.0)


def stream(radius: float, n: int = 10, dim: int = 8, seed: int = 0) -> PolarPoint:
    """Tokens [3, n] about one apart from each other, at a distance `radius` from the origin."""
    generator = torch.Generator().manual_seed(seed)
    near = from_tangent0(torch.randn(3, n, dim, dtype=torch.float64, generator=generator) / dim**0.5 * min(1, radius))
    far = from_tangent0(torch.randn(3, 1, dim, dtype=torch.float64, generator=generator))
    return gyroadd(PolarPoint(torch.full_like(far.radius, radius), far.direction), near)


@pytest.mark.parametrize("k", [1.0, 2.3])
@pytest.mark.parametrize("radius", RADII)
def test_the_norm_centres_and_sets_the_dispersion(radius: float, k: float) -> None:
    norm = GyroLayerNorm(8, eps=1e-5, k=k).double()
    with torch.no_grad():
        norm.bias.normal_()
    x = stream(radius)
    mean = centroid(x, k=k).map(lambda y: y.unsqueeze(1))
    centred = gyroadd(gyroneg(mean), x, k=k)
    assert centroid(centred, k=k).radius.max() < 1e-9
    sigma2 = distance(mean, x, k=k).square().mean(-1)
    out = norm(x, k=k)
    measured = distance(from_tangent0(norm.bias.detach()), out, k=k).square().mean(-1)
    gain = norm.log_gain.exp().square()
    torch.testing.assert_close(measured, gain * sigma2 / (sigma2 + 1e-5), rtol=1e-8, atol=0)


def test_the_gain_starts_at_the_radius_of_a_euclidean_norm() -> None:
    norm = GyroLayerNorm(192, k=2.3)
    assert norm.log_gain.exp().item() == pytest.approx(math.sqrt(2.3) * math.asinh(math.sqrt(192 / 2.3)), rel=1e-6)


def test_the_bias_leaves_the_origin_at_the_first_step() -> None:
    norm = GyroLayerNorm(8)
    x = stream(1.0).map(torch.Tensor.float)
    goal = from_tangent0(torch.linspace(-1, 1, 8))
    optimizer = torch.optim.SGD(norm.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        loss = distance(goal, norm(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) == 1:
            assert norm.bias.norm() > 1e-3
            assert norm.bias.count_nonzero() == 8
    assert losses[-1] < losses[0]


def test_equal_tokens_stay_finite() -> None:
    norm = GyroLayerNorm(4)
    x = PolarPoint(torch.full((2, 5), 3.0, requires_grad=True), torch.eye(4)[0].expand(2, 5, 4))
    out = norm(x)
    out.radius.sum().backward()
    assert torch.isfinite(out.radius).all()
    assert torch.isfinite(x.radius.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("radius", RADII)
def test_the_boost_residual_keeps_the_mean_signed_radius(radius: float, dtype: torch.dtype) -> None:
    layer = BoostResidual(alpha=0.5).to(dtype)
    x, step = (stream(r, seed=s).map(lambda y: y.to(dtype)) for r, s in ((radius, 0), (2.0, 1)))
    along = step.radius * (x.direction * step.direction).sum(-1)
    passed = x.radius + 0.5 * (along - along.mean(-1, keepdim=True)) < 0
    assert passed.any() == (radius < 1)
    out = layer(x, step)
    signed = torch.where(passed, -out.radius, out.radius)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(signed.mean(-1), x.radius.mean(-1), rtol=4 * eps, atol=8 * eps)


def test_a_negative_radius_passes_through_the_origin() -> None:
    layer = BoostResidual(alpha=1.0).double()
    u = torch.eye(3, dtype=torch.float64)[:2]
    x = PolarPoint(torch.tensor([[0.5, 5.0]], dtype=torch.float64), u.unsqueeze(0))
    step = PolarPoint(torch.tensor([[4.0, 4.0]], dtype=torch.float64), torch.stack([-u[0], u[1]]).unsqueeze(0))
    out = layer(x, step)
    assert out.radius[0].tolist() == pytest.approx([3.5, 9.0])
    torch.testing.assert_close(out.direction[0, 0], -u[0])


def test_the_boost_residual_is_its_equations() -> None:
    layer, (x, step) = BoostResidual(alpha=0.25).double(), (stream(1.0), stream(2.0, seed=3))
    out = layer(x, step, k=2.3)
    root = math.sqrt(2.3)
    a, b, u, v = x.radius / root, step.radius / root, x.direction, step.direction
    along = b * (u * v).sum(-1)
    t = v - (u * v).sum(-1, keepdim=True) * u
    size = t.norm(dim=-1, keepdim=True)
    tilt = torch.tanh(a)[..., None] * u + torch.sinh(0.25 * b[..., None] * size) * t / size
    radius = root * (a + 0.25 * (along - along.mean(-1, keepdim=True)))
    torch.testing.assert_close(out.radius, radius.abs(), rtol=1e-12, atol=0)
    expected = tilt / tilt.norm(dim=-1, keepdim=True) * radius.sign()[..., None]
    torch.testing.assert_close(out.direction, expected, rtol=1e-11, atol=1e-13)


def test_exact_boosts_move_by_the_exact_distance_and_space_addition_adds_coordinates() -> None:
    x, step = stream(1.0), stream(0.5, seed=2)
    out = SpaceResidual()(x, step, k=2.3)
    added = to_ambient(x, k=2.3)[..., 1:] + to_ambient(step, k=2.3)[..., 1:]
    torch.testing.assert_close(to_ambient(out, k=2.3), ambient.from_space(added, k=2.3), rtol=1e-12, atol=1e-13)
    layer = ExactBoostResidual(alpha=0.25).double()
    radial = PolarPoint(step.radius, x.direction)
    torch.testing.assert_close(layer(x, radial).radius, x.radius + 0.25 * step.radius, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["boost", "exact_boost", "ambient_boost", "space"])
def test_stochastic_depth_drops_whole_samples_and_only_while_training(name: str) -> None:
    torch.manual_seed(0)
    layer = residual(name, 0.3, 0.5).double()
    x = stream(1.0).map(lambda y: y.repeat(20, *[1] * (y.ndim - 1)))
    step = stream(1.0, seed=5).map(lambda y: y.repeat(20, *[1] * (y.ndim - 1)))
    still = (layer.train()(x, step).direction - x.direction).abs().amax((1, 2)) < 1e-12
    assert 10 < still.sum() < 50
    assert not ((layer.eval()(x, step).direction - x.direction).abs().amax((1, 2)) < 1e-12).any()
    with pytest.raises(ValueError, match="unknown residual"):
        residual("gated")
    with pytest.raises(ValueError, match=r"drop_path must be in \[0, 1\)"):
        residual(name, drop_path=1.0)
