"""The weight-decay experiment: the paper's example measured, and trained with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polarvit.experiments import Settings, weight_decay


def test_it_records_the_papers_example_and_a_training_that_only_polar_survives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_decay, "TRAIN_POINTS", 8)
    monkeypatch.setattr(weight_decay, "TRAIN_LR", 0.2)
    failures = weight_decay.run(Settings(tmp_path, quick=True))
    record = json.loads((tmp_path / "weight-decay-quick.json").read_text())
    assert failures == []
    one = {row["radius"]: row for row in record["one_step"]}
    assert [one[r]["polar"] for r in (8.0, 9.0, 12.0)] == pytest.approx([7.9853, 8.9610, 11.517], abs=5e-4)
    assert one[8.0]["ambient_on_axis"] == pytest.approx(8.14, abs=0.01)
    assert one[9.0]["ambient_on_axis_without_floor"] is None  # infinite: the squares are equal
    assert one[12.0]["ambient_on_axis"] > 12
    last = record["training"][-1]
    assert last["polar"]["lost_share"] == 0 < last["ambient"]["lost_share"]
    assert set(record["summary"]) == {"radius_8", "radius_9", "radius_12"}
    assert "ambient 8.14" in capsys.readouterr().out
