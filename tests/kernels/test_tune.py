"""The tuner calls operators with what they take: each case once, small, in both directions."""

import importlib
from pathlib import Path

import pytest

pytest.importorskip("triton")

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("op", ["linear", "norm", "residual"])
def test_the_tuner_runs_every_operator(op, direction, device, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    tuner = importlib.import_module("kernel_tune")
    monkeypatch.setattr(tuner, "DEVICE", device)
    radius, direction_, *_ = tuner.prepared(tuner.Case(op, (2, 3, 20)), direction)()
    assert radius.isfinite().all()
    assert direction_.isfinite().all()
