"""Several tables as one queue: shared runs once, first seeds first, tables of what came to its end."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from commands import call, done, flat

from polarvit.experiments import EXPERIMENTS, Settings, runs
from polarvit.experiments.side_by_side import Job, Unfinished
from polarvit.experiments.together import Planned, Queue, together
from polarvit.training import SettingsError

TABLES = ["position", "hexformer-defect", "ablation"]
SHARED = {"none", "polar_vit_tiny", "boost"}
"""Folders of rows that `position` and `ablation` both have."""


def finish(job: Job, found: dict[str, object]) -> None:
    """What a run leaves in its folder when it has come to its end, in short."""
    facts = {"config": {"calibration": "weights"}, "product_precision": "fp32"}
    (job.folder / "environment.json").write_text(json.dumps(facts))
    file = "diverged.json" if "diverged" in found else "metrics.json"
    (job.folder / file).write_text(json.dumps({**found, "date": "", "machine": {}}))


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
                    finish(job, {"scores": {"top1": 10.0}, "seconds": 1})
                if job.state == "diverged":
                    finish(job, {"diverged": "no number"})
                    job.state = "finished"

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


def test_a_shared_run_is_written_down_in_every_table_that_has_it(settings: Settings, monkeypatch) -> None:
    def one_by_one(jobs: list[Job], *_: object, **__: object) -> None:
        finish(jobs[0], {"scores": {"top1": 10.0}, "seconds": 1})
        jobs[0].keep()  # type: ignore[misc]
        tables = [json.loads((settings.out / f"{name}-quick.json").read_text()) for name in ("position", "ablation")]
        assert [sum(row["seeds"] for row in table["rows"]) for table in tables] == [1, 1]
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "side_by_side", one_by_one)
    with pytest.raises(KeyboardInterrupt):
        together(["position", "ablation"], settings)


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


def test_what_has_finished_is_written_down_before_the_others_end(settings: Settings, monkeypatch) -> None:
    def break_off(jobs: list[Job], *_: object, **__: object) -> None:
        finish(jobs[0], {"scores": {"top1": 10.0}, "seconds": 1})
        assert jobs[0].keep is not None
        jobs[0].keep()
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "side_by_side", break_off)
    with pytest.raises(KeyboardInterrupt):
        together(["position", "hexformer-defect"], settings)
    table = json.loads((settings.out / "position-quick.json").read_text())
    assert [row["seeds"] for row in table["rows"]] == [1, 0, 0, 0, 0, 0, 0]


def test_a_run_that_died_is_a_failure(settings: Settings, worked) -> None:
    worked(lambda job: "dead" if job.folder.parent.name == "rotary" else "finished")
    told = replace(settings, seeds=1)
    log = settings.runs / "cifar100" / "2-steps-toy" / "rotary" / "seed-0" / "worker.log"
    log.parent.mkdir(parents=True)
    log.write_text("out of memory\n")
    why = f"ended with None; {log} ends with: out of memory"
    assert together(["position", "hexformer-defect"], told) == [f"position rotary, seed 0: {why}"]


def test_a_shared_run_that_diverged_is_told_by_every_table(settings: Settings, worked) -> None:
    worked(lambda job: "diverged" if job.folder.parent.name == "none" else "finished")
    told = replace(settings, seeds=1)
    failures = together(["position", "ablation"], told)
    assert [each.partition(":")[0] for each in failures] == ["position", "ablation"]
    assert all("seed 0 diverged (no number)" in each for each in failures)


def test_every_table_takes_the_rows_it_has(settings: Settings, worked) -> None:
    calls = worked(lambda _: "finished")
    told = replace(settings, seeds=1, only=("none", "sound"))
    assert together(["position", "ablation", "hexformer-defect"], told) == []
    assert [folder.parent.name for folder in calls[0][0]] == ["none", "hexformer_tiny"]
    assert not list(settings.out.glob("ablation*"))
    with pytest.raises(SettingsError, match="neither position nor ablation has a row 'clamped'"):
        together(["position", "ablation"], replace(told, only=("clamped",)))


@pytest.mark.parametrize("name", [name for name, one in EXPERIMENTS.items() if {"runs", "side_by_side"} <= one.takes])
def test_the_rows_a_table_can_be_asked_for_are_those_it_has(name: str, settings: Settings, monkeypatch) -> None:
    asked: list[set[str]] = []

    def look(_: str, __: str, rows: list[runs.Row], *words: object, **___: object) -> list[str]:
        asked.append({row.name for row in rows})
        raise Planned

    module = importlib.import_module(EXPERIMENTS[name].home)
    monkeypatch.setattr(module, "study", look)
    with pytest.raises(Planned):
        EXPERIMENTS[name].run(settings)
    own = {row.key for row in EXPERIMENTS[name].rows if not row.result}
    assert own <= asked[0], "what is asked for by --only must be there"


def test_seeds_run_in_the_order_asked_for(settings: Settings, worked) -> None:
    calls = worked(lambda _: "finished")
    together(["position", "hexformer-defect"], replace(settings, seed_list=(5, 2)))
    assert [folder.name for folder in calls[0][0]] == ["seed-5"] * 9 + ["seed-2"] * 9


def test_records_of_segmentation_are_shown_once(
    settings: Settings, worked, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    worked(lambda _: "finished")
    told = replace(settings, quick=False, seeds=1, steps=None, data=str(tmp_path / "nothing"))
    shutil.copytree(Path(__file__).parents[2] / "results" / "segmentation", settings.out / "segmentation")
    with pytest.raises(Planned):
        EXPERIMENTS["segmentation"].run(replace(told, queue=Queue()))
    assert "No set is prepared here" not in capsys.readouterr().out
    assert EXPERIMENTS["segmentation"].run(replace(told, queue=Queue(closed=True))) == []
    assert "No set is prepared here" in flat(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ablation", "precision"], "'precision' is no table of training runs"),
        (["ablation", "posision"], "did you mean 'position'?"),
        (["precision", "precision", "--steps", "3"], "--steps: 'precision' has no use for it"),
    ],
    ids=["measurement", "misspelt", "twice"],
)
def test_what_does_not_go_together_is_refused(words: list[str], message: str) -> None:
    result = call("reproduce", *words)
    assert result.exit_code == 2
    assert message in flat(result.stderr)


@pytest.mark.slow
def test_two_tables_with_real_workers(tmp_path: Path) -> None:
    words = ["position", "hexformer-defect", "--quick", "--steps", "1", "--device", "cpu", "--side-by-side", "2"]
    only = ["--only", "none", "--only", "sound", "--out", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    printed = done("reproduce", *words, *only)
    assert "position, hexformer-defect: 2 runs are missing" in flat(printed)
    assert (tmp_path / "runs" / "cifar100" / "1-steps-toy" / "hexformer_tiny" / "seed-0" / "metrics.json").is_file()
    assert printed.count("finished") >= 2
