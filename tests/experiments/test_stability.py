"""Training from far out: models start where they are told to, and the record says what happened."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from polarvit.experiments import EXPERIMENTS, Settings, stability
from polarvit.experiments.side_by_side import Unfinished
from polarvit.experiments.stability import rows, table, trial
from polarvit.experiments.stability.picture import beyond, smoothed
from polarvit.experiments.stability.push import push
from polarvit.experiments.stability.table import at, broken, cell, started, twins
from polarvit.experiments.stability.trial import against_float64, gradient_noise, judge, radius_of
from polarvit.models import create_model
from polarvit.models.registry import entry
from polarvit.training import SettingsError

NARROW = {"num_classes": 5, "img_size": 8, "patch_size": 4, "depth": 2, "dim": 16, "mlp_dim": 32, "heads": 2}
IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["polar_vit_tiny", "lorentz_vit_tiny", "hexformer_tiny", "lvit_tiny"])
def test_a_pushed_model_has_its_layers_at_the_radius(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, **NARROW)
    sizes = {key: value.norm() for key, value in model.named_parameters() if key.endswith("weight")}
    reached = push(model, IMAGES, 5.0)
    if name == "polar_vit_tiny":  # its radius is not the size of W
        assert all(value.norm() == sizes[key] for key, value in model.named_parameters() if key in sizes)
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


def test_gradients_in_polar_form_stay_right_where_those_of_published_arithmetic_are_noise() -> None:
    noise = {}
    targets = torch.nn.functional.one_hot(torch.arange(6) % 5, 5).float()
    for name in ("polar_vit_tiny", "lvit_tiny"):
        torch.manual_seed(0)
        model = create_model(name, **NARROW)
        push(model, IMAGES, 12.0)
        noise[name] = gradient_noise(model, IMAGES, targets)
        assert gradient_noise(model.double(), IMAGES.double(), targets.double()) == 0
    assert noise["polar_vit_tiny"] is not None
    assert noise["polar_vit_tiny"] < 1e-3
    assert noise["lvit_tiny"] is None or noise["lvit_tiny"] > 0.5


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


@pytest.mark.parametrize("radius", [8.0, 12.0, 40.0])
def test_a_bounded_system_is_stretched_no_further_than_to_its_edge(radius: float) -> None:
    torch.manual_seed(0)
    model = create_model("hvt_tiny", **NARROW)
    before = {name: parameter.detach().abs().max() for name, parameter in model.named_parameters()}
    reached = push(model, IMAGES, radius)
    assert entry("hvt_tiny").model.largest_radius == pytest.approx(6.2126, abs=1e-4)
    assert all(found == pytest.approx(6.2126, abs=0.05) for found in reached.values())
    for name, parameter in model.named_parameters():
        assert parameter.abs().max() <= 50 * before[name], name


def test_a_bounded_layer_at_its_edge_already_stays_as_it_is() -> None:
    torch.manual_seed(0)
    model = create_model("hvt_tiny", **NARROW)
    push(model, IMAGES, 12.0)
    gains = [block.norm1.weight for block in model.blocks]  # type: ignore[union-attr]
    for gain in gains:
        torch.testing.assert_close(gain, torch.ones(16), rtol=1e-5, atol=0)


def test_no_system_is_run_from_where_it_cannot_be_pushed() -> None:
    names = [row.name for row in rows.ROWS]
    assert names == [row.key for row in EXPERIMENTS["stability"].rows]
    assert sorted(names, key=lambda name: name.endswith("-fp64")) == names
    assert "hvt_tiny-fp64" not in names
    assert "vit_tiny-fp64" not in names
    radii = {row.name: rows.radii_of(row) for row in rows.ROWS}
    assert radii["lvit_tiny"] == list(rows.RADII)
    assert radii["lvit_tiny-fp64"] == [8.0, 12.0]
    assert radii["vit_tiny"] == [None]
    assert radii["hvt_tiny"] == [None, 2.0, 4.0]
    hvt = next(row for row in rows.ROWS if row.name == "hvt_tiny")
    assert at(hvt, 8.0, []) == "cannot be pushed there, ends at 6.2"
    assert at(hvt, 4.0, []) == "-"
    ran = [{"system": "hvt_tiny", "label": "HVT"}, {"system": "lvit_tiny", "label": "LViT"}]
    record = {"edges": {"hvt_tiny": 6.2}}
    assert beyond(record, ran, 8.0) == ["HVT: cannot be pushed there"]
    assert beyond(record, ran, 4.0) == beyond(record, ran, None) == []


def told(state: str, precision: str = "fp32", radius: float = 8.0) -> dict[str, Any]:
    row = f"lvit_tiny{'-fp64' if precision == 'fp64' else ''}"
    known = {"row": row, "system": "lvit_tiny", "precision": precision, "radius": radius, "seed": 0, "state": state}
    losses = {"diverged_at": 3, "first_loss": 2.0, "last_loss": 1.0, "noise_after": 0.0, "spread_after": 1.0}
    return known | losses | {"radius_before": radius}


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        ("diverged", "goes on", "NaN at step 3 (from 8.0): float32 breaks it"),
        ("diverged", "learns", "NaN at step 3 (from 8.0): float32 breaks it"),
        ("diverged", "diverged", "NaN at step 3 (from 8.0): in float64 too"),
        ("goes on", "learns", "goes on, 2.00 to 1.00 (from 8.0): learns in float64"),
        ("goes on", "goes on", "goes on, 2.00 to 1.00 (from 8.0)"),
        ("learns", "diverged", "learns, 2.00 to 1.00 (from 8.0)"),
    ],
)
def test_float32_breaks_a_system_only_where_float64_goes_on(here: str, there: str, said: str) -> None:
    run, twin = told(here), told(there, "fp64")
    assert cell([run], twins([run, twin])) == said
    assert broken([run, twin]) == ([run] if "breaks" in said else [])
    assert broken([run, told(there, "fp64", 12.0)]) == []  # the twin of another run
    assert cell([twin], twins([run, twin])) == cell([twin])


def test_several_seeds_are_counted_with_where_each_ended() -> None:
    ends = (("learns", 1.0, 1e-6), ("goes on", 1.96, 0.44), ("diverged", None, None))
    runs = [
        told(state) | {"seed": seed, "last_loss": last, "noise_after": noise}
        for seed, (state, last, noise) in enumerate(ends)
    ]
    known = [told("learns", "fp64") | {"seed": seed} for seed in range(3)]
    counts = "learns 1 of 3, goes on 1 of 3, NaN 1 of 3, 2.00 to 1.00, 1.96, noise 44 % (from 8.0)"
    assert cell(runs, twins([*runs, *known])) == f"{counts}: learns in float64, 1 of 3; float32 breaks it, 1 of 3"
    assert cell(runs) == counts
    assert cell(runs[:1] * 2) == "learns, 2.00 to 1.00, 1.00 (from 8.0)"
    assert cell(runs[2:] * 2) == "NaN (from 8.0)"


def test_curves_are_running_means() -> None:
    steps, losses = smoothed([(1, 1.0), (6, 3.0), (11, None), (16, 5.0)])
    assert steps == [1, 6, 16]
    assert losses == [3.0, 3.0, 3.0]
    assert smoothed([(i, float(i)) for i in range(30)])[1][10:20] == [float(i) for i in range(10, 20)]


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
    wrong = run | {"spread_after": 0.1, "noise_after": 0.0, "gradient_noise_before": 1e-4, "gradient_noise_after": 0.3}
    assert cell([wrong]) == "goes on, 1.00 to 1.00, gradient noise 30 % (from 2.0)"
    assert cell([wrong | {"gradient_noise_after": None}]) == "goes on, 1.00 to 1.00, gradient noise only (from 2.0)"
    first = wrong | {"gradient_noise_before": 36.0, "gradient_noise_after": 1e-3}
    assert cell([first]) == "goes on, 1.00 to 1.00, noise in its first gradient (from 2.0)"


def test_a_run_is_judged_by_its_losses() -> None:
    assert judge([2.0, 1.9, 1.0], 2.3)["state"] == "learns"
    assert judge([9.0, 8.0, 7.0], 2.3)["state"] == "goes on"
    broken = judge([2.0, 1.9, math.nan, math.nan], 2.3)
    assert (broken["state"], broken["diverged_at"]) == ("diverged", 3)
    assert broken["losses"] == [[1, 2.0], [2, 1.9], [3, None]]


def test_the_record_has_every_radius_and_finished_runs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(tmp_path, quick=True, runs=tmp_path / "runs", device="cpu", only=("lvit_tiny",))
    monkeypatch.setattr(stability, "TOY_STEPS", 2)
    for module in (rows, table, stability):
        monkeypatch.setattr(module, "RADII", (2.0, 12.0))
    for _ in range(2):
        assert stability.run(settings) == []
        monkeypatch.setattr(stability, "train_pushed", lambda *_: pytest.fail("a finished run was run again"))
    with pytest.raises(Unfinished, match="1 runs are not done"):
        stability.run(replace(settings, only=("hvt_tiny",), minutes=0.0))  # keeps what is there, and cannot reach 12
    path = tmp_path / "stability-quick.json"
    record = json.loads(path.read_text())
    near, far = record["runs"]
    assert (near["radius"], far["radius"]) == (2.0, 12.0)
    assert near["radius_before"] < far["radius_before"]
    assert set(record["summary"]) == {"lvit_tiny"}
    assert path.with_suffix(".png").is_file()
    assert "radius 12" in capsys.readouterr().out
    before = path.read_text()
    with pytest.raises(SettingsError, match="holds runs of other sets; give another folder"):
        stability.run(replace(settings, sets=("optim.lr=1e-5",)))
    with pytest.raises(pytest.fail.Exception, match="was run again"):
        stability.run(replace(settings, steps=3))
    assert path.read_text() == before, "a try of another length lies elsewhere"


@pytest.mark.slow
def test_runs_side_by_side_are_the_same_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "RADII", (2.0, 8.0, 12.0))
    losses = {}
    for at_once in (1, 2):
        out = tmp_path / str(at_once)
        settings = Settings(out, quick=True, steps=2, device="cpu", only=("lvit_tiny",), side_by_side=at_once)
        assert stability.run(settings) == []
        record = json.loads((out / "stability" / "2-steps" / "stability-quick.json").read_text())
        losses[at_once] = {(run["row"], run["radius"]): run["losses"] for run in record["runs"]}
    assert losses[1].keys() == losses[2].keys() == {("lvit_tiny", radius) for radius in (2.0, 8.0, 12.0)}
    assert losses[1] == losses[2]
    with pytest.raises(Unfinished, match="1 runs are not done"):
        stability.run(replace(settings, only=("vit_tiny",), minutes=0.0))


def test_twins_start_from_the_same_weights_and_train_in_float64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    starts = {}

    def remember(model: torch.nn.Module, images: torch.Tensor) -> float | None:
        dtype = next(model.parameters()).dtype
        assert images.dtype == dtype
        starts.setdefault(dtype, copy.deepcopy(model.state_dict()))
        return radius_of(model, images)

    monkeypatch.setattr(trial, "radius_of", remember)
    monkeypatch.setattr(rows, "RADII", (8.0,))
    monkeypatch.setattr(rows, "FAR", (8.0,))
    names = ("polar_vit_tiny", "polar_vit_tiny-fp64")
    settings = Settings(tmp_path, quick=True, steps=2, runs=tmp_path / "runs", device="cpu", only=names)
    assert stability.run(settings) == []
    for name, value in starts[torch.float32].items():
        assert value.dtype == torch.float32, name
        assert starts[torch.float64][name].equal(value.double()), name
    record = json.loads((tmp_path / "stability" / "2-steps" / "stability-quick.json").read_text())
    single, double = record["runs"]
    assert (single["precision"], double["precision"]) == ("fp32", "fp64")
    assert double["noise_before"] == 0 < single["noise_before"]
    assert single["last_loss"] == pytest.approx(double["last_loss"], rel=1e-3)
    assert record["breaks"] == []
    assert record["provenance"]["product_precision"] == "float32,float64"
    assert list(record["summary"]) == list(names)
    assert "Polar-ViT, float64" in capsys.readouterr().out
