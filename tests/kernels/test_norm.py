"""Gyro layer normalisation: the kernel against the float64 reference, and what must stay finite."""

import importlib
import math
from typing import NamedTuple

import pytest
import torch
from cuda_graphs import assert_a_graph_gives_the_same

from polarvit.geometry import PolarPoint, distance
from polarvit.kernels.norm import gyro_layer_norm
from polarvit.kernels.pick import kernels
from polarvit.nn import GyroLayerNorm

pytest.importorskip("triton")
operator = importlib.import_module("polarvit.kernels.norm.operator")

# The interpreter's numpy divides by zero in branches that are not taken.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

EPS = 2.0**-24
NAMES = ("a", "u", "gain", "bias", "eps")


class Case(NamedTuple):
    """Sizes, radius, distance of the bias and gain; `angle` is the spread of directions around one axis (0: all)."""

    B: int
    N: int
    D: int
    r: float
    bias: float = 0.5
    gain: float = 3.0
    angle: float = 0.0

    def __str__(self) -> str:
        text = f"B{self.B}-N{self.N}-D{self.D}-r{self.r:g}-bias{self.bias:g}-gain{self.gain:g}"
        return text + (f"-angle{self.angle:g}" if self.angle else "")


SMALL = [
    Case(2, 7, 20, 1),
    Case(2, 7, 8, 0.01, 0),
    Case(1, 65, 20, 1, 0),
    Case(2, 33, 8, 1, 5, 8),
    Case(1, 33, 192, 1, 0.1),
    Case(1, 33, 8, 8),
    Case(2, 7, 8, 8, 0.3, 1, 3e-4),
    Case(1, 7, 8, 2, 8),
    Case(1, 65, 20, 8, 0),
    Case(1, 7, 192, 12),
    Case(1, 33, 8, 12, 0.3, 1, 1e-5),
]
DIVIDED = [  # tokens and columns around whole blocks of 64 and 32, rows over more than one warp, many tokens
    Case(1, 63, 5, 1),
    Case(1, 64, 3, 1),
    Case(1, 129, 33, 1),
    Case(1, 70, 40, 8, 5),
    Case(2, 9, 2, 1),
    Case(1, 3, 768, 1),
    Case(1, 3, 1000, 1, 0),
    Case(1, 600, 8, 1),
]
LARGE = [Case(128, 64, 192, r, b) for r, b in ((0.01, 0), (1, 0), (1, 0.5), (8, 0.5), (12, 0.5))] + [
    Case(8, 64, 192, 8, 0.3, 1, 3e-4),
    Case(8, 196, 384, 1),
    Case(4, 197, 384, 8, 0),
    Case(2, 500, 100, 1),
    Case(2, 1030, 96, 1),
]


@pytest.fixture(autouse=True)
def poison(monkeypatch):
    """Everything a kernel should write holds NaN first."""

    def poisoned(shape, like, dtype=torch.float32):
        return torch.full(shape, torch.nan, dtype=dtype, device=like.device)

    monkeypatch.setattr(operator, "new_output", poisoned)


@pytest.fixture(params=["held", "divided"])
def path(request, monkeypatch):
    """One program for a sample, or several."""
    if request.param == "divided":
        monkeypatch.setattr(operator, "LARGEST_HELD", 0)


both_paths = pytest.mark.usefixtures("path")


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def draw(case, device, seed=0):
    """Radii in [r/2, r] (in [r - 1, r] for clustered directions), drawn in float64 and rounded; gain, bias and eps."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(case.B, case.N, case.D, generator=generator, dtype=torch.float64)
    if case.angle:
        u = case.angle * u + torch.nn.functional.one_hot(torch.tensor(case.D - 1), case.D)
    spread = 1.0 if case.angle else 0.5 * case.r
    a = case.r - spread * torch.rand(case.B, case.N, generator=generator, dtype=torch.float64)
    bias = case.bias * unit(torch.randn(case.D, generator=generator, dtype=torch.float64))
    return [x.float().to(device) for x in (a, unit(u), torch.tensor(case.gain), bias, torch.tensor(1e-5))]


def run(tensors, implementation, dtype):
    """Output and gradients of a fixed random functional of it."""
    leaves = [x.detach().to(dtype).requires_grad_() for x in tensors]
    out = gyro_layer_norm(*leaves, implementation=implementation)
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
    largest = max(case.r, case.bias, exact[0].max().item())
    limit = EPS * (largest + 1) + math.sinh(largest) * EPS
    error = distance(PolarPoint(*(x.double() for x in out)), PolarPoint(*exact)) / limit
    assert error.max() <= 4, f"seed 0: output {error.max():.2f} of the resolution limit"
    assert ((out[1].double().norm(dim=-1) - 1).abs() <= 4 * EPS).all()
    allowed = 1e-5 if case.r <= 1 else 1e-3 if case.r <= 8 else None
    for name, x, ours, theirs in zip(NAMES, tensors, gradients, exact_gradients, strict=True):
        assert ours.isfinite().all(), name
        if name == "u":
            assert (ours * x).sum(-1).abs().max() <= 1e-5 * ours.abs().max(), "not perpendicular"
            ours, theirs = (tangential(g.double(), unit(x.double())) for g in (ours, theirs))
        off = (ours - theirs).square().mean().sqrt() / theirs.square().mean().sqrt()
        assert allowed is None or off <= allowed, f"seed 0: gradient by {name} {off:.1e} relative RMS"


@both_paths
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_outputs_and_gradients_match_the_float64_reference(case, device):
    check(case, device)


@pytest.mark.parametrize("case", DIVIDED, ids=str)
def test_samples_of_any_size_may_be_divided(case, device, monkeypatch):
    monkeypatch.setattr(operator, "LARGEST_HELD", 0)
    check(case, device)


@pytest.mark.gpu
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_outputs_and_gradients_match_at_full_size(case, device):
    check(case, device)


@pytest.mark.parametrize("learnable", [False, True])
def test_the_module_is_the_same_with_the_kernel_for_any_curvature(learnable, device):
    tensors = draw(Case(2, 7, 8, 2), device)
    results = []
    for choice, dtype in (("interpreted", torch.float32), ("plain", torch.float64)):
        module = GyroLayerNorm(8, k=2.3).to(device, dtype)
        module.bias.data.copy_(0.4 * tensors[3])  # not drawn here: a GPU draws other numbers in float64 than in float32
        leaves = [x.to(dtype).requires_grad_() for x in tensors[:2]]
        k = torch.tensor(2.3, device=device, dtype=dtype, requires_grad=True) if learnable else 2.3
        with kernels(choice):
            out = module(PolarPoint(*leaves), k=k)
        loss = (out.radius * leaves[0].detach()).sum() + (out.direction * leaves[1].detach().sin()).sum()
        inputs = [leaves[0], *module.parameters(), *([k] if learnable else [])]
        results.append([*out, *torch.autograd.grad(loss, inputs)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-5, atol=1e-5)


@both_paths
def test_eps_may_be_a_number_and_directions_bfloat16(device):
    *leaves, eps = draw(Case(2, 7, 20, 1), device)
    radius, direction = gyro_layer_norm(*leaves, eps, implementation="triton")
    same, half = gyro_layer_norm(*leaves, eps.item(), implementation="triton", half=True)
    torch.testing.assert_close(same, radius, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(half.float(), direction, rtol=2.0**-7, atol=1e-30)  # interpreted, bits are cut off


def test_a_sample_of_many_tokens_is_divided_however_narrow(device, monkeypatch):
    asked, launch = [], operator.forward_launch
    monkeypatch.setattr(operator, "forward_launch", lambda *size: asked.append(launch(*size)) or asked[-1])
    a, u, gain, bias, _ = draw(Case(1, 513, 1, 1), device)
    with kernels("interpreted"):
        gyro_layer_norm(a, u, gain, bias, 1e-5)
    assert [each.held for each in asked] == [False]


@both_paths
def test_the_bias_at_the_origin_receives_its_true_gradient(device):
    tensors = draw(Case(1, 7, 8, 1, 0), device)
    _, gradients = run(tensors, "triton", torch.float32)
    wide = [x.double() for x in tensors]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=generator).to(x) for x in wide[:2]]

    def loss(bias):
        out = gyro_layer_norm(wide[0], wide[1], wide[2], bias, wide[4], implementation="reference")
        return sum((x * w).sum() for x, w in zip(out, weights, strict=True))

    steps = 1e-5 * torch.eye(8, dtype=torch.float64, device=device)
    slopes = torch.stack([(loss(s) - loss(-s)) / 2e-5 for s in steps])
    torch.testing.assert_close(gradients[3].double(), slopes, rtol=1e-4, atol=1e-4)


@both_paths
def test_a_bias_too_short_for_its_inverse_is_the_origin(device):
    tensors = draw(Case(1, 7, 8, 1), device)
    short, none = (
        run([*tensors[:3], length * tensors[3], tensors[4]], "triton", torch.float32) for length in (1e-41, 0.0)
    )
    torch.testing.assert_close(short, none)


@both_paths
@pytest.mark.parametrize("r", [0.0, 1.0, 12.0, 200.0, 1000.0])
@pytest.mark.parametrize("n", [1, 9])
def test_coinciding_tokens_become_the_bias(r, n, device):
    _, u, gain, bias, eps = draw(Case(1, 1, 8, 1), device)
    # An axis: at radius 200 a direction rounded to float32 is no longer a unit vector to the precision of its radius.
    u = torch.nn.functional.one_hot(torch.full((1, n), 3), 8).to(u)
    a = torch.full((1, n), r, device=device)
    out, gradients = run([a, u, gain, bias, eps], "triton", torch.float32)
    # The mean radius is known to a few eps of itself, which the gain multiplies by gain/sqrt(eps).
    blur = 4 * EPS * max(r, 1.0) * gain.item() / math.sqrt(1e-5)
    torch.testing.assert_close(out[0], bias.norm().expand(1, n), rtol=0, atol=blur)
    torch.testing.assert_close(out[1], unit(bias).expand(1, n, 8), rtol=0, atol=4 * blur)
    assert all(g.isfinite().all() for g in gradients)


@both_paths
def test_coinciding_tokens_receive_their_true_gradient(device):
    _, u, gain, bias, eps = draw(Case(1, 1, 8, 1), device)
    u = torch.nn.functional.one_hot(torch.full((1, 5), 3), 8).to(u)
    a = torch.full((1, 5), 1.0, device=device)
    _, gradients = run([a, u, gain, bias, eps], "triton", torch.float32)
    wide = [x.double() for x in (a, u, gain, bias, eps)]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=generator).to(x) for x in wide[:2]]

    def loss(radius):
        out = gyro_layer_norm(radius, *wide[1:], implementation="reference")
        return sum((x * w).sum() for x, w in zip(out, weights, strict=True))

    steps = 1e-7 * torch.eye(5, dtype=torch.float64, device=device).unsqueeze(1)
    slopes = torch.stack([(loss(wide[0] + s) - loss(wide[0] - s)) / 2e-7 for s in steps])
    torch.testing.assert_close(gradients[0][0].double(), slopes, rtol=1e-3, atol=1e-1)


@both_paths
def test_tokens_at_the_origin_are_ordinary_points(device):
    a, *rest = draw(Case(1, 7, 8, 1), device)
    a[:, :3] = 0
    out, gradients = run([a, *rest], "triton", torch.float32)
    exact, exact_gradients = run([a, *rest], "reference", torch.float64)
    torch.testing.assert_close(out[0], exact[0].float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out[1], exact[1].float(), rtol=0, atol=1e-5)
    torch.testing.assert_close(gradients[0], exact_gradients[0].float(), rtol=1e-4, atol=1e-4)
    assert all(g.isfinite().all() for g in gradients)


@both_paths
@pytest.mark.parametrize("r", [50.0, 200.0, 1000.0])
def test_huge_radii_stay_finite_and_right(r, device):
    a, *rest = draw(Case(1, 9, 8, 1), device)
    out, gradients = run([a + r, *rest], "triton", torch.float32)
    exact, exact_gradients = run([a + r, *rest], "reference", torch.float64)
    torch.testing.assert_close(out[0], exact[0].float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out[1], exact[1].float(), rtol=0, atol=1e-5)
    torch.testing.assert_close(gradients[0], exact_gradients[0].float(), rtol=1e-3, atol=1e-3)
    assert all(g.isfinite().all() for g in gradients)


@both_paths
@pytest.mark.parametrize("bias", [0.0, 0.5, 200.0])
def test_radii_from_zero_to_a_thousand_in_one_sample_stay_finite(bias, device):
    _, *rest = draw(Case(1, 9, 8, 1, bias), device)
    a = torch.tensor([[0.0, 1e-6, 1e-3, 1.0, 30.0, 60.0, 200.0, 500.0, 1000.0]], device=device)
    out, gradients = run([a, *rest], "triton", torch.float32)
    assert all(x.isfinite().all() for x in (*out, *gradients))
    assert ((out[1].norm(dim=-1) - 1).abs() <= 4 * EPS).all()


def test_the_operator_traces_and_differentiates_as_registered(device):
    arguments = (*(x.requires_grad_() for x in draw(Case(2, 7, 8, 1), device)), 0.0)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operator.norm_forward, arguments, test_utils=tests)


def test_a_compiled_model_has_no_graph_break_and_the_same_gradients(device):
    leaves = [x.requires_grad_() for x in draw(Case(2, 7, 8, 1), device)[:4]]

    def loss(*xs):
        radius, direction = gyro_layer_norm(*xs, 1e-5, implementation="triton")
        return radius.sum() + direction[..., 0].sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    ours = torch.autograd.grad(compiled(*leaves), leaves)
    theirs = torch.autograd.grad(loss(*leaves), leaves)
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x, y)


def test_an_unknown_implementation_is_named():
    with pytest.raises(ValueError, match="implementation 'cuda', expected one of"):
        gyro_layer_norm(*draw(Case(1, 2, 8, 1), "cpu"), implementation="cuda")


@pytest.mark.gpu
def test_a_step_replays_in_a_cuda_graph(device):
    leaves = [x.requires_grad_() for x in draw(Case(4, 33, 192, 1), device)[:4]]

    def step():
        radius, direction = gyro_layer_norm(*leaves, 1e-5)
        return torch.autograd.grad(radius.sum() + direction[..., 0].sum(), leaves)

    assert_a_graph_gives_the_same(step)
