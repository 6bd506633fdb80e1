"""Training from far out: models start where they are told to, and the record says what happened."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from polarvit.experiments import Settings, stability
from polarvit.experiments.side_by_side import Unfinished
from polarvit.experiments.stability import against_float64, judge, radius_of
from polarvit.experiments.stability.push import push
from polarvit.experiments.stability.table import cell, started
from polarvit.models import create_model

NARROW = {"num_classes": 5, "img_size": 8, "patch_size": 4, "depth": 2, "dim": 16, "mlp_dim": 32, "heads": 2}
IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["polar_vit_tiny", "lorentz_vit_tiny", "hexformer_tiny", "lvit_tiny"])
def test_a_pushed_model_has_its_layers_at_the_radius(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, **NARROW)
    reached = push(model, IMAGES, 5.0)
    assert reached
    assert all(radius == pytest.approx(5.0, rel=0.02) for key, radius in reached.items() if "norm" not in key)


def test_polar_arithmetic_stays_exact_where_published_arithmetic_is_noise() -> None:
    noise = {}
    for name in ("polar_vit_tiny", "lvit_tiny"):
        torch.manual_seed(0)
        model = create_model(name, **NARROW)
        push(model, IMAGES, 9.0)
        noise[name], _ = against_float64(model, IMAGES)
    assert noise["polar_vit_tiny"] is not None
    assert noise["polar_vit_tiny"] < 1e-3
    assert noise["lvit_tiny"] is None or noise["lvit_tiny"] > 0.2


def test_tokens_of_lvit_start_where_they_are_told_and_those_of_the_ball_say_that_they_do_not() -> None:
    before = {}
    for name in ("polar_vit_tiny", "lvit_tiny", "hvt_tiny"):
        torch.manual_seed(0)
        model = create_model(name, **NARROW)
        push(model, IMAGES, 12.0)
        before[name] = model.trace(IMAGES).mean.mean().item()
    assert before["polar_vit_tiny"] == pytest.approx(12, rel=0.01)
    assert before["lvit_tiny"] == pytest.approx(12, rel=0.05)
    words = {name: started({"system": name, "radius_before": found}) for name, found in before.items()}
    assert words == {"polar_vit_tiny": " (from 12.0)", "lvit_tiny": " (from 12.0)", "hvt_tiny": " (from 6.2)"}
    assert started({"system": "vit_tiny", "radius_before": 5.0}) == ""
    assert "not finite" in started({"system": "hexformer_tiny", "radius_before": None})


@pytest.mark.parametrize("radius", [2.0, 8.0, 12.0])
def test_gates_stay_open_far_out(radius: float) -> None:
    """HexFormer's layers answer with radii around the one they were pushed to, not with their margin or ceiling."""
    torch.manual_seed(0)
    model = create_model("hexformer_tiny", **NARROW)
    reached = push(model, IMAGES, radius)
    assert all(found == pytest.approx(radius, rel=0.02) for found in reached.values())
    found = radius_of(model, IMAGES)
    assert found is not None
    assert found < radius + 2


def test_norms_reach_a_radius_that_is_linear_in_their_gain() -> None:
    torch.manual_seed(0)
    model = create_model("hvt_tiny", **NARROW)
    assert all(found == pytest.approx(2.0, rel=1e-3) for found in push(model, IMAGES, 2.0).values())


def test_logits_that_are_all_alike_are_called_so() -> None:
    torch.manual_seed(0)
    model = create_model("vit_tiny", **NARROW)
    _, told = against_float64(model, IMAGES)
    assert told is not None
    assert told > 0.01
    run = {"system": "lvit_tiny", "state": "goes on", "first_loss": 1.0, "last_loss": 1.0, "radius_before": 2.0}
    run |= {"noise_after": 200.0, "spread_after": 1e-5}
    assert cell([run]) == "goes on, 1.00 to 1.00, collapsed (from 2.0)"
    assert cell([run | {"spread_after": 0.1}]) == "goes on, 1.00 to 1.00, noise only (from 2.0)"


def test_a_run_is_judged_by_its_losses() -> None:
    assert judge([2.0, 1.9, 1.0], 2.3)["state"] == "learns"
    assert judge([9.0, 8.0, 7.0], 2.3)["state"] == "goes on"
    broken = judge([2.0, 1.9, math.nan, math.nan], 2.3)
    assert (broken["state"], broken["diverged_at"]) == ("diverged", 3)
    assert broken["losses"] == [[1, 2.0], [2, 1.9], [3, None]]


def test_the_record_has_every_radius_and_finished_runs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(tmp_path, quick=True, steps=2, runs=tmp_path / "runs", device="cpu", only=("lvit_tiny",))
    monkeypatch.setattr(stability, "RADII", (2.0, 12.0))
    for _ in range(2):
        assert stability.run(settings) == []
        monkeypatch.setattr(stability, "train_pushed", lambda *_: pytest.fail("a finished run was run again"))
    elsewhere = replace(settings, only=("hvt_tiny",), minutes=0.0)
    with pytest.raises(Unfinished, match="2 runs are not done"):
        stability.run(elsewhere)  # keeps what is there
    record = json.loads((tmp_path / "stability-quick.json").read_text())
    near, far = record["runs"]
    assert (near["radius"], far["radius"]) == (2.0, 12.0)
    assert near["radius_before"] < far["radius_before"]
    assert set(record["summary"]) == {"lvit_tiny"}
    assert (tmp_path / "stability-quick.png").is_file()
    assert "radius 12" in capsys.readouterr().out
