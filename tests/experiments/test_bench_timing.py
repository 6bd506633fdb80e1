"""Timing is fair: contestants take turns, ratios are taken within rounds, and the budget is kept."""

from __future__ import annotations

import time

import pytest
import torch

from polarvit.experiments.bench.bars import ATTENTION, STEP, STEP_MEMORY, Bar, Claim, show
from polarvit.experiments.bench.timing import Budget, Timed, Times, captured, extra_memory, interleaved

CPU = torch.device("cpu")


def test_contestants_take_turns() -> None:
    order: list[str] = []
    cases = {name: Timed(lambda name=name: order.append(name)) for name in "ab"}  # type: ignore[misc]
    times = interleaved(cases, CPU, seconds=0.0, least=3)
    assert order == ["a"] * 2 + ["b"] * 2 + ["a", "b"] * 3  # two each to warm up
    assert [len(rounds) for rounds in times.rounds.values()] == [3, 3]


def test_a_ratio_is_the_median_of_the_ratios_within_rounds() -> None:
    times = Times({"polar": [2.0, 40.0, 9.0], "euclidean": [1.0, 20.0, 3.0]})
    assert times.ratio("polar", "euclidean") == 2.0  # that of the medians would be 3
    assert times.median("polar") == 9.0
    assert times.record("euclidean") == {"ms": 3.0, "fastest_ms": 1.0, "slowest_ms": 20.0, "rounds": 3}


def test_rounds_stop_when_the_time_is_up() -> None:
    began = time.perf_counter()
    times = interleaved({"nap": Timed(lambda: time.sleep(0.02))}, CPU, seconds=0.1, most=1000)
    assert 3 <= len(times.rounds["nap"]) <= 6
    assert time.perf_counter() - began < 2
    assert times.median("nap") >= 20


def test_a_time_is_that_of_one_call_when_several_run_at_once() -> None:
    calls: list[int] = []
    timed = captured([lambda: calls.append(1), lambda: calls.append(2), lambda: time.sleep(0.06)], CPU)
    timed.call()
    assert (calls, timed.times) == ([1, 2], 3)
    assert 20 <= interleaved({"all": timed}, CPU, 0.0).median("all") < 60


def test_the_budget_is_shared_among_what_is_left_to_time() -> None:
    budget = Budget(1.0, 2)
    budget.times({"nap": Timed(lambda: time.sleep(0.05))}, CPU, most=1000)
    assert 0 < budget.left < 0.8
    assert budget.parts == 1


def test_memory_is_not_measured_on_a_cpu() -> None:
    assert extra_memory(lambda: torch.zeros(8), CPU) is None


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(None, "not measured"), (1.6, "missed"), (1.5, "holds"), (1.3, "holds"), (1.2, "holds, aim reached")],
)
def test_a_bar_judges(value: float | None, verdict: str) -> None:
    assert Bar(1.5, 1.2).verdict(value) == verdict


def test_without_a_gpu_nothing_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    claim = Claim("a case", 9.0, Bar(1.5))
    assert claim.record(judged=True)["verdict"] == "missed"
    show([claim], judged=False)
    said = capsys.readouterr().out
    assert "not judged" in said
    assert "missed" not in said


def test_the_bars_are_those_that_were_agreed() -> None:
    limits = {(*key[:1], key[-1]): (bar.limit, bar.aim) for key, bar in STEP.items()}
    assert limits == {
        ("tiny", "tf32"): (1.5, 1.2),
        ("tiny", "fp32"): (1.5, 1.2),
        ("tiny", "bf16"): (2.0, 1.3),
        ("small", "tf32"): (1.6, 1.3),
    }
    assert set(ATTENTION) == {(128, 12, 64, 16), (64, 6, 196, 64)}
    assert {key[0] for key in STEP_MEMORY} == {"tiny"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_graph_is_timed_and_its_memory_counted() -> None:
    device = torch.device("cuda")
    x = torch.randn(1024, 1024, device=device)
    timed = captured([lambda: x @ x], device)
    assert 1 < timed.times <= 20
    times = interleaved({"small": timed, "large": captured([lambda: (x @ x) @ (x @ x)], device)}, device, 1.0)
    assert 1.5 < times.ratio("large", "small") < 6
    assert extra_memory(lambda: x + x, device) == pytest.approx(4.0)
