"""Riemannian AdamW in ambient arithmetic: right near the origin, and wrong where the paper says it is."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import geoopt
import pytest
import torch
from tiny_runs import differing, tiny_recipe, weights
from torch import nn

from polarvit.geometry import ambient, from_tangent0, squared_distance, to_ambient
from polarvit.optim import AmbientRiemannianAdamW, RiemannianAdamW, param_groups
from polarvit.optim.ambient import decayed, lifted_gradient
from polarvit.parameters import MANIFOLD
from polarvit.training import continuity, train
from polarvit.training.checkpoint import CheckpointError
from polarvit.training.settings import plain

F64 = torch.float64


class Points(nn.Module):
    roles = {"v": MANIFOLD}  # noqa: RUF012 - the declaration under test

    def __init__(self, start: torch.Tensor) -> None:
        super().__init__()
        self.v = nn.Parameter(start.clone())


def walk(cls: type[RiemannianAdamW], k: float, decay: float, steps: int = 60) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    start, goal = (torch.randn(3, 4, dtype=F64, generator=generator) for _ in range(2))
    points = Points(start)
    optimizer = cls(param_groups(points, lr=0.05, weight_decay=decay, k=k))
    for _ in range(steps):
        optimizer.zero_grad()
        squared_distance(from_tangent0(points.v, k=k), from_tangent0(1.5 * goal, k=k), k=k).sum().backward()
        optimizer.step()
    return points.v.detach()


@pytest.mark.parametrize("k", [0.5, 1.0, 2.3])
def test_near_the_origin_in_float64_it_walks_the_polar_path(k: float) -> None:
    torch.testing.assert_close(
        walk(AmbientRiemannianAdamW, k, 0.0), walk(RiemannianAdamW, k, 0.0), rtol=1e-6, atol=1e-6
    )
    # Published code projects the gradient at the decayed point, the polar form carries it there: lr wd apart.
    torch.testing.assert_close(
        walk(AmbientRiemannianAdamW, k, 0.02), walk(RiemannianAdamW, k, 0.02), rtol=5e-3, atol=5e-3
    )


def test_it_walks_the_path_of_geoopts_riemannian_adam() -> None:
    generator = torch.Generator().manual_seed(0)
    start, goal = (torch.randn(3, 4, dtype=F64, generator=generator) for _ in range(2))
    manifold = geoopt.Lorentz(k=1.0)
    theirs = geoopt.ManifoldParameter(to_ambient(from_tangent0(start)), manifold=manifold)
    reference = geoopt.optim.RiemannianAdam([theirs], lr=0.05)
    target = to_ambient(from_tangent0(1.5 * goal))
    for _ in range(60):
        reference.zero_grad()
        manifold.dist(theirs, target).square().sum().backward()
        reference.step()
    ours = to_ambient(from_tangent0(walk(AmbientRiemannianAdamW, 1.0, 0.0)))
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("k", [0.5, 2.3])
def test_the_lifted_gradient_is_the_riemannian_gradient_of_the_ambient_loss(k: float) -> None:
    generator = torch.Generator().manual_seed(1)
    v = torch.randn(5, 4, dtype=F64, generator=generator, requires_grad=True)
    pull = torch.randn(5, 5, dtype=F64, generator=generator)
    x = ambient.from_tangent0(v, k=k)
    (g,) = torch.autograd.grad((x.sin() * pull).sum(), v)
    euclidean = pull * x.detach().cos()
    wanted = ambient.riemannian_gradient(x.detach(), euclidean, k=k)
    torch.testing.assert_close(lifted_gradient(v.detach(), g, k), wanted)


def test_the_decay_step_is_the_ambient_centroid_with_the_origin() -> None:
    w, k = 0.1, 2.3
    x = ambient.from_tangent0(torch.tensor([0.7, -1.1, 0.4], dtype=F64), k=k).tolist()
    mean = [(1 - w) * value for value in x]
    mean[0] += w * math.sqrt(k)
    size = math.sqrt(mean[0] ** 2 - sum(value**2 for value in mean[1:]))
    wanted = [math.sqrt(k) * value / size for value in mean]
    torch.testing.assert_close(decayed(torch.tensor(x, dtype=F64), w, k=k).tolist(), wanted)


@pytest.mark.parametrize(
    ("radius", "true", "found"), [(8.0, 7.9853, 8.14), (9.0, 8.9610, 18.21), (12.0, 11.5170, 21.21)]
)
def test_in_float32_the_decay_step_moves_points_outward_where_the_polar_one_is_right(
    radius: float, true: float, found: float
) -> None:
    ends = []
    for cls in (RiemannianAdamW, AmbientRiemannianAdamW):
        points = Points(torch.tensor([[radius, 0.0, 0.0]]))
        points.v.grad = torch.zeros_like(points.v)
        cls(param_groups(points, lr=1e-3, weight_decay=1e-2)).step()
        ends.append(points.v.detach().norm().item())
    assert ends[0] == pytest.approx(true, abs=5e-5)
    assert ends[1] == pytest.approx(found, abs=0.01)
    in_double = decayed(ambient.from_tangent0(torch.tensor([min(radius, 9.0), 0.0], dtype=F64)), 1e-5)
    assert torch.acosh(in_double[0]).item() == pytest.approx(min(true, 8.9610), abs=5e-5)


def test_ordinary_parameters_are_left_to_the_parent() -> None:
    layers = [nn.Linear(3, 2) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    for layer, cls in zip(layers, (RiemannianAdamW, AmbientRiemannianAdamW), strict=True):
        optimizer = cls(param_groups(layer, lr=0.1, weight_decay=0.1))
        layer(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()
    assert torch.equal(layers[0].weight, layers[1].weight)


@pytest.mark.parametrize("name", ["polar_vit_tiny", "hexformer_tiny", "hvt_tiny"])
def test_a_model_trains_in_ambient_arithmetic_where_asked(tmp_path: Path, name: str) -> None:
    found = {}
    for arithmetic in ("polar", "ambient"):
        recipe = tiny_recipe("train.steps=3", f"optim.arithmetic={arithmetic}", name=name)
        train(recipe, tmp_path / arithmetic, device="cpu", quiet=True)
        found[arithmetic] = weights(tmp_path / arithmetic)
    right, wrong = ({key: x for key, x in one.items() if key.startswith("model/")} for one in found.values())
    for key, x in right.items():  # near the origin both are right, to sqrt(eps)
        torch.testing.assert_close(wrong[key], x, rtol=1e-3, atol=1e-3, msg=lambda text, key=key: f"{key}: {text}")
    assert differing(right, wrong)
    with pytest.raises(CheckpointError, match=r"optim\.arithmetic was 'ambient' and is 'polar' now"):
        train(tiny_recipe("train.steps=4", name=name), tmp_path / "ambient", resume=True, device="cpu", quiet=True)


def test_a_run_from_before_there_was_a_choice_goes_on() -> None:
    recipe = tiny_recipe()
    before = plain(recipe)
    del before["optim"]["arithmetic"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        continuity.check(before, recipe)
