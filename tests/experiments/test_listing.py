"""The list of tables and figures: it reads records and says what is missing; the page is what the command writes."""

from __future__ import annotations

import importlib
import importlib.util
import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from polarvit.experiments import EXPERIMENTS, Experiment, Row, Settings
from polarvit.experiments.listing import Finding, finding, head, lines, machine_text, markdown, overview

ROOT = Path(__file__).parent.parent.parent
TOY = Experiment(
    "toy",
    "a toy",
    "Table 0",
    "polarvit.nowhere",
    (Row("a", "first | row", "1.0"), Row("b", "second row", "2.0", "polarvit train b", "b/c.json")),
    "one minute",
)
HERE = {"date": "2026-01-02", "machine": {"processor": "Abacus", "cores": 2, "gpus": []}}
THERE = {"date": "2026-03-04", "machine": {"gpus": ["NVIDIA H200"]}}


def test_a_value_comes_with_date_and_machine(tmp_path: Path) -> None:
    (tmp_path / "toy.json").write_text(json.dumps({"provenance": HERE, "summary": {"a": "1.1"}}))
    assert finding(TOY, TOY.rows[0], tmp_path) == Finding("1.1", "2026-01-02, Abacus, 2 cores")
    (tmp_path / "b").mkdir()
    record = {"provenance": HERE, "summary": {"b": {"value": "2.2", "provenance": THERE}}}
    (tmp_path / "b" / "c.json").write_text(json.dumps(record))
    assert finding(TOY, TOY.rows[1], tmp_path) == Finding("2.2", "2026-03-04, NVIDIA H200")
    assert head(TOY, tmp_path) == ["command: polarvit reproduce toy", "a run takes one minute"]


@pytest.mark.parametrize("record", [None, {}, {"summary": {"other": "3"}}])
def test_what_is_not_recorded_is_not_yet_run(tmp_path: Path, record: dict[str, object] | None) -> None:
    if record is not None:
        (tmp_path / "toy.json").write_text(json.dumps(record))
    assert lines(TOY, tmp_path) == [
        ("first | row", "1.0", "not yet run", ""),
        ("second row", "2.0", "not yet run", "polarvit train b"),
    ]
    assert head(TOY, tmp_path)[1] == "not yet run: 2 of 2 rows; takes one minute"


def test_a_comparison_shows_every_length_and_the_one_with_most_rows_first(tmp_path: Path) -> None:
    rows = (Row("a", "first", "1.0"), Row("b", "second", "2.0"))
    one = Experiment("toy", "a toy", "Table 0", "polarvit.nowhere", rows, "one minute", any_length=True)

    def record(path: str, steps: int, origin: dict[str, object] = HERE, **summary: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps({"provenance": origin, "steps": steps, "summary": summary}))

    def shown() -> list[str]:
        return [ours for *_, ours, _ in lines(one, tmp_path)]

    assert shown() == ["not yet run", "not yet run"]
    assert head(one, tmp_path)[1:] == ["not yet run: 2 of 2 rows; takes one minute"]
    record("toy.json", 90_000)
    record("set/1000-steps/toy.json", 1000, a="5.0", unknown="6.0")
    record("set/5000-steps/other.json", 5000, a="8.0", b="8.0")
    assert shown() == ["5.0", "not yet run"]
    assert head(one, tmp_path)[1:] == ["rows: 1 of 2 at 1,000 steps", "not yet run: 1 of 2 rows; takes one minute"]
    record("set/200-steps/toy.json", 200, THERE, a="3.0", b="4.0")
    assert shown() == ["3.0; 5.0", "4.0"]
    assert lines(one, tmp_path)[0][3] == "2026-03-04, NVIDIA H200; 2026-01-02, Abacus, 2 cores", "in the values' order"
    record("toy.json", 90_000, a="9.0", b="9.5")
    assert shown() == ["9.0; 3.0; 5.0", "9.5; 4.0"], "of as many rows, the longer one first"
    told = "rows: 2 of 2 at 90,000 steps, 2 of 2 at 200 steps, 1 of 2 at 1,000 steps; compare rows of one length only"
    assert head(one, tmp_path)[1:] == [told, "a run takes one minute"]
    assert lines(one, tmp_path)[0][3].count("Abacus") == 1, "what two values share is said once"
    assert [ours for *_, ours, _ in lines(replace(one, any_length=False), tmp_path)] == ["9.0", "9.5"]


def test_several_gpus_are_counted() -> None:
    assert machine_text({"gpus": ["X"] * 8}) == "8 x X"
    assert machine_text({}) == "machine not recorded"


def test_the_page_is_what_the_command_writes() -> None:
    spec = importlib.util.spec_from_file_location("reproduction_page", ROOT / "docs" / "reproduction_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run: python docs/reproduction_page.py"


def test_the_page_has_every_row_and_value_of_the_paper() -> None:
    text = markdown(ROOT / "results")
    for experiment in EXPERIMENTS.values():
        assert f"## {experiment.name}: {experiment.reproduces}" in text
        for row in experiment.rows:
            assert f"| {row.label} | {row.paper or '-'} |" in text


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_rows_that_train_state_the_values_of_the_catalogue(experiment: Experiment) -> None:
    rows = getattr(importlib.import_module(experiment.home), "ROWS", None)
    if rows is None or not hasattr(rows[0], "recipe"):
        return
    stated = {row.name: "" if row.paper is None else str(row.paper) for row in rows}
    assert stated == {row.key: row.paper for row in experiment.rows}


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_declaration_is_sound(experiment: Experiment) -> None:
    assert experiment.cost
    keys = [row.key for row in experiment.rows]
    assert len(keys) == len(set(keys))
    assert find_spec(experiment.home), experiment.home
    path = ROOT / "results" / experiment.table
    if path.is_file():
        unknown = set(json.loads(path.read_text()).get("summary", {})) - set(keys)
        assert not unknown, f"{path.name}: no row declared for {unknown}"


def test_a_quick_look_has_files_of_its_own(tmp_path: Path) -> None:
    assert Settings(tmp_path).file("expressivity") == tmp_path / "expressivity.json"
    assert Settings(tmp_path, quick=True).file("expressivity", "png") == tmp_path / "expressivity-quick.png"


def test_the_overview_counts_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "position.json").write_text(json.dumps({"summary": {"none": "76.01"}, "steps": 117100}))
    shares = {name: share for name, _, share in overview(tmp_path)}
    assert list(shares) == list(EXPERIMENTS)
    assert (shares["position"], shares["cost"]) == ("1 of 7 at 117,100 steps", "0 of 7")
    line = next(line for line in markdown(tmp_path).splitlines() if line.startswith("| [position]"))
    assert line.endswith(
        "(#position-table-5-tabablation-last-rows) | Table 5 (tab:ablation), last rows | 1 of 7 at 117,100 steps |"
    )
