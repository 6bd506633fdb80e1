"""The benchmark of whole steps runs everywhere and says what it measured."""

import json
from pathlib import Path

import pytest

from polarvit.experiments.bench import step


def test_the_step_benchmark_runs_small_on_a_cpu_and_labels_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "step.json"
    rows = step.run(image=8, patch=4, classes=4, batch=4, precisions=("fp32",), device="cpu", repeats=1, out=out)
    assert [row["label"] for row in rows] == [one.label for one in step.contestants("tiny")]
    assert all(row["milliseconds"] > 0 for row in rows)
    assert rows[0]["ratio"] == 1
    assert "NARROW" in capsys.readouterr().out
    record = json.loads(out.read_text())
    assert record["narrow"] is True
    assert len(record["rows"]) == len(rows)


def test_only_keeps_the_named_models_and_the_base_of_the_ratios() -> None:
    rows = step.run(image=8, patch=4, classes=4, batch=2, device="cpu", repeats=1, only="joint")
    assert [row["label"] for row in rows] == ["Euclidean ViT", "Polar-ViT, joint shift"]
