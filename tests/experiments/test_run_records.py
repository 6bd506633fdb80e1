"""A record stands for its run: it counts as finished, says what ran, and holds no path of a machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polarvit.experiments import Settings, runs
from polarvit.experiments.run_records import LINES, all_finished, thinned
from polarvit.experiments.runs import Row, study
from polarvit.training import SettingsError

TOY = "model.options={img_size: 16, patch_size: 8, depth: 1, dim: 16, mlp_dim: 16, heads: 2}"
ROWS = (Row("one", "One", "digits", (TOY, "train.batch_size=8")), Row("one-seed-x", "Other", "digits_vit", (TOY,)))


def settings(tmp_path: Path, runs_folder: str = "runs", **more: Any) -> Settings:
    return Settings(
        tmp_path / "results", seed_list=(3,), steps=2, runs=tmp_path / runs_folder, device="cpu", only=("one",), **more
    )


def test_a_recorded_run_need_not_be_run_again_where_its_folder_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = tmp_path / "results" / "records"
    assert study("toy", "Toy", ROWS, settings(tmp_path), records=records) == []
    monkeypatch.setattr(runs, "train", lambda *_, **__: pytest.fail("a recorded run was run again"))
    elsewhere, table_file, said = settings(tmp_path, "other"), records / "2-steps" / "toy.json", list[str]()
    before = table_file.read_text().replace('"title": "Toy"', '"title": "Toy, of an earlier commit"')
    table_file.write_text(before)
    assert study("toy", "Toy", ROWS, elsewhere, records=records, say=said.append) == []
    assert table_file.read_text() == before, "a table that tells nothing new is not written anew"
    assert "1 of 1 runs are finished" in said[0]
    (found,) = all_finished("toy", ROWS, elsewhere, records)
    assert (found.row.name, found.seed) == ("one", 3)
    table = json.loads(table_file.read_text())
    assert table["rows"][0]["mean"] == found.top1
    assert table["command"] == "polarvit reproduce toy --steps 2 --seeds 3,"
    record = json.loads((records / "2-steps" / "one-seed-3.json").read_text())
    assert record["metrics"]["commit"] == found.metrics["commit"]
    assert record["recipe"]["train"]["seed"] == 3
    assert str(tmp_path) not in json.dumps(record)
    lines = [json.loads(line) for line in (records / "2-steps" / record["log"]).read_text().splitlines()]
    assert lines[-1]["top1"] == pytest.approx(found.top1, rel=1e-4)
    compiled = replace(elsewhere, sets=("train.compile=true", "train.cuda_graph=true"))  # the same steps
    assert study("toy", "Toy", ROWS, compiled, records=records) == []
    with pytest.raises(SettingsError, match=r"another 'optim\.lr' .* than this row"):
        study("toy", "Toy", ROWS, replace(elsewhere, sets=("optim.lr=1e-4",)), records=records)


def test_a_run_serves_every_table_that_names_it_until_a_default_of_its_model_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = tmp_path / "results" / "records"
    assert study("toy", "Toy", ROWS, settings(tmp_path), records=records, folder="shared") == []
    monkeypatch.setattr(runs, "train", lambda *_, **__: pytest.fail("the run of another table was run again"))
    other = (replace(ROWS[0], name="same", label="The same in another table", run="one"),)
    for place in ("runs", "elsewhere"):
        told = replace(settings(tmp_path, place), only=("same",))
        assert study("second", "Second", other, told, records=records, folder="shared") == []
    assert json.loads((records / "2-steps" / "second.json").read_text())["summary"]["same"]["value"]
    path = records / "2-steps" / "one-seed-3.json"
    content = json.loads(path.read_text())
    assert (content["label"], content["config"]["rate"]) == ("One", None)
    path.write_text(json.dumps({**content, "config": {**content["config"], "rate": 1.0}}))
    with pytest.raises(SettingsError, match=r"another 'model\.options\.rate' \(1\.0\) than this row has \(None\)"):
        study("second", "Second", other, told, records=records, folder="shared")


def test_a_row_may_lie_in_a_folder_that_its_table_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert study("toy", "Toy", ROWS, settings(tmp_path), records=tmp_path / "results" / "shared", folder="shared") == []
    monkeypatch.setattr(runs, "train", lambda *_, **__: pytest.fail("the run of another table was run again"))
    other = (replace(ROWS[0], name="same", run="one", folder="shared"), replace(ROWS[1], name="own"))
    for place in ("runs", "elsewhere"):
        told = replace(settings(tmp_path, place), only=("same",))
        assert study("second", "Second", other, told, records=tmp_path / "results" / "second") == []
    table = json.loads((tmp_path / "results" / "second" / "2-steps" / "second.json").read_text())
    assert list(table["summary"]) == ["same"]


def test_a_short_try_leaves_the_table_of_full_length_alone_and_every_precision_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (ROWS[0], replace(ROWS[1], name="strict", overrides=(TOY, "train.precision=bf16")))
    whole = replace(settings(tmp_path), steps=None)
    (whole.out / "toy.json").parent.mkdir()
    (whole.out / "toy.json").write_text("{}")
    assert study("toy", "Toy", rows, replace(settings(tmp_path), only=())) == []
    assert (whole.out / "toy.json").read_text() == "{}"
    record = json.loads((whole.out / "toy" / "2-steps" / "toy.json").read_text())
    assert (record["steps"], record["provenance"]["product_precision"]) == (2, "bf16,fp32")
    monkeypatch.setattr(runs, "train", lambda recipe, *_, **__: pytest.fail(f"{recipe.train.steps} steps"))
    with pytest.raises(pytest.fail.Exception, match=f"{runs.load('digits').train.steps} steps"):
        study("toy", "Toy", rows, whole)


def test_a_thinned_log_keeps_every_evaluation_and_the_last_loss() -> None:
    log = [{"step": step, "loss": step / 3} for step in range(100, 117_101, 100)]
    log += [{"step": step, "top1": 1.0, "val_loss": 2.0} for step in range(5855, 117_101, 5855)]
    kept = thinned(sorted(log, key=lambda line: line["step"]))
    assert [line["step"] for line in kept] == sorted(line["step"] for line in kept)
    assert sum("top1" in line for line in kept) == 20
    losses = [line for line in kept if "loss" in line]
    assert len(losses) == LINES
    assert losses[-1] == {"step": 117_100, "loss": 39033.0}
    assert thinned([]) == []
