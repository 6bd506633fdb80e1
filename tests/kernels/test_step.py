"""A layer's product taken as a step: the kernel against epilogue and residual in float64, and what must stay finite."""

import importlib
import math

import pytest
import torch
from cuda_graphs import assert_a_graph_gives_the_same

from polarvit.geometry import PolarPoint, distance
from polarvit.kernels.linear import reference_linear_epilogue
from polarvit.kernels.pick import kernels
from polarvit.kernels.residual import reference_boost_residual
from polarvit.kernels.step import step_residual

pytest.importorskip("triton")
operator = importlib.import_module("polarvit.kernels.step.operator")

# The interpreter's numpy divides by zero in branches that are not taken.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

EPS = 2.0**-24
NAMES = ("a", "u", "product", "c", "time_weight", "beta", "slope", "phi0", "size")
SMALL = [(2, 1, 8, 1), (2, 7, 20, 1), (1, 33, 192, 1), (2, 65, 8, 8), (1, 7, 192, 12), (2, 9, 1, 1)]
LARGE = [(128, 64, 192, 1), (128, 64, 192, 8), (8, 196, 384, 8)]


@pytest.fixture(autouse=True)
def poison(monkeypatch):
    """Everything a kernel should write holds NaN first."""
    make = operator.new_output
    monkeypatch.setattr(operator, "new_output", lambda *given: make(*given).fill_(torch.nan))


def draw(samples, count, width, radius, device="cpu", seed=0):
    """All arguments; steps are of the size of the radius. The last is the factor for each sample."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    uniform = lambda *shape: torch.rand(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    u = normal(samples, count, width)
    a, c = (radius * (0.5 + 0.5 * uniform(samples, count)) for _ in range(2))
    product = normal(samples, count, width + 7) / math.sqrt(width)
    scalars = [torch.tensor(x, dtype=torch.float64) for x in (1.1, -0.1, -0.2, 0.3)]
    weight = normal(width) / (2 * math.sqrt(width))
    kept = 0.5 + uniform(samples, 1)
    tensors = [a, u / u.norm(dim=-1, keepdim=True), product, c, weight, *scalars, kept]
    return [x.float().to(device) for x in tensors]


def fused(*tensors):
    with kernels("auto" if tensors[0].is_cuda else "interpreted"):
        return step_residual(*tensors)


def composed(a, u, product, c, weight, beta, slope, phi0, size, kept=None):
    b, v = reference_linear_epilogue(product, c, weight, beta, slope, phi0, out_features=u.shape[-1])
    return reference_boost_residual(a, u, b, v, size, kept)


def run(function, tensors, dtype, *, each=False):
    """Output and gradients of a fixed random functional of it; with `each`, by the scalars at every token."""
    leaves = [x.detach().to(dtype) for x in tensors[:9]]
    leaves = [(x.expand_as(leaves[0]).clone() if each and x.ndim == 0 else x).requires_grad_() for x in leaves]
    out = function(*leaves, *(x.to(dtype) for x in tensors[9:]))
    generator = torch.Generator().manual_seed(1)
    loss = sum((x * torch.randn(x.shape, generator=generator).to(x)).sum() for x in out)
    return [x.detach() for x in out], torch.autograd.grad(loss, leaves)


def check(shape, device):
    tensors = draw(*shape, device=device)
    out, gradients = run(fused, tensors, torch.float32)
    exact, exact_gradients = run(composed, tensors, torch.float64, each=True)
    largest = max(shape[3], exact[0].max().item())
    limit = EPS * (largest + 1) + math.sinh(largest) * EPS
    error = distance(PolarPoint(*(x.double() for x in out)), PolarPoint(*exact)) / limit
    assert error.max() <= 4, f"seed 0: output {error.max():.2f} of the resolution limit"
    assert ((out[1].double().norm(dim=-1) - 1).abs() <= 4 * EPS).all()
    allowed = 1e-5 if shape[3] <= 1 else 1e-3
    for name, ours, theirs in zip(NAMES, gradients, exact_gradients, strict=True):
        assert ours.isfinite().all(), name
        if name == "u":
            u = tensors[1].double()
            ours, theirs = (g - (g * u).sum(-1, keepdim=True) * u / u.square().sum(-1, keepdim=True)
                            for g in (ours.double(), theirs))  # fmt: skip
        size = theirs.square().mean().sqrt()
        if ours.ndim == 0:  # a sum over tokens of terms of both signs: beside the root of the sum of their squares
            theirs, size = theirs.sum(), theirs.norm()
        assert (ours - theirs).square().mean().sqrt() <= allowed * size, f"gradient by {name}"


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_outputs_and_gradients_match_the_float64_composition(shape, device):
    check(shape, device)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_outputs_and_gradients_match_at_full_size(shape, device):
    check(shape, device)


def test_samples_split_over_programs_give_the_same(device, monkeypatch):
    tensors = draw(2, 33, 20, 1, device=device)
    whole, gradients = run(fused, tensors, torch.float32)
    launch = importlib.import_module("polarvit.kernels.residual.operator").Launch
    monkeypatch.setattr(operator, "forward_launch", lambda count, width: launch(32, 8, 4, 3))
    monkeypatch.setattr(operator, "backward_launch", lambda count, width: launch(16, 4, 2))
    monkeypatch.setattr(operator, "MOST_SUMS", 6)  # nine blocks a sample, three in turn
    parts, others = run(fused, tensors, torch.float32)
    for x, y in zip(whole, parts, strict=True):
        torch.testing.assert_close(x, y, rtol=4 * EPS, atol=4 * EPS)
    for x, y in zip(gradients, others, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_without_a_factor_for_each_sample_all_steps_are_taken_alike(device):
    *tensors, _ = draw(3, 7, 8, 1, device=device)
    out, gradients = run(fused, tensors, torch.float32)
    exact, exact_gradients = run(composed, tensors, torch.float64)
    torch.testing.assert_close(out[0], exact[0].float())
    torch.testing.assert_close(gradients[8], exact_gradients[8].float(), rtol=1e-5, atol=1e-6)


def test_a_row_of_zeros_is_a_step_from_the_origin_and_has_finite_gradients(device):
    tensors = draw(1, 5, 16, 1, device=device)
    tensors[2][0, 1], tensors[4][:] = 0, 0
    out, gradients = run(fused, tensors, torch.float32)
    exact, _ = run(composed, tensors, torch.float64)
    torch.testing.assert_close(out[0], exact[0].float(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(out[1], exact[1].float(), rtol=0, atol=1e-6)
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize(("a", "c"), [(0.0, 1.0), (1.0, 0.0), (200.0, 1.0), (1.0, 200.0), (1000.0, 1000.0)])
def test_origin_and_huge_radii_stay_finite_and_right(a, c, device):
    tensors = draw(1, 7, 8, 1, device=device)
    tensors[0].fill_(a)
    tensors[3].fill_(c)
    out, gradients = run(fused, tensors, torch.float32)
    exact, _ = run(composed, tensors, torch.float64)
    torch.testing.assert_close(out[0], exact[0].float(), rtol=32 * EPS, atol=32 * EPS * max(1, c))
    torch.testing.assert_close(out[1], exact[1].float(), rtol=0, atol=4e-6)
    assert all(g.isfinite().all() for g in gradients)


def test_a_bfloat16_product_is_computed_with_in_float32_and_gets_a_bfloat16_gradient(device):
    tensors = draw(2, 7, 20, 1, device=device)
    rough = tensors[2].bfloat16()
    gradients = []
    for product in (rough, rough.float()):
        leaf = product.detach().requires_grad_()
        radius, direction = fused(*tensors[:2], leaf, *tensors[3:])
        gradients += torch.autograd.grad(radius.sum() + direction[..., 3].sum(), leaf)
    assert gradients[0].dtype == torch.bfloat16
    torch.testing.assert_close(gradients[0].float(), gradients[1], rtol=2.0**-7, atol=1e-30)


def test_the_operator_traces_and_differentiates_as_registered(device):
    *leaves, kept = draw(2, 7, 8, 1, device=device)
    arguments = (*(x.requires_grad_() for x in leaves), kept[:, 0].contiguous())
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operator.step_forward, arguments, test_utils=tests)


def test_a_compiled_function_has_no_graph_break_and_the_same_gradients(device):
    leaves = [x.requires_grad_() for x in draw(2, 7, 8, 1, device=device)[:9]]

    def loss(*xs):
        radius, direction = step_residual(*xs)
        return radius.sum() + direction[..., 0].sum()

    with kernels("auto" if leaves[0].is_cuda else "interpreted"):
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        ours = torch.autograd.grad(compiled(*leaves), leaves)
        theirs = torch.autograd.grad(loss(*leaves), leaves)
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.gpu
def test_a_step_replays_in_a_cuda_graph(device):
    leaves = [x.requires_grad_() for x in draw(4, 33, 192, 1, device=device)[:9]]

    def step():
        radius, direction = step_residual(*leaves)
        return torch.autograd.grad(radius.sum() + direction[..., 0].sum(), leaves)

    assert_a_graph_gives_the_same(step)
