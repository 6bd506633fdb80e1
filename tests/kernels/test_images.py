"""The passes over images of points as kernels, against plain PyTorch in float64: values, sums and gradients."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from polarvit.kernels.images import (
    operator,
    rule,
    steps,
)
from polarvit.kernels.images.batch_norm import batch_norm, normalise
from polarvit.kernels.pick import kernels

SHAPES = [(37, 8), (20, 33)]


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    make = operator.new_output
    monkeypatch.setattr(operator, "new_output", lambda *given: make(*given).fill_(torch.nan))
    monkeypatch.setattr(operator, "NUMBERS", 128)  # several blocks to a program
    monkeypatch.setattr(operator, "PROGRAMS", 3)


def given(rows: int, width: int, device: torch.device, radius: float = 2.0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows + width)
    made = {
        "a": radius * torch.rand(rows, generator=generator),
        "u": F.normalize(torch.randn(rows, width, generator=generator) + 0.5, dim=-1),
        "b": torch.tensor(0.8),
        "v": F.normalize(torch.randn(width, generator=generator), dim=0),
        "f": torch.tensor(1.3),
        "c": torch.tensor(0.6),
        "e": F.normalize(torch.randn(width, generator=generator), dim=0),
    }
    return {key: value.to(device) for key, value in made.items()}


def assert_close(one: torch.Tensor, two: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert torch.isfinite(one).all()
    assert (one.double() - two).norm() <= tolerance * two.norm() + 2e-6


@pytest.mark.parametrize(("rows", "width"), SHAPES)
@pytest.mark.parametrize("relu", [False, True])
def test_normalising_and_its_gradient(rows, width, relu, device) -> None:
    x = given(rows, width, device)
    ways = [torch.randn(rows, device=device), torch.randn(rows, width, device=device)]
    exact = [value.double() for value in x.values()]
    for one, two in zip(operator.normalised(*x.values(), relu), steps.normalised(*exact, relu), strict=True):
        assert_close(one, two)
    wanted = steps.normalised_backward(*exact, *(way.double() for way in ways), relu)
    for one, two in zip(operator.normalised_backward(*x.values(), *ways, relu), wanted, strict=True):
        assert_close(one, two)


@pytest.mark.parametrize(("rows", "width"), SHAPES)
@pytest.mark.parametrize("radius", [2.0, 50.0])
def test_statistics_and_their_gradients(rows, width, radius, device) -> None:
    x = given(rows, width, device, radius)
    a, u, b, v = (x[key] for key in "aubv")
    largest, t = a.max(), torch.relu(a.max() - 40)
    exact = [value.double() for value in (a, u)]
    wanted = steps.centroid(*exact, largest.double(), t.double(), v.double())
    for one, two in zip(operator.centroid(a, u, largest, t, v), wanted, strict=True):
        assert_close(one, two)
    if radius > 40:
        return
    mean = [b.double(), v.double()]
    assert_close(operator.distance_sum(a, u, b, v), steps.distance_sum(*exact, *mean))
    assert_close(operator.distance_slopes(a, u, b, v), steps.distance_slopes(*exact, *mean))
    scalars = torch.tensor([0.1, -0.2, 0.0, 1.5, 0.3], device=device)
    rest = [scalars, torch.randn(width, device=device), torch.randn_like(a), torch.randn_like(u)]
    wanted = steps.statistics_backward(*exact, *mean, *(y.double() for y in rest))
    for one, two in zip(operator.statistics_backward(a, u, b, v, *rest), wanted, strict=True):
        assert_close(one, two)


@pytest.mark.parametrize("place", [0.0, 0.7, 60.0])
def test_running_statistics(place, device) -> None:
    x = given(2, 6, device)
    old = place * x["e"], torch.tensor(0.4, device=device)
    rest = [x["b"], x["v"], torch.tensor(0.9, device=device), torch.tensor(1.2, device=device)]
    wanted = steps.remember(*(y.double() for y in (*old, *rest)), 0.1)
    for one, two in zip(operator.remember(*old, *rest, 0.1), wanted, strict=True):
        assert_close(one, two)


@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_the_rule_behind_a_convolution(rows, width, device) -> None:
    generator = torch.Generator().manual_seed(rows)
    rows, stride = 2 * rows, width + 1 + (-width - 1) % 4
    y = torch.randn(rows, stride, generator=generator).to(device)
    y[3] = 0
    square = torch.rand(rows, generator=generator).to(device)
    square[:5] = 0
    w = torch.randn(width, generator=generator).to(device) / 5
    scalars = [torch.tensor(x, device=device) for x in (1.1, 0.2, -0.1)]
    t = torch.tensor([0.0, 0.7], device=device)
    ours = operator.finish(y, square, t, w, *scalars)
    exact = [x.double() for x in (y, square, rule.spread(t, square), w, *scalars)]
    theirs = rule.forward(*exact)
    for one, two in zip(ours, theirs, strict=True):
        assert_close(one, two)
    radius, direction, norm = ours
    ways = [torch.randn_like(radius), torch.randn_like(direction)]
    last = y[:, width].contiguous()
    found = operator.finish_backward(direction, radius, norm, last, square, t, w, *scalars[:2], *ways, stride)
    given_to = (theirs[1], theirs[0], theirs[2], exact[0][:, width], *exact[1:6])
    for one, two in zip(found, rule.backward(*given_to, *(x.double() for x in ways), stride), strict=True):
        assert_close(one, two)


def test_a_batch_norm_by_kernels_is_the_plain_one(device) -> None:
    x = given(60, 6, device)
    x = {key: value.view(3, 4, 5, *value.shape[1:]) if key in "au" else value for key, value in x.items()}
    root, ways = torch.tensor(1.2, device=device), [torch.randn_like(x["a"]), torch.randn_like(x["u"])]
    found = []
    for choice, dtype in (("interpreted", torch.float32), ("plain", torch.float64)):
        own = {key: value.to(dtype).requires_grad_() for key, value in x.items()}
        with kernels(choice):
            out, mean, spread = batch_norm(
                own["a"], own["u"], own["f"], (own["c"], own["e"]), root=root.to(dtype), eps=1e-5, relu=True
            )
            loss = sum((y * way.to(dtype)).sum() for y, way in zip(out, ways, strict=True))
            gradients = torch.autograd.grad(loss, [own[key] for key in "aufce"])
        found.append([*out, *mean, spread, *gradients])
    for one, two in zip(*found, strict=True):
        assert_close(one, two, 2e-5)


def test_kernels_take_the_origin_and_the_mean_itself(device) -> None:
    x = given(12, 8, device)
    x["a"][:3] = 0
    x["u"][3:6], x["a"][3:6] = x["v"], x["b"]
    radius, direction = operator.normalised(*x.values(), True)
    assert torch.isfinite(radius).all()
    torch.testing.assert_close(direction.norm(dim=1), torch.ones_like(radius))
    ways = torch.randn_like(radius), torch.randn_like(direction)
    assert all(torch.isfinite(y).all() for y in operator.normalised_backward(*x.values(), *ways, True))
    assert torch.isfinite(operator.distance_slopes(*(x[key] for key in "aubv"))).all()
    with kernels("interpreted"):
        own = [x[key].requires_grad_() for key in "au"]
        out = normalise(*own, (x["b"], x["v"]), x["f"], (x["c"], x["e"]))
        assert all(torch.isfinite(y).all() for y in torch.autograd.grad(out[0].sum() + out[1].sum(), own))
