"""The compiled step of points: the plain one's path, compiled once, invisible in the state."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from polarvit.optim import RiemannianAdamW, param_groups, points
from polarvit.parameters import MANIFOLD

RATES = (1e-2, 3e-2, 2e-2, 5e-3, 0.0)


class Points(nn.Module):
    """Points of H^5: one that starts at the origin, one far out, and a batch."""

    roles = {"origin": MANIFOLD, "far": MANIFOLD, "batch": MANIFOLD}  # noqa: RUF012 - a declaration

    def __init__(self, dtype: torch.dtype = torch.float32, device: str = "cpu", batch: int = 3) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.origin = nn.Parameter(torch.zeros(5, dtype=dtype, device=device))
        self.far = nn.Parameter(torch.tensor([0.0, 60.0, 0.0, -70.0, 0.0], dtype=dtype, device=device))
        self.batch = nn.Parameter(torch.randn(batch, 2, 5, generator=generator).to(device, dtype))

    def draw_gradients(self, step: int) -> None:
        generator = torch.Generator().manual_seed(step)
        for p in self.parameters():
            p.grad = torch.randn(p.shape, generator=generator).to(p)


def walk(
    compile: bool | None,
    rates: tuple[float, ...] = RATES,
    dtype: torch.dtype = torch.float32,
    tensor_rate: bool = False,
) -> list[Tensor]:
    """Points and state after a step with each of `rates`."""
    model = Points(dtype)
    optimizer = RiemannianAdamW(param_groups(model, rates[0], 0.05, k=1.7), compile=compile)
    rate = torch.zeros((), dtype=dtype)
    for step, lr in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate.fill_(lr) if tensor_rate else lr
        model.draw_gradients(step)
        optimizer.step()
    return [p.detach() for p in model.parameters()] + [x for s in optimizer.state.values() for x in s.values()]


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> CompileCounterWithBackend:
    """The compiled function with a backend that counts compilations and generates no code."""
    torch._dynamo.reset()
    backend = CompileCounterWithBackend("aot_eager")
    function = torch.compile(points.moved, fullgraph=True, dynamic=False, backend=backend)
    monkeypatch.setattr(points, "fused", lambda: function)
    return backend


@pytest.mark.parametrize("tensor_rate", [False, True], ids=["number", "tensor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_compiled_points_walk_the_plain_path_and_are_compiled_once(
    counter: CompileCounterWithBackend, dtype: torch.dtype, tensor_rate: bool
) -> None:
    walk(True, RATES[:1], dtype, tensor_rate)
    first = counter.frame_count
    assert first > 0
    found, wanted = (walk(choice, RATES, dtype, tensor_rate) for choice in (True, False))
    assert counter.frame_count == first, "the rate changes every step and must not be compiled in"
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    for one, two in zip(found, wanted, strict=True):
        assert torch.isfinite(two).all()
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


def test_by_itself_it_compiles_nothing_on_the_cpu(counter: CompileCounterWithBackend) -> None:
    assert all(torch.equal(one, two) for one, two in zip(walk(None), walk(False), strict=True))
    assert counter.frame_count == 0


def test_shapes_beyond_the_limit_of_pytorch_are_compiled_too(counter: CompileCounterWithBackend) -> None:
    with torch._dynamo.config.patch(recompile_limit=1):
        for batch in (1, 2, 3):
            model = Points(batch=batch)
            model.draw_gradients(0)
            RiemannianAdamW(param_groups(model, 1e-2, 0.05), compile=True).step()
    assert counter.frame_count == 3


def test_the_choice_to_compile_is_no_part_of_the_state(counter: CompileCounterWithBackend) -> None:
    model = Points()
    one, two = (RiemannianAdamW(param_groups(model, 1e-2, 0.05), compile=choice) for choice in (True, False))
    model.draw_gradients(0)
    one.step()
    state = copy.deepcopy(one.state_dict())
    assert set(state["param_groups"][0]) == {
        "params", "lr", "betas", "eps", "weight_decay", "role", "capturable", "foreach", "fused",
    }  # fmt: skip
    assert all(set(entry) == {"step", "exp_avg", "exp_avg_sq"} for entry in state["state"].values())
    two.load_state_dict(state)
    assert (one.param_groups[0]["compile"], two.param_groups[0]["compile"]) == (True, False)
    two.step()
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_generated_code_walks_the_plain_path() -> None:
    torch._dynamo.reset()
    for one, two in zip(walk(True), walk(False), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def captured(model: Points, compile: bool | None, capture: bool) -> list[Tensor]:
    """Points and state after three steps on a stream aside and one with each of `RATES`, from a graph or not."""
    model.draw_gradients(0)
    rate = torch.full((), 1e-2, device="cuda")
    optimizer = RiemannianAdamW(param_groups(model, rate, 0.05), capturable=True, compile=compile)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    if capture:
        with torch.cuda.graph(graph):
            optimizer.step()
    for lr in RATES:
        rate.fill_(lr)
        if capture:
            graph.replay()
        else:
            optimizer.step()
    assert all(state["step"].item() == 3 + len(RATES) for state in optimizer.state.values())
    states = [x.cpu() for state in optimizer.state.values() for x in state.values()]
    return [p.detach().cpu() for p in model.parameters()] + states


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_compiled_points_can_be_captured() -> None:
    """A replay runs the kernels of an eager step; the compiled step and the plain one differ by roundings alone.

    One unit in the last place of every direction in every step moves these points by 3e-6.
    """
    ends = [captured(Points(device="cuda"), *choice) for choice in ((None, True), (None, False), (False, True))]
    for replayed, eager, plain in zip(*ends, strict=True):
        torch.testing.assert_close(replayed, eager, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(replayed, plain, rtol=2e-5, atol=1e-5)
