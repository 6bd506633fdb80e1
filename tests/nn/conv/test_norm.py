"""The polar batch norm: its definition, its running statistics, far out, and shared by processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from nn.conv.definitions import batch_norm, image, leaves, tangential

from polarvit.geometry import PolarPoint, centroid, distance, from_tangent0
from polarvit.nn import PolarActivation, PolarBatchNorm2d

EPS = 2.0**-24
PLACES = {"near": (1.0, None), "far": (6.0, None), "cluster": (6.0, 0.01)}


def layer(n: int = 5, **options) -> PolarBatchNorm2d:
    torch.manual_seed(0)
    made = PolarBatchNorm2d(n, **options).double()
    with torch.no_grad():
        made.bias.copy_(0.7 * torch.randn(n))
        made.log_gain.fill_(0.3)
    return made


@pytest.mark.parametrize("k", [1.0, 2.3])
@pytest.mark.parametrize("place", PLACES)
def test_it_is_what_its_formula_says(place: str, k: float) -> None:
    made, x = layer(), leaves(image((3, 4, 6), 5, *PLACES[place][:1], cluster=PLACES[place][1]))
    out, (wanted, _, _) = made(x, k=k), batch_norm(x, made.log_gain.exp(), made.bias, made.eps, k)
    torch.testing.assert_close(out.radius, wanted.radius, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(out.direction, wanted.direction, rtol=1e-9, atol=1e-10)
    ways = out.map(torch.randn_like)
    ours, theirs = (
        torch.autograd.grad(sum((a * b).sum() for a, b in zip(y, ways, strict=True)), [*x, *made.parameters()])
        for y in (out, wanted)
    )
    for one, two in zip(
        (ours[0], tangential(x, ours[1]), *ours[2:]), (theirs[0], tangential(x, theirs[1]), *theirs[2:]), strict=True
    ):
        assert (one - two).norm() < 1e-9 * two.norm()


def test_relu_inside_is_the_activation_behind_it() -> None:
    x, ways = image((2, 4, 4), 5, 2.0), image((2, 4, 4), 5, 1.0, seed=1)
    found = []
    for made, behind in ((layer(activation="relu"), None), (layer(), PolarActivation("relu"))):
        own = leaves(x)
        out = made(own, k=1.7)
        out = out if behind is None else behind(out, k=1.7)
        loss = (out.radius * ways.radius).sum() + (out.direction * ways.direction).sum()
        found.append((*out, *torch.autograd.grad(loss, [own.radius, *made.parameters()])))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("radius", [1.0, 8.0, 12.0])
@pytest.mark.parametrize("spread", [1.0, None], ids=["together", "all over"])
def test_float32_is_within_the_resolution_limit(radius: float, spread: float | None) -> None:
    cluster = None if spread is None else spread / torch.sinh(torch.tensor(radius)).item()
    x = image((2, 12, 12), 8, radius, seed=int(radius), cluster=cluster).map(torch.Tensor.float)
    exact = PolarPoint(x.radius.double(), F.normalize(x.direction.double(), dim=-1))
    made = layer(8)
    truth, _, s = batch_norm(exact, made.log_gain.exp(), made.bias, made.eps)
    out = made.float()(x)
    error = distance(PolarPoint(out.radius.double(), F.normalize(out.direction.double(), dim=-1)), truth)
    largest = torch.maximum(exact.radius, truth.radius)
    shrink = (1.35 / s).clamp_min(1.0)  # the factor that the layer puts on distances, where it stretches them
    ratio = error / (shrink * EPS * (largest + 1 + torch.sinh(largest)))
    assert ratio.median() < 2
    assert ratio.quantile(0.999) < 4


def test_evaluation_uses_what_training_has_seen() -> None:
    made, x = layer(momentum=0.5), image((4, 6, 6), 5, 2.0, cluster=1.0)
    with torch.no_grad():
        before = made.eval()(x)
        for _ in range(60):
            trained = made.train()(x)
        after = made.eval()(x)
        kept = made.running_mean.clone()
        made(image((4, 6, 6), 5, 5.0))
    assert made.running_mean.equal(kept)
    assert (before.radius - trained.radius).abs().max() > 0.1
    torch.testing.assert_close(after.radius, trained.radius, rtol=1e-6, atol=1e-6)
    _, mean, spread = batch_norm(x, made.log_gain.exp(), made.bias, made.eps)
    torch.testing.assert_close(from_tangent0(made.running_mean).direction, mean.direction, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(made.running_spread, spread)


def test_a_running_mean_moves_by_a_weighted_centroid() -> None:
    made, x = layer(momentum=0.25), image((2, 3, 3), 5, 2.0)
    with torch.no_grad():
        made.running_mean.copy_(torch.randn(5))
        old = from_tangent0(made.running_mean.clone())
        made(x, k=2.0)
        mean = centroid(x.reshape(-1), k=2.0)
    both = PolarPoint(*(torch.stack(pair) for pair in zip(old, mean, strict=True)))
    wanted = centroid(both, torch.tensor([0.75, 0.25], dtype=torch.float64), k=2.0)
    torch.testing.assert_close(made.running_mean, wanted.radius * wanted.direction)


def test_equal_points_and_the_origin_are_ordinary() -> None:
    for radius in (0.0, 3.0, 20.0, 200.0):
        made = layer(4, activation="relu").float()
        u = F.normalize(torch.ones(2, 3, 3, 4), dim=-1)
        x = leaves(PolarPoint(torch.full((2, 3, 3), radius), u))
        out = made(x)
        (out.radius.sum() + out.direction.sum()).backward()
        found = [*out, made.bias.grad, made.log_gain.grad, made.running_mean]
        if radius < 40:  # the mean moves by e^2a times the change of a direction
            found += [x.radius.grad, x.direction.grad]
        assert all(torch.isfinite(y).all() for y in found), radius


def test_it_says_what_it_takes() -> None:
    with pytest.raises(ValueError, match="dimension 5, got"):
        layer()(image((1, 2, 2), 4, 1.0))
    with pytest.raises(ValueError, match="None or 'relu'"):
        PolarBatchNorm2d(4, activation="tanh")


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save(step(slice(2 * rank, 2 * rank + 2)), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def step(images: slice) -> dict[str, torch.Tensor]:
    """Outputs and gradients of some images; the loss is a sum, so those of parts add up to those of the whole."""
    made, ways = layer(activation="relu"), image((4, 3, 5), 5, 1.0, seed=1)
    x = leaves(image((4, 3, 5), 5, 2.0).map(lambda y: y[images]))
    out = made(x, k=1.3)
    loss = (out.radius * ways.radius[images]).sum() + (out.direction * ways.direction[images]).sum()
    loss.backward()
    state = {key: value.detach() for key, value in made.state_dict().items() if key.startswith("running")}
    grads = {"x": tangential(x, x.direction.grad).detach(), "r": x.radius.grad, "bias": made.bias.grad}
    return {"radius": out.radius.detach(), **grads, "gain": made.log_gain.grad, **state}


def test_two_processes_are_one_batch(tmp_path) -> None:
    mp.start_processes(process, (str(tmp_path),), nprocs=2, start_method="spawn")
    whole = step(slice(0, 4))
    parts = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    for key in ("radius", "x", "r"):
        torch.testing.assert_close(torch.cat([part[key] for part in parts]), whole[key], rtol=1e-9, atol=1e-11)
    for key in ("bias", "gain"):
        torch.testing.assert_close(parts[0][key] + parts[1][key], whole[key], rtol=1e-9, atol=1e-11)
    for key in ("running_mean", "running_spread"):
        assert parts[0][key].equal(parts[1][key])
        torch.testing.assert_close(parts[0][key], whole[key], rtol=1e-9, atol=1e-11)
