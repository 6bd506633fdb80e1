"""Several tables as one queue: shared runs once, first seeds first, tables of what came to its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polarvit.cli import app
from polarvit.experiments import Settings, runs
from polarvit.experiments.side_by_side import Job, Unfinished
from polarvit.experiments.together import together

TABLES = ["position", "hexformer-defect", "ablation"]
SHARED = {"none", "polar_vit_tiny", "boost"}
"""Folders of rows that `position` and `ablation` both have."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    told = Settings(tmp_path / "results", quick=True, seeds=2, steps=2, runs=tmp_path / "runs", device="cpu")
    return replace(told, side_by_side=3)


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Job], str]], list[tuple[list[Path], int]]]:
    """Workers that leave a result in the folders they finish, by what `state(job)` says; returns each call's jobs."""

    def install(state: Callable[[Job], str]) -> list[tuple[list[Path], int]]:
        calls: list[tuple[list[Path], int]] = []

        def work(jobs: list[Job], at_once: int, **_: object) -> None:
            calls.append(([job.folder for job in jobs], at_once))
            for job in jobs:
                job.state = state(job)
                if job.state == "finished":
                    facts = {"config": {"calibration": "weights"}, "product_precision": "fp32"}
                    (job.folder / "environment.json").write_text(json.dumps(facts))
                    found = {"scores": {"top1": 10.0}, "date": "", "machine": {}, "seconds": 1}
                    (job.folder / "metrics.json").write_text(json.dumps(found))

        monkeypatch.setattr(runs, "side_by_side", work)
        return calls

    return install


def test_what_tables_share_is_run_once_and_first_seeds_come_first(settings: Settings, worked) -> None:
    calls = worked(lambda _: "finished")
    assert together(TABLES, settings) == []
    ((folders, at_once),) = calls
    assert at_once == 3
    assert len(set(folders)) == len(folders) == 2 * (7 + 2 + 7 - len(SHARED))
    assert [folder.name for folder in folders] == sorted(folder.name for folder in folders)
    assert {folder.parent.name for folder in folders} >= SHARED
    for name in TABLES:
        table = json.loads(next(settings.out.glob(f"{name}-quick.json")).read_text())
        assert [row["seeds"] for row in table["rows"]] == [2] * len(table["rows"])


def test_what_is_finished_is_not_asked_for_again(settings: Settings, worked) -> None:
    calls = worked(lambda _: "finished")
    together(["hexformer-defect"], settings)
    together(["hexformer-defect", "position"], settings)
    assert len(calls[1][0]) == 2 * 7
    assert not {folder.parent.name for folder in calls[1][0]} & {folder.parent.name for folder in calls[0][0]}


def test_runs_that_are_left_are_named_after_the_tables_of_the_others(settings: Settings, worked) -> None:
    worked(lambda job: "finished" if job.folder.name == "seed-0" else "waiting")
    with pytest.raises(Unfinished, match="9 runs are not finished"):
        together(["position", "hexformer-defect"], settings)
    table = json.loads((settings.out / "position-quick.json").read_text())
    assert [row["seeds"] for row in table["rows"]] == [1] * 7


def test_a_run_that_died_is_a_failure(settings: Settings, worked) -> None:
    worked(lambda job: "dead" if job.folder.parent.name == "rotary" else "finished")
    told = replace(settings, seeds=1)
    (settings.runs / "cifar100" / "2-steps-toy" / "rotary" / "seed-0").mkdir(parents=True)
    (settings.runs / "cifar100" / "2-steps-toy" / "rotary" / "seed-0" / "worker.log").write_text("out of memory\n")
    assert together(["position", "hexformer-defect"], told) == [
        f"rotary, seed 0: ended with None; {settings.runs}/cifar100/2-steps-toy/rotary/seed-0/worker.log ends with: "
        "out of memory"
    ]


def test_only_tables_of_training_runs_go_together() -> None:
    result = CliRunner().invoke(app, ["reproduce", "ablation", "precision"])
    assert result.exit_code == 2
    assert "'precision' is no table of training runs" in " ".join(result.stderr.replace("│", " ").split())
