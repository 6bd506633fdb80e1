"""The precision experiment: what it measures holds, and what it writes can be read."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from polarvit.experiments import Settings, precision
from polarvit.experiments.precision import peer_row, peer_table, run
from polarvit.experiments.precision.peers import methods
from polarvit.experiments.precision.samples import Spread, clusters, resolution_limit, unit_pairs
from polarvit.experiments.precision.truth import worst_truth_error
from polarvit.geometry import centroid, distance
from polarvit.tables import console


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One quick run: its folder and the JSON it wrote."""
    out = tmp_path_factory.mktemp("precision")
    assert run(Settings(out=out, quick=True)) == []
    return out, json.loads((out / "precision-quick.json").read_text())


def test_the_json_says_what_it_was_measured_with(quick: tuple[Path, dict[str, Any]]) -> None:
    record = quick[1]["provenance"]
    assert record["seed"] == 0
    assert record["quick"] is True
    assert record["packages"]["torch"] == torch.__version__
    assert {"system", "processor", "cores", "gpus"} <= set(record["machine"])
    assert {"table", "statements", "peers", "sweep", "protocol", "failures"} <= set(quick[1])


def test_the_json_holds_no_path_of_this_machine(quick: tuple[Path, dict[str, Any]]) -> None:
    text = (quick[0] / "precision-quick.json").read_text()
    assert str(quick[0]) not in text
    assert str(Path.home()) not in text


def test_polar_is_within_twice_the_resolution_limit_and_ambient_is_not(quick: tuple[Path, dict[str, Any]]) -> None:
    assert len(quick[1]["table"]) == 9
    for row in quick[1]["table"]:
        assert row["measured"]["polar"]["median"] <= 2 * row["resolution_limit"], row
        if row["radius"] >= 8:
            assert row["measured"]["ambient"]["median"] > 2 * row["resolution_limit"], row


def test_every_statement_of_the_paper_has_a_measurement_and_a_verdict(quick: tuple[Path, dict[str, Any]]) -> None:
    subjects = [statement["subject"] for statement in quick[1]["statements"]]
    for word in ("one-hot", "weight decay", "worked example", "radial unit vector", "bfloat16", "float32"):
        assert any(word in subject for subject in subjects), word
    for statement in quick[1]["statements"]:
        assert statement["verdict"] in ("as stated", "on an axis only", "in general only", "differs")
        assert statement["numbers"]


def test_the_polar_decay_step_is_the_true_one(quick: tuple[Path, dict[str, Any]]) -> None:
    rows = [s["numbers"] for s in quick[1]["statements"] if s["subject"].startswith("weight decay")]
    assert [row["true"] for row in rows] == pytest.approx([7.9853, 8.9610, 11.5170], abs=6e-5)
    assert all(row["polar_worst_error"] < 2e-6 for row in rows)


def test_the_picture_is_written(quick: tuple[Path, dict[str, Any]]) -> None:
    assert (quick[0] / "precision-quick.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_repeats_with_its_seed_and_differs_with_another() -> None:
    one, same, other = (clusters(4.0, 2, seed).radius for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_missing_peer_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "geoopt", None)
    found = {method.name: method for method in methods()}
    assert found["geoopt"].missing
    assert not found["polarvit"].missing
    out = console()
    with out.capture() as capture:
        out.print(peer_table([peer_row(method, 2, 0) for method in found.values()]))
    assert "polarvit[peers]" in capture.get()


def test_without_matplotlib_the_numbers_are_written_and_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(precision, "measure", lambda settings: {"sweep": {}, "failures": []})
    monkeypatch.setattr(precision, "tables", lambda result: [])
    monkeypatch.setattr(precision, "summary", lambda result: [])
    assert run(Settings(out=tmp_path)) == []
    assert "polarvit[plots]" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["precision.json"]


def test_clusters_have_the_spread_they_claim() -> None:
    points = clusters(8.0, 20, seed=0)
    mean = centroid(points).map(lambda x: x.unsqueeze(1))
    spread = distance(mean, points).square().mean().sqrt().item()
    assert spread == pytest.approx(1.0, rel=0.05)
    assert distance(*unit_pairs(8.0, 50, seed=0)).sub(1).abs().max().item() < 1e-11


def test_the_float64_truth_agrees_with_fifty_digits() -> None:
    assert max(worst_truth_error(radius, 8, seed=1) for radius in (1.0, 8.0, 20.0)) < 1e-7


def test_a_nan_counts_as_an_infinite_error() -> None:
    spread = Spread.of(torch.tensor([1.0, 2.0, math.nan]))
    assert (spread.median, spread.worst) == (2.0, math.inf)
    assert spread.not_finite == pytest.approx(1 / 3)


def test_the_resolution_limit_reaches_1_where_the_paper_says() -> None:
    assert resolution_limit(17.3) == pytest.approx(1.0, rel=0.05)
    assert resolution_limit(6.2, torch.bfloat16) == pytest.approx(1.0, rel=0.05)
