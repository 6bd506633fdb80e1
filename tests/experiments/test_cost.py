"""The cost table: every system runs, ratios are taken against the Euclidean ViT, operations are counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polarvit.experiments import Settings, cost
from polarvit.experiments.bench.contestants import Setting
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


def test_operations_of_the_euclidean_model_are_those_of_its_products() -> None:
    setting = Setting(narrow=True)
    n, d, m, patch = 65, 24, 48, 48
    blocks = 2 * (n * (4 * d * d + 2 * d * m) + 2 * n * n * d)
    forward = 2 * (64 * patch * d + blocks + d * 100)
    backward = 2 * forward - 2 * 64 * patch * d  # nobody asks for the gradient of an image
    assert cost.flops("vit_tiny", setting) == pytest.approx((forward + backward) / 1e9, rel=1e-6)
