"""Activation, pooling and upsampling of images of points."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from nn.conv.definitions import image, leaves, tangential, upsampling

from polarvit.geometry import PolarPoint, distance, from_space, to_space
from polarvit.nn import PolarActivation, PolarMaxPool2d, PolarUpsample2d

EPS = 2.0**-24


@pytest.mark.parametrize("k", [1.0, 2.3])
@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_an_activation_acts_on_space_coordinates(name: str, k: float) -> None:
    x = image((2, 3, 4), 5, 2.0)
    wanted = from_space({"relu": torch.relu, "gelu": F.gelu}[name](to_space(x, k=k)), k=k)
    out = PolarActivation(name)(x, k=k)
    torch.testing.assert_close(out.radius, wanted.radius)
    torch.testing.assert_close(out.direction, wanted.direction)
    far = PolarActivation(name)(image((1, 2, 2), 5, 500.0).map(torch.Tensor.float))
    assert torch.isfinite(far.radius).all()
    with pytest.raises(ValueError, match="'relu' or 'gelu'"):
        PolarActivation("tanh")


def test_all_negative_coordinates_become_the_origin() -> None:
    x = leaves(PolarPoint(torch.ones(1, 1, 1), -F.normalize(torch.ones(1, 1, 1, 3), dim=-1)))
    out = PolarActivation()(x)
    assert out.radius.item() < 1e-15
    out.radius.sum().backward()
    assert torch.isfinite(x.radius.grad).all()


@pytest.mark.parametrize("k", [1.0, 2.3])
def test_max_pooling_takes_the_largest_space_coordinates(k: float) -> None:
    x = image((2, 4, 6), 5, 2.0)
    largest = F.max_pool2d(to_space(x, k=k).permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
    wanted, out = from_space(largest, k=k), PolarMaxPool2d(2)(x, k=k)
    torch.testing.assert_close(out.radius, wanted.radius)
    torch.testing.assert_close(out.direction, wanted.direction)
    far = PolarMaxPool2d(2)(image((1, 4, 4), 5, 500.0).map(torch.Tensor.float))
    assert torch.isfinite(far.radius).all()


@pytest.mark.parametrize("k", [1.0, 2.3])
@pytest.mark.parametrize("radius", [0.5, 5.0])
def test_upsampling_gives_centroids_of_neighbours(radius: float, k: float) -> None:
    x = leaves(image((2, 3, 4), 5, radius))
    out, wanted = PolarUpsample2d()(x, k=k), upsampling(x, k)
    torch.testing.assert_close(out.radius, wanted.radius, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(out.direction, wanted.direction, rtol=1e-10, atol=1e-12)
    ways = out.map(torch.randn_like)
    ours, theirs = (
        torch.autograd.grad(sum((a * b).sum() for a, b in zip(y, ways, strict=True)), list(x)) for y in (out, wanted)
    )
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(tangential(x, ours[1]), tangential(x, theirs[1]), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("radius", [1.0, 8.0, 12.0])
@pytest.mark.parametrize("together", [True, False])
def test_upsampling_in_float32_is_within_the_resolution_limit(radius: float, together: bool) -> None:
    cluster = 1 / torch.sinh(torch.tensor(radius)).item() if together else None
    x = image((4, 8, 8), 8, radius, cluster=cluster).map(torch.Tensor.float)
    exact = PolarPoint(x.radius.double(), F.normalize(x.direction.double(), dim=-1))
    out, truth = PolarUpsample2d()(x), upsampling(exact)
    error = distance(PolarPoint(out.radius.double(), F.normalize(out.direction.double(), dim=-1)), truth)
    largest = F.interpolate(F.max_pool2d(exact.radius.unsqueeze(1), 3, 1, 1), scale_factor=2).squeeze(1)
    ratio = error / (EPS * (largest + 1 + torch.sinh(largest)))
    assert ratio.median() < 2
    assert ratio.quantile(0.999) < 4


def test_equal_points_stay_where_they_are_and_the_origin_too() -> None:
    for radius in (0.0, 9.0, 300.0):
        u = F.normalize(torch.ones(1, 3, 3, 4), dim=-1)
        x = leaves(PolarPoint(torch.full((1, 3, 3), radius), u))
        out = PolarUpsample2d()(x)
        torch.testing.assert_close(out.radius, torch.full((1, 6, 6), radius), rtol=2e-7, atol=1e-15)
        (out.radius.sum() + out.direction.sum()).backward()
        assert all(torch.isfinite(y.grad).all() for y in x)
