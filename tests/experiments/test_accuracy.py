"""Tables of whole models: every row has a recipe, another table, or a reason, and what ran is found by the list."""

from __future__ import annotations

from pathlib import Path

import pytest

from polarvit.experiments import EXPERIMENTS, Experiment, Settings
from polarvit.experiments.accuracy import rows_of, stated
from polarvit.experiments.listing import finding, lines
from polarvit.experiments.runs import Stated

TABLES = [experiment for experiment in EXPERIMENTS.values() if experiment.home == "polarvit.experiments.accuracy"]


@pytest.mark.parametrize("experiment", TABLES, ids=lambda e: e.name)
def test_every_row_is_trained_here_or_says_where(experiment: Experiment, tmp_path: Path) -> None:
    trained = {row.name for row in rows_of(experiment.name)}
    for row, (*_, where) in zip(experiment.rows, lines(experiment, tmp_path), strict=True):
        if row.key in trained:
            assert where == f"polarvit reproduce {experiment.name} --only {row.key}"
        else:
            assert where
            assert where == row.command
            assert not row.command or row.command.split()[2] in EXPERIMENTS


def test_the_papers_values_are_read_from_their_text() -> None:
    assert stated("74.64 ± 0.41") == Stated(74.64, 0.41)
    assert stated("42.77") == Stated(42.77)


def test_what_ran_is_what_the_list_shows(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["main-tiny"]
    told = Settings(tmp_path, True, steps=2, only=("cifar100_hexformer_tiny",), runs=tmp_path / "runs", device="cpu")
    assert experiment.run(told) == []
    (tmp_path / "main-tiny-quick.json").rename(tmp_path / "main-tiny.json")
    row = next(row for row in experiment.rows if row.key == "cifar100_hexformer_tiny")
    assert finding(experiment, row, tmp_path).value.endswith("(1 seed of 2 steps)")
