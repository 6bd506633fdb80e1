"""The tables of CIFAR-100: their rows are the recipes they say, and claims are made only when there is enough."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from commands import call, done, flat

from polarvit.experiments import EXPERIMENTS, Settings, ablation, hexformer_defect, position, radius_rule, runs
from polarvit.experiments.cifar100 import choices, products, sweep, table, variants
from polarvit.experiments.run_records import recorded
from polarvit.experiments.run_table import summary
from polarvit.experiments.runs import Result, resolved
from polarvit.models import PolarViTConfig, create_model
from polarvit.training import SettingsError, load
from polarvit.training.recipe import dump

RESULTS = Path(__file__).parent.parent.parent.parent / "results" / "cifar100"


@pytest.mark.parametrize(
    ("module", "lengths"),
    [
        (table, {117_100}),
        (sweep, {11_710}),
        (products, {11_710}),
        (choices, {11_710, 29_275}),
        (variants, {117_100, 234_200}),
    ],
)
def test_rows_have_the_length_and_the_share_of_warm_up_they_say(module: object, lengths: set[int]) -> None:
    rows = module.ROWS  # type: ignore[attr-defined]
    assert len({row.name for row in rows}) == len(rows)
    recipes = {row: resolved(row, 0, Settings()) for row in rows}
    assert {recipe.train.steps for recipe in recipes.values()} == lengths
    for row, recipe in recipes.items():
        assert recipe.optim.warmup == (0 if "optim.warmup=0" in row.overrides else math.ceil(recipe.train.steps / 10))
    assert EXPERIMENTS[module.NAME].home == module.__name__  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "folder", "least"),
    [
        (sweep, "sweep", 6),
        (products, "precision", 2),
        (choices, "choices", 5),
        (variants, "variants", 6),
    ],
)
def test_every_record_is_that_of_its_row(module: Any, folder: str, least: int) -> None:
    found = [one for row in module.ROWS for one in recorded(row, Settings(), RESULTS / folder)]
    assert len(found) >= least
    assert len(found) == len(list((RESULTS / folder).glob("*-steps/*-seed-*.json"))), "a record has no row"


@pytest.mark.parametrize(("steps", "least"), [(117_100, 6), (11_710, 16)])
def test_every_record_that_tables_share_is_that_of_a_row(steps: int, least: int) -> None:
    sharing = (table, ablation, position, hexformer_defect, radius_rule)
    rows = [row for module in sharing for row in module.ROWS]
    found = {f"{row.home}-seed-{one.seed}" for row in rows for one in recorded(row, Settings(steps=steps), RESULTS)}
    assert len(found) >= least
    assert found == {path.stem for path in (RESULTS / f"{steps}-steps").glob("*-seed-*.json")}


def test_rows_that_ran_while_calibration_moved_phi_0_say_so() -> None:
    former = {(sweep, "polar_vit_tiny-lr-1.5e-3"), (sweep, "polar_vit_tiny-lr-3e-3"), (products, "tf32")}
    former |= {(products, "fp32"), (products, "bf16"), (choices, "table"), (choices, "none"), (choices, "none-radius")}
    former |= {(variants, "offset"), (variants, "table"), (variants, "none-table")}
    for module in (table, sweep, products, choices, variants):
        for row in module.ROWS:
            model = resolved(row, 0, Settings()).model
            config = create_model(model.name, **{**model.options, "depth": 1}).config
            if isinstance(config, PolarViTConfig):
                wanted = "offset" if (module, row.name) in former else "weights"
                assert config.calibration == wanted, (module.NAME, row.name)


@pytest.mark.parametrize(("calibration", "fits"), [("weights", True), ("offset", False), (None, False)])
def test_a_run_that_names_the_default_is_the_main_rows_and_one_of_the_former_default_is_not(
    tmp_path: Path, calibration: str | None, fits: bool
) -> None:
    folder = tmp_path / "cifar100" / "117100-steps" / "polar_vit_tiny" / "seed-0"
    (folder / "model").mkdir(parents=True)
    named = {} if calibration is None else {"calibration": calibration}
    recipe = load("cifar100_polar_vit_tiny", [f"model.options.{key}={value}" for key, value in named.items()])
    config = create_model("polar_vit_tiny", num_classes=100, img_size=32, patch_size=4).config.to_dict()
    del config["calibration"]
    (folder / "recipe.yaml").write_text(dump(recipe))
    (folder / "model" / "config.json").write_text(json.dumps({"config": {**config, **named}}))
    (folder / "metrics.json").write_text(json.dumps({"scores": {"top1": 79.9}}))
    if fits:
        (found,) = runs.finished(table.NAME, table.ROWS, Settings(runs=tmp_path))
        assert (found.row.name, found.seed, found.top1) == ("polar_vit_tiny", 0, 79.9)
    else:
        with pytest.raises(SettingsError, match=r"another 'model\.options\.calibration' \('offset'\) than this row"):
            runs.finished(table.NAME, table.ROWS, Settings(runs=tmp_path))


def test_the_sweep_varies_the_rate_and_nothing_else() -> None:
    for row in sweep.ROWS:
        recipe = resolved(row, 0, Settings())
        assert recipe.optim.lr == float(row.name.rpartition("-")[0].rpartition("lr-")[2] + "-" + row.name[-1])
        assert recipe.optim.weight_decay == (0.06 if row.name.startswith("vit") else 0.05)
    assert [row.name.startswith("vit") for row in sweep.ROWS].count(True) == 4


def test_a_dead_worker_fails_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "study", lambda *_, **__: ["vit_tiny-lr-1e-3, seed 0: killed by signal 9"])
    assert sweep.run(Settings(tmp_path, runs=tmp_path)) == ["vit_tiny-lr-1e-3, seed 0: killed by signal 9"]


@pytest.mark.parametrize(
    ("module", "told", "folder"),
    [
        (choices, {}, "."),
        (choices, {"quick": True, "steps": 2}, "."),
        (choices, {"steps": 11_710}, "choices/11710-steps"),
        (choices, {"steps": 200}, "choices/200-steps"),
        (variants, {"steps": 11_710}, "variants/11710-steps"),
        (table, {"steps": 117_100}, "."),
        (table, {"sets": ("train.steps=200",)}, "200-steps"),
    ],
)
def test_a_table_of_another_length_does_not_replace_the_recorded_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, told: dict[str, Any], folder: str
) -> None:
    home, seen = tmp_path / "cifar100", list[Path]()

    def study(name: str, _: str, rows: Any, settings: Settings, *, records: Path, **__: Any) -> list[str]:
        seen.append(runs.at_length(name, rows, settings, records).out)
        return []

    monkeypatch.setattr(module, "study", study)
    monkeypatch.setattr(table, "all_finished", lambda *_: [])
    assert module.run(Settings(tmp_path, runs=tmp_path / "runs", **told)) == []
    assert seen == [home / folder]


def test_only_products_differ_in_the_control() -> None:
    tf32, *others = (resolved(row, 0, Settings()) for row in products.ROWS)
    assert [each.train.precision for each in (tf32, *others)] == ["tf32", "fp32", "bf16"]
    for other in others:
        assert (tf32.model, tf32.optim, tf32.augment) == (other.model, other.optim, other.augment)


def results(**values: list[float]) -> list[Result]:
    rows = {row.name: row for row in table.ROWS}
    return [
        Result(rows[name], seed, {"scores": {"top1": top1}})
        for name, found in values.items()
        for seed, top1 in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({"polar_vit_tiny": [70, 70]}, []),  # two seeds claim nothing
        ({"polar_vit_tiny": [80, 80.2, 80.3], "none": [78], "vit_tiny": [76]}, []),
        ({"polar_vit_tiny": [80, 80, 80]}, ["80.15 % is not met"]),
        ({"polar_vit_tiny": [81, 81, 81], "none": [81.5], "vit_tiny": [77.5]}, ["does not help", "by 3.50 points"]),
    ],
)
def test_claims_are_checked_once_there_are_three_seeds(found: dict[str, list[float]], wrong: list[str]) -> None:
    failures = table.claims(results(**found))
    assert len(failures) == len(wrong)
    assert all(part in failure for part, failure in zip(wrong, failures, strict=True))


def test_gaps_have_error_bars_once_there_are_several_seeds() -> None:
    found = results(polar_vit_tiny=[79.0, 80.0, 81.0], none=[78.0, 78.0], vit_tiny=[75.0])
    lines = table.gaps([summary(row, found) for row in table.ROWS])
    assert lines == [
        "Polar-ViT-Tiny, ours less the paper's: -0.15 ± 0.58 points (standard error; 3 and 10 seeds)",
        "Polar-ViT-Tiny w/o horoshift, ours less the paper's: -0.04 ± 0.17 points (standard error; 2 and 10 seeds)",
        "Euclidean ViT-Tiny, ours less the paper's: +0.36 points (one seed: no error bar)",
        "Polar-ViT-Tiny less Polar-ViT-Tiny w/o horoshift: +2.00 ± 0.58 points (standard error; 3 and 2 seeds)",
        "Polar-ViT-Tiny less Euclidean ViT-Tiny: +5.00 points (one seed: no error bar)",
    ]
    assert table.gaps([summary(row, []) for row in table.ROWS]) == []


def test_the_best_rate_is_that_of_seeds_all_rates_have() -> None:
    rows = {row.name: row for row in sweep.ROWS}

    def one(name: str, seed: int, top1: float) -> Result:
        return Result(rows[name], seed, {"scores": {"top1": top1}})

    found = [one("vit_tiny-lr-1e-3", 0, 50), one("vit_tiny-lr-2e-3", 0, 51), one("vit_tiny-lr-1e-3", 1, 90)]
    assert sweep.best(found) == ["vit_tiny: best lr 2e-3, 51.00 % (2 of 4 rates, seeds 0)"]
    assert sweep.best([]) == []


def test_the_command_runs_at_toy_size_and_takes_a_list_of_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Settings] = []
    monkeypatch.setattr(runs, "attempt", lambda *_, **__: pytest.fail("nothing is to be run"))
    monkeypatch.setattr(table, "study", lambda *words, **__: told.append(words[3]) or [])
    words = ["reproduce", "cifar100", "--quick", "--out", tmp_path, "--only", "none", "--seeds", "4,0", "--minutes", 2]
    done(*words, "--side-by-side", 3, "--runs", tmp_path)
    assert told[0].all_seeds == (4, 0)
    assert (told[0].side_by_side, told[0].minutes, told[0].only) == (3, 2.0, ("none",))
    for text, said in dict.fromkeys(("x", "", "1,-2"), "neither a number of seeds").items() | {
        ("0", "alone write '0,'")
    }:
        result = call("reproduce", "cifar100", "--seeds", text)
        assert result.exit_code == 2
        assert said in flat(result.output + result.stderr)


def test_a_study_in_workers_ends_with_130_while_runs_are_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "side_by_side", lambda jobs, *_, **__: setattr(jobs[0], "state", "stopped"))
    words = ["reproduce", "cifar100", "--quick", "--out", tmp_path / "results", "--runs", tmp_path / "runs"]
    result = call(*words, "--side-by-side", 2, "--only", "none")
    assert result.exit_code == 130
    assert "1 runs are not finished, the same command continues them: none, seed 0" in flat(result.stderr)
    monkeypatch.setattr(runs, "side_by_side", lambda *_, **__: None)
