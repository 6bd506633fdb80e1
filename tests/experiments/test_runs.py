"""Rows x seeds of recipes: nothing finished runs twice, and the table says what the folders hold."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polarvit.experiments import EXPERIMENTS, Settings, runs
from polarvit.experiments.run_picture import agreement, draw, ranks
from polarvit.experiments.runs import Row, Stated, study
from polarvit.training import SettingsError, load

ROWS = (
    Row("first", "The first", "digits", paper=Stated(80.15, 0.26)),
    Row("second", "The second", "digits", ("model.options.position=none",), Stated(word="diverged")),
)


def begin(folder: Path) -> None:
    """What a run writes down of its model before its first step, in short."""
    (folder / "environment.json").write_text(
        json.dumps({"config": {"calibration": "weights"}, "product_precision": "fp32"})
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        tmp_path / "results", quick=True, seeds=2, steps=2, runs=tmp_path / "runs", device="cpu", only=("first",)
    )


def test_a_study_trains_once_and_records_mean_spread_and_seeds(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study("table", "A table", ROWS, settings) == []
    printed = capsys.readouterr().out
    monkeypatch.setattr(runs, "train", lambda *_, **__: pytest.fail("a finished run was run again"))
    assert study("table", "A table", ROWS, settings) == []
    assert "80.15 ± 0.26" in printed
    assert "TOY SIZE" in printed
    record = json.loads((settings.out / "table-quick.json").read_text())
    first, second = record["rows"]
    values = [run["top1"] for run in first["runs"]]
    assert [run["seed"] for run in first["runs"]] == [0, 1]
    assert first["mean"] == pytest.approx(statistics.fmean(values), rel=1e-4)
    assert first["std"] == pytest.approx(statistics.stdev(values), rel=1e-3)
    assert second["seeds"] == 0
    assert record["command"] == "polarvit reproduce table --quick --steps 2 --seeds 2"
    assert list(record["summary"]) == ["first"]
    assert record["summary"]["first"]["value"].endswith(" (2 seeds of 2 steps)")


def test_what_is_set_by_hand_holds_in_a_quick_look_too(settings: Settings) -> None:
    told = replace(settings, sets=("optim.lr=1e-5", "model.options.position=none"))
    recipe = runs.resolved(ROWS[0], 0, told)
    assert (recipe.optim.lr, recipe.model.options["position"]) == (1e-5, "none")
    with pytest.raises(SettingsError, match="with --quick narrow models train on toy data"):
        runs.resolved(ROWS[0], 0, replace(settings, data="data/cifar100"))


def test_seeds_count_from_that_of_the_recipe(settings: Settings) -> None:
    row = Row("second", "a second cycle", "cifar100_polar_vit_tiny_second")
    own = load(row.recipe).train.seed
    assert own > 0, "a second cycle must not see the draws of the first again"
    found = [runs.resolved(row, seed, replace(settings, quick=False, data=None)).train.seed for seed in (0, 1)]
    assert found == [own, own + 1]


def test_a_toy_run_begins_without_weights() -> None:
    row = Row("second", "a second cycle", "cifar100_polar_vit_tiny_second")
    assert load(row.recipe).model.pretrained
    assert runs.resolved(row, 0, Settings(quick=True)).model.pretrained is None
    with pytest.raises(SettingsError, match=r"--set model\.pretrained: with --quick"):
        runs.resolved(row, 0, Settings(quick=True, sets=("model.pretrained=polar_vit_tiny.cifar100",)))


def test_a_run_of_another_recipe_is_not_taken_for_this_one(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = settings.runs / "table" / "2-steps-toy" / "first" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text("{}")
    with pytest.raises(SettingsError, match="without its recipe"):
        study("table", "A table", ROWS, settings)
    other = runs.resolved(ROWS[1], 0, settings)
    (folder / "recipe.yaml").write_text(runs.dump(other))
    with pytest.raises(SettingsError, match=r"another 'model\.options\.position' \('none'\) than this row"):
        study("table", "A table", ROWS, settings)


@pytest.mark.parametrize("minutes", [None, 1.0])
def test_an_unfinished_run_goes_on_with_its_own_recipe_only(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, minutes: float | None
) -> None:
    folder = settings.runs / "table" / "2-steps-toy" / "first" / "seed-0"
    (folder / "checkpoints" / "step-00000001").mkdir(parents=True)
    begun = runs.dump(runs.resolved(ROWS[1], 0, settings))
    (folder / "recipe.yaml").write_text(begun)
    for start in ("attempt", "side_by_side"):
        monkeypatch.setattr(runs, start, lambda *_, **__: pytest.fail("it went on"))
    with pytest.raises(SettingsError, match=r"the run there has another 'model\.options\.position'"):
        study("table", "A table", ROWS, replace(settings, minutes=minutes))
    assert (folder / "recipe.yaml").read_text() == begun


def test_a_worker_stopped_after_its_last_file_has_finished(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped_late(jobs: list[runs.Job], *_: object, **__: object) -> None:
        for job in jobs:
            job.state = "stopped"
            begin(job.folder)
            (job.folder / "metrics.json").write_text(
                json.dumps({"scores": {"top1": 1.0}, "date": "", "machine": {}, "seconds": 1})
            )

    monkeypatch.setattr(runs, "side_by_side", stopped_late)
    assert study("table", "A table", ROWS, replace(settings, minutes=1.0)) == []


def test_a_diverged_run_that_is_stopped_while_its_best_weights_are_measured_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(recipe: Any, folder: Path, **_: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        begin(folder)
        raise FloatingPointError("the loss became nan between steps 1 and 2; the last checkpoint is from before")

    ends = iter([KeyboardInterrupt, RuntimeError])

    def ended(*_: Any, **__: Any) -> None:
        raise next(ends)

    monkeypatch.setattr(runs, "train", diverge)
    monkeypatch.setattr(runs, "best_of", ended)
    with pytest.raises(KeyboardInterrupt):
        runs.attempt(load("digits"), tmp_path / "run", "cpu")
    assert not (tmp_path / "run" / "diverged.json").exists()
    with pytest.raises(RuntimeError):  # what cannot be measured at all is not tried for ever
        runs.attempt(load("digits"), tmp_path / "run", "cpu")
    assert "diverged" in json.loads((tmp_path / "run" / "diverged.json").read_text())


def test_a_diverged_run_counts_as_finished_and_fails_only_where_the_paper_has_a_number(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def diverge(recipe: Any, folder: Path, **_: Any) -> None:
        calls.append(folder.parent.name)
        folder.mkdir(parents=True)
        begin(folder)
        raise FloatingPointError("the loss became nan between steps 1 and 2; the last checkpoint is from before")

    monkeypatch.setattr(runs, "train", diverge)
    both = Settings(settings.out, quick=True, steps=2, runs=settings.runs)
    for _ in range(2):
        failures = study("table", "A table", ROWS, both)
        assert failures == ["The first: seed 0 diverged (the loss became nan between steps 1 and 2)"]
    assert calls == ["first", "second"]
    found = json.loads((settings.out / "table-quick.json").read_text())["summary"]["first"]
    run = json.loads((settings.runs / "table" / "2-steps-toy" / "first" / "seed-0" / "diverged.json").read_text())
    assert found["value"] == "diverged (2 steps)"
    assert run["product_precision"] == "fp32"  # what the run says it had, not what the recipe asks for
    assert found["provenance"] == {"date": run["date"], "machine": run["machine"]}


def test_the_order_of_the_rows_stands_beside_the_papers(tmp_path: Path) -> None:
    def row(name: str, theirs: float | None, ours: float | None, word: str = "", data: str = "x") -> dict[str, Any]:
        paper = {"mean": theirs, "std": 0.2, "word": word}
        known = {"name": name, "label": name, "data": data, "paper": paper if theirs or word else None}
        return {**known, "mean": ours, "std": 0.1, "seeds": 3, "diverged": int(ours is None)}

    rows = [
        row("a", 70, 52),
        row("b", 72, 51),
        row("c", 75, 55),
        row("ours", None, 60),
        row("hard", None, None, "diverged"),
    ]
    assert ranks(rows) == {"a": (3, 2), "b": (2, 3), "c": (1, 1)}
    assert agreement(rows) == "2 of 3 pairs of rows are ordered as in the paper."
    assert agreement(rows[:1]) == agreement([]) == ""
    other = [*rows, row("a on y", 40, 99, data="y")]
    assert ranks(other) == {**ranks(rows), "a on y": (1, 1)}
    assert agreement(other) == agreement(rows), "rows on other data do not compare"
    for whole in (False, True):
        draw(tmp_path / f"{whole}.png", "A table", rows, whole=whole)
        assert (tmp_path / f"{whole}.png").stat().st_size > 10_000
    assert (tmp_path / "True.png").read_bytes() != (tmp_path / "False.png").read_bytes()


def test_another_length_keeps_the_share_of_warm_up() -> None:
    whole = load("cifar100_polar_vit_tiny")
    short = runs.shortened(whole, 11_710)
    assert short.optim.warmup * 10 == short.train.steps == 11_710
    assert short.watch.eval_every == whole.watch.eval_every
    assert runs.shortened(whole, 100).watch.checkpoint_every == 100


def test_an_unknown_row_is_named(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="no row 'third'; there are first, second"):
        runs.chosen(ROWS, ["third"])


@pytest.mark.parametrize("home", ["ablation", "hexformer_defect", "radius_rule", "position"])
def test_every_row_of_the_tables_loads(home: str) -> None:
    module = __import__(f"polarvit.experiments.{home}", fromlist=["ROWS"])
    names = [row.name for row in module.ROWS]
    assert len(set(names)) == len(names)
    for row in module.ROWS:
        assert load(row.recipe, list(row.overrides)).train.steps == 117_100
    assert any(experiment.home.endswith(home) for experiment in EXPERIMENTS.values())
