"""The cost table: every system runs, ratios are taken against the Euclidean ViT, operations are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from polarvit.experiments import Settings, cost
from polarvit.experiments.bench import step
from polarvit.experiments.bench.contestants import Contestant, Setting
from polarvit.training import SettingsError


def test_the_table_has_times_parameters_and_operations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cost.run(Settings(tmp_path, quick=True, device="cpu", only=("lvit_tiny", "lorentz_vit_tiny"))) == []
    record = json.loads((tmp_path / "cost-cpu.json").read_text())
    rows = {row["key"]: row for row in record["rows"]}
    assert list(rows) == ["vit_tiny", "lorentz_vit_tiny", "lvit_tiny"]
    assert rows["vit_tiny"]["both_ratio"] == 1
    assert rows["lorentz_vit_tiny"]["paper_ratio"] == pytest.approx(52 / 21, rel=1e-4)
    for row in rows.values():
        assert row["step"]["ms"] > 0
        assert row["parameters"] > 10_000
    assert "GFLOP" in capsys.readouterr().out
    told = Settings(tmp_path, quick=True, device="cpu", only=("hexformer_tiny",))
    assert cost.run(told) == []
    again = json.loads((tmp_path / "cost-cpu.json").read_text())
    assert [row["key"] for row in again["rows"]] == ["vit_tiny", "lorentz_vit_tiny", "hexformer_tiny", "lvit_tiny"]
    assert again["rows"][1] == rows["lorentz_vit_tiny"]  # as it was
    assert set(again["summary"]) == {row["key"] for row in again["rows"]}
    assert "machine" in again["summary"]["lvit_tiny"]["provenance"]
    with pytest.raises(SettingsError, match="no system 'vgg'"):
        cost.run(Settings(tmp_path, quick=True, only=("vgg",)))


def test_each_ratio_stands_beside_its_milliseconds() -> None:
    """A row without a ratio, as after a failed Euclidean ViT, is stated all the same."""
    fp32 = {"key": "lvit_tiny", "precision": "fp32", "forward_backward": {"ms": 12.0}, "both_ratio": 1.2}
    tf32 = {"key": "lvit_tiny", "precision": "tf32", "forward_backward": {"ms": 10.0}, "both_ratio": 2.0}
    assert cost.stated([fp32, tf32], "lvit_tiny") == "12.0 ms fp32 (1.20x), 10.0 ms tf32 (2.00x)"
    del fp32["both_ratio"]
    assert cost.stated([fp32, tf32], "lvit_tiny") == "12.0 ms fp32, 10.0 ms tf32 (2.00x)"
    assert cost.stated([{**fp32, "failed": "out of memory"}], "lvit_tiny") == ""


def test_what_is_measured_outlives_a_failed_euclidean_vit_and_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = step.prepare

    def failing(one: Contestant, *args: Any) -> Any:
        if one.key == cost.BASE:
            raise RuntimeError("this model does not compile")
        if one.key == "hvt_tiny":
            raise KeyboardInterrupt
        return prepare(one, *args)

    monkeypatch.setattr(step, "prepare", failing)
    with pytest.raises(KeyboardInterrupt):
        cost.run(Settings(tmp_path, quick=True, device="cpu", only=("lvit_tiny", "hvt_tiny")))
    record = json.loads((tmp_path / "cost-cpu.json").read_text())
    base, lvit = record["rows"]
    assert "does not compile" in base["failed"]
    assert lvit["step"]["ms"] > 0
    assert "both_ratio" not in lvit
    assert record["summary"]["lvit_tiny"]["value"].endswith(" ms fp32")
    assert "vit_tiny" not in record["summary"]


def test_operations_of_the_euclidean_model_are_those_of_its_products() -> None:
    setting = Setting(narrow=True)
    n, d, m, patch = 65, 24, 48, 48
    blocks = 2 * (n * (4 * d * d + 2 * d * m) + 2 * n * n * d)
    forward = 2 * (64 * patch * d + blocks + d * 100)
    backward = 2 * forward - 2 * 64 * patch * d  # nobody asks for the gradient of an image
    assert cost.flops("vit_tiny", setting) == pytest.approx((forward + backward) / 1e9, rel=1e-6)
