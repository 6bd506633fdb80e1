"""The expressivity test: its batch is what plain SGD does run by run, and its words follow from its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from polarvit.experiments import Settings, expressivity
from polarvit.experiments.expressivity import batch
from polarvit.experiments.expressivity.contestants import CONTESTANTS, DIM, OFF_AXIS, START, Contestant
from polarvit.experiments.expressivity.statements import failures, fewest, reach, stops
from polarvit.geometry import ambient, to_ball

BY_NAME = {contestant.name: contestant for contestant in CONTESTANTS}


def alone(contestant: Contestant, target: float, seed: int, clip: float | None, limit: int) -> int | None:
    """One run by PyTorch's own SGD and clipping."""
    layer, _ = batch.start(contestant, seed)
    layer = layer.double()
    moving = [p for p in layer.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(moving, lr=contestant.lr)
    goal = torch.tensor(target, dtype=torch.float64)
    for count in range(1, limit + 1):
        optimizer.zero_grad()
        gap = contestant.loss_gap(layer, goal)
        if gap < 0.1:
            return count
        gap.square().backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(moving, clip)
        optimizer.step()
    return None


@pytest.mark.parametrize(
    ("name", "clip", "limit"), [("chen", 1.0, 40), ("chen_bounded", None, 20), ("poincare", 1.0, 150)]
)
def test_the_batch_does_what_each_run_does_alone(name: str, clip: float | None, limit: int) -> None:
    contestant, targets, seeds = BY_NAME[name], [1.0, 2.0, 9.0], [0, 1]
    runs = batch.race(contestant, targets, seeds, torch.float64, clip, limit)
    wanted = [[alone(contestant, target, seed, clip, limit) for seed in seeds] for target in targets]
    counts = [
        [n if ok else None for n, ok in zip(row, good, strict=True)]
        for row, good in zip(runs.iterations.tolist(), runs.arrived.tolist(), strict=True)
    ]
    assert counts == wanted
    assert any(n is not None for row in counts for n in row)
    assert None in counts[-1]


def test_polar_fc_arrives_in_float32_as_in_float64() -> None:
    ends = [
        batch.race(BY_NAME["polar"], [2.0, 18.0], [2], dtype, None, 400) for dtype in (torch.float64, torch.float32)
    ]
    assert all(runs.arrived.all() for runs in ends)
    assert all((runs.true_gap < 0.1).all() for runs in ends)
    assert torch.equal(ends[0].iterations, ends[1].iterations)


def test_a_dead_start_is_drawn_again() -> None:
    contestant = BY_NAME["polar"]
    drawn = [batch.start(contestant, seed) for seed in range(8)]
    assert sum(dead for _, dead in drawn) > 0
    for layer, _ in drawn:
        direction = layer(contestant_input()).direction
        assert direction[0] > 0


def contestant_input() -> Any:
    from polarvit.experiments.expressivity.contestants import on_axis

    return on_axis(torch.tensor(START))


def test_the_layers_own_distances_are_the_true_ones_near_by() -> None:
    for contestant in (*CONTESTANTS, OFF_AXIS):
        layer, _ = batch.start(contestant, 0)
        layer = layer.double()
        for target in (0.5, 3.0):
            goal = torch.tensor(target, dtype=torch.float64)
            torch.testing.assert_close(contestant.loss_gap(layer, goal), contestant.true_gap(layer, goal))


def test_input_and_target_are_where_the_protocol_says() -> None:
    from polarvit.experiments.expressivity import contestants as c

    point = c.on_axis(torch.tensor(2.0, dtype=torch.float64))
    torch.testing.assert_close(c.ambient_point(point.radius), ambient.from_tangent0(point.radius * point.direction))
    torch.testing.assert_close(c.ball_point(point.radius), to_ball(point, k=c.FLAT))
    assert (DIM, round(START**2, 12)) == (10, 2)


def row(layer: str, counts: list[list[int | None]], precision: str, clipping: str = "unclipped") -> dict[str, Any]:
    mean = [sum(10 if n is None else n for n in line) / len(line) for line in counts]
    return {
        "layer": layer,
        "label": layer,
        "precision": precision,
        "clipping": clipping,
        "iterations": counts,
        "mean": mean,
    }


def test_words_follow_from_numbers() -> None:
    whole = {p: row("polar", [[2, 4], [5, 7]], p) for p in ("float64", "float32")}
    assert reach(whole, [1.0, 2.0]) == "every target in both precisions, 3 to 6 iterations"
    broken = {
        "float64": row("fgg", [[1, 1], [5, None], [3, 3]], "float64"),
        "float32": row("fgg", [[None, 1], [2, 2], [3, None]], "float32"),
    }
    assert stops(broken["float64"]) == 1
    assert (
        reach(broken, [1.0, 2.0, 3.0])
        == "fails from radius 2 in float64, fails from radius 1 in float32 (yet reaches 2, 3)"
    )
    races = [*whole.values(), row("fgg", [[1, 2], [9, 9]], "float64"), row("chen", [[9, 9], [9, 9]], "float32")]
    assert fewest(races, [1.0, 2.0]) == "Polar-FC, but fgg needs fewer at 1"


def test_claims_fail_when_they_should() -> None:
    races = []
    for clipping in ("clipped", "unclipped"):
        for precision in ("float64", "float32"):
            races.append(row("polar", [[1], [1]], precision, clipping))
            races.append(row("chen", [[None], [None]], precision, clipping))
            races.append(row("fgg", [[1], [None]], precision, clipping))
    assert failures(races) == []
    races[0]["iterations"][1] = [None]
    races[1]["iterations"] = [[1], [1]]
    assert failures(races) == [
        "Polar-FC, clipped, float64: a target was not reached",
        "clipped, float64: Chen's layer does not stop before FGG-LNN",
    ]


def test_a_quick_run_writes_its_record_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(expressivity, "CONTESTANTS", (BY_NAME["chen"],))
    monkeypatch.setattr(expressivity, "OFF_AXIS", BY_NAME["poincare"])
    assert expressivity.run(Settings(tmp_path, quick=True)) == []
    record = json.loads((tmp_path / "expressivity-quick.json").read_text())
    first = record["races"][0]
    assert (first["layer"], first["precision"], first["clipping"]) == ("chen", "float64", "clipped")
    assert first["iterations"][0][0] is not None
    assert (tmp_path / "expressivity-quick.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    assert "Chen et al., general, float64, clipped: 1 of 2 targets, 16 to 16 iterations" in printed
    assert "The paper's words" not in printed  # two targets say nothing about eighteen
