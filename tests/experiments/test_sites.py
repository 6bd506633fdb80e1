"""The table of failure sites: thresholds found, and near the paper's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polarvit.experiments import Settings, sites


def site(errors: list[float]) -> sites.Site:
    return sites.Site("a", "a", "w", [1.0, 2.0, 3.0, 4.0], errors, [0.0] * 4, [1.0] * 4, 2.0)


def test_the_threshold_is_where_every_later_value_is_correct() -> None:
    assert site([1.0, 0.01, 1.0, 0.01]).threshold == 4.0
    assert site([1.0, 0.01, 0.01, 0.01]).threshold == 2.0
    assert site([0.01] * 4).threshold == 1.0
    assert str(site([1.0] * 4).threshold) == "nan"


def test_measured_thresholds_are_of_the_papers_order_and_polar_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sites.run(Settings(tmp_path, quick=True)) == []
    record = json.loads((tmp_path / "sites-quick.json").read_text())
    for row in record["sites"]:
        assert 0.5 < row["measured"] / row["paper"] < 100, row["site"]  # where noise ends depends on the processor
        assert max(row["ambient"][:3]) > 0.1 > row["ambient"][-1], row["site"]
    assert set(record["summary"]) == {"attention", "decay", "pooling", "centering"}
    assert "gyro-norm centering" in capsys.readouterr().out
