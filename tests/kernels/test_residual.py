"""The boost residual: the kernel against the float64 reference, and what must stay finite."""

import importlib
import math
from typing import NamedTuple

import pytest
import torch
from cuda_graphs import assert_a_graph_gives_the_same

from polarvit.geometry import PolarPoint, distance
from polarvit.kernels.residual import boost_residual

pytest.importorskip("triton")
operator = importlib.import_module("polarvit.kernels.residual.operator")

# The interpreter's numpy divides by zero in branches that are not taken.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

EPS = 2.0**-24
NAMES = ("a", "u", "b", "v", "size")


class Case(NamedTuple):
    """Sizes, radius and step size; `angle` is the spread of v around u (0: all around, negative: around -u)."""

    B: int
    N: int
    D: int
    r: float
    size: float = 0.3
    angle: float = 0.0

    def __str__(self) -> str:
        return f"B{self.B}-N{self.N}-D{self.D}-r{self.r:g}-size{self.size:g}" + (
            f"-angle{self.angle:g}" if self.angle else ""
        )


SMALL = [
    Case(2, 1, 8, 1),
    Case(2, 7, 20, 1),
    Case(1, 33, 192, 1, 2.0),
    Case(2, 65, 8, 8),
    Case(1, 33, 20, 8, 10.0),
    Case(1, 7, 192, 12),
    Case(2, 7, 8, 1, angle=1e-4),
    Case(2, 7, 8, 1, angle=-1e-4),
    Case(2, 7, 8, 1, -0.5),
]
LARGE = [Case(128, 64, 192, r, s) for r, s in ((1, 0.1), (8, 0.1), (12, 0.5))] + [Case(8, 196, 384, 8, 1.0)]


@pytest.fixture(autouse=True)
def poison(monkeypatch):
    """Everything a kernel should write holds NaN first."""

    def poisoned(shape, like):
        return torch.full(shape, torch.nan, dtype=torch.float32, device=like.device)

    monkeypatch.setattr(operator, "new_output", poisoned)


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def draw(case, device, seed=0):
    """a, u, b, v, drawn in float64 and rounded, the size of the steps and a factor for each sample."""
    generator = torch.Generator().manual_seed(seed)
    shape = (case.B, case.N)
    u, v = (unit(torch.randn(*shape, case.D, generator=generator, dtype=torch.float64)) for _ in range(2))
    if case.angle:
        v = unit(math.copysign(1.0, case.angle) * u + case.angle * v)
    a, b = (case.r * (0.5 + 0.5 * torch.rand(shape, generator=generator, dtype=torch.float64)) for _ in range(2))
    kept = 0.5 + torch.rand(case.B, 1, generator=generator, dtype=torch.float64)
    return [x.float().to(device) for x in (a, u, b, v, torch.tensor(case.size), kept)]


def run(tensors, implementation, dtype):
    """Output and gradients of a fixed random functional of it."""
    leaves = [x.detach().to(dtype).requires_grad_() for x in tensors[:5]]
    kept = tensors[5].to(dtype) if len(tensors) > 5 else None
    out = boost_residual(*leaves, kept, implementation=implementation)
    generator = torch.Generator().manual_seed(1)
    loss = sum((x * torch.randn(x.shape, generator=generator).to(x)).sum() for x in out)
    return [x.detach() for x in out], torch.autograd.grad(loss, leaves)


def tangential(gradient, u):
    """The part of a direction's gradient that counts: every producer of a direction normalises it."""
    return gradient - (gradient * u).sum(-1, keepdim=True) * u


def check(case, device):
    tensors = draw(case, device)
    out, gradients = run(tensors, "triton", torch.float32)
    exact, exact_gradients = run(tensors, "reference", torch.float64)
    largest = max(case.r, exact[0].max().item())
    limit = EPS * (largest + 1) + math.sinh(largest) * EPS
    error = distance(PolarPoint(*(x.double() for x in out)), PolarPoint(*exact)) / limit
    assert error.max() <= 4, f"seed 0: output {error.max():.2f} of the resolution limit"
    assert ((out[1].double().norm(dim=-1) - 1).abs() <= 4 * EPS).all()
    allowed = 1e-5 if case.r <= 1 else 1e-3
    for name, x, ours, theirs in zip(NAMES, tensors[:5], gradients, exact_gradients, strict=True):
        assert ours.isfinite().all(), name
        if name in "uv":
            assert (ours * x).sum(-1).abs().max() <= 1e-5 * ours.abs().max(), f"{name}: not perpendicular"
            ours, theirs = (tangential(g.double(), unit(x.double())) for g in (ours, theirs))
        off = (ours - theirs).square().mean().sqrt() / theirs.square().mean().sqrt()
        assert off <= allowed, f"seed 0: gradient by {name} {off:.1e} relative RMS"


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_outputs_and_gradients_match_the_float64_reference(case, device):
    check(case, device)


@pytest.mark.gpu
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_outputs_and_gradients_match_at_full_size(case, device):
    check(case, device)


def test_samples_split_over_programs_give_the_same(device, monkeypatch):
    tensors = draw(Case(2, 33, 20, 1), device)
    whole = boost_residual(*tensors, implementation="triton")
    monkeypatch.setattr(operator, "forward_launch", lambda count, width: operator.Launch(32, 8, 4, 3))
    parts = boost_residual(*tensors, implementation="triton")
    for x, y in zip(whole, parts, strict=True):
        torch.testing.assert_close(x, y, rtol=2 * EPS, atol=4 * EPS)


def test_without_a_factor_for_each_sample_all_steps_are_taken_alike(device):
    *tensors, _ = draw(Case(3, 7, 8, 1), device)
    out, gradients = run(tensors, "triton", torch.float32)
    exact, exact_gradients = run(tensors, "reference", torch.float64)
    torch.testing.assert_close(out[0], exact[0].float())
    torch.testing.assert_close(gradients[4], exact_gradients[4].float())


def test_a_step_longer_than_the_radius_passes_through_the_origin(device):
    a, u, b, v, size, kept = draw(Case(1, 7, 8, 1), device)
    b = b * 20
    out, _ = run([a, u, b, v, size, kept], "triton", torch.float32)
    exact, _ = run([a, u, b, v, size, kept], "reference", torch.float64)
    along = b * (u * v).sum(-1)
    assert ((a + size * kept * (along - along.mean(-1, keepdim=True))) < 0).any()
    assert (out[0] >= 0).all()
    torch.testing.assert_close(out[1], exact[1].float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("a", "b"), [(0.0, 0.5), (0.5, 0.0), (200.0, 1.0), (1.0, 200.0), (1000.0, 1000.0)])
def test_origin_and_huge_radii_stay_finite_and_right(a, b, device):
    tensors = draw(Case(1, 7, 8, 1), device)
    tensors[0].fill_(a)
    tensors[2].mul_(b)
    out, gradients = run(tensors, "triton", torch.float32)
    exact, _ = run(tensors, "reference", torch.float64)
    torch.testing.assert_close(out[0], exact[0].float(), rtol=8 * EPS, atol=8 * EPS * max(1, b))
    torch.testing.assert_close(out[1], exact[1].float(), rtol=0, atol=2e-6)
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_step_along_the_direction_or_against_it_does_not_turn(sign, device):
    a, u, b, _, size, _ = draw(Case(1, 7, 8, 1, 0.01), device)
    out, gradients = run([a, u, b, sign * u, size], "triton", torch.float32)
    torch.testing.assert_close(out[1], u, rtol=0, atol=4 * EPS)
    assert all(g.isfinite().all() for g in gradients)


def test_a_token_at_the_origin_without_a_step_is_finite(device):
    a, u, b, v, size, _ = draw(Case(1, 7, 8, 1), device)
    out, gradients = run([0 * a, u, 0 * b, v, size], "triton", torch.float32)
    assert (out[0] == 0).all()
    assert (out[1][..., 0] == 1).all()
    assert all(g.isfinite().all() for g in gradients)


def test_the_operator_traces_and_differentiates_as_registered(device):
    *leaves, kept = draw(Case(2, 7, 8, 1), device)
    arguments = (*(x.requires_grad_() for x in leaves), kept[:, 0].contiguous())
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operator.residual_forward, arguments, test_utils=tests)


def test_a_compiled_model_has_no_graph_break_and_the_same_gradients(device):
    leaves = [x.requires_grad_() for x in draw(Case(2, 7, 8, 1), device)[:5]]

    def loss(*xs):
        radius, direction = boost_residual(*xs, implementation="triton")
        return radius.sum() + direction[..., 0].sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    ours = torch.autograd.grad(compiled(*leaves), leaves)
    theirs = torch.autograd.grad(loss(*leaves), leaves)
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x, y)


def test_an_unknown_implementation_is_named():
    with pytest.raises(ValueError, match="implementation 'cuda', expected one of"):
        boost_residual(*draw(Case(1, 2, 8, 1), "cpu"), implementation="cuda")


@pytest.mark.gpu
def test_a_step_replays_in_a_cuda_graph(device):
    leaves = [x.requires_grad_() for x in draw(Case(4, 33, 192, 1), device)[:5]]

    def step():
        radius, direction = boost_residual(*leaves)
        return torch.autograd.grad(radius.sum() + direction[..., 0].sum(), leaves)

    assert_a_graph_gives_the_same(step)
