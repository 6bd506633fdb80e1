"""The profile of a step: kernels are put where they belong, and times are those of one step."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("step_profile")


def test_kernels_are_told_apart_by_their_names(script) -> None:
    own = script.own_kernels()
    assert set(own.values()) >= {"attention", "heads", "linear", "norm", "residual"}
    name = next(name for name, part in own.items() if part == "norm")
    found = [script.part_of(each, own) for each in (name, "sm90_xmma_gemm_f32", "triton_poi_fused_add_0", "vectorized")]
    assert found == ["norm", "matrix products", "compiler", "others"]


def test_times_are_those_of_one_step(script) -> None:
    event = SimpleNamespace(name="kernel", device_type="DeviceType.CUDA", device_time=6.0)
    other = SimpleNamespace(name="host", device_type="DeviceType.CPU", device_time=9.0)
    assert script.totals([event, event, event, event, other], 2) == {"kernel": (12.0, 2.0)}
