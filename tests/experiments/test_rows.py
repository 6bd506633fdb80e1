"""Every row of the paper's ablation, radius-rule and position tables is the config it says it is."""

from __future__ import annotations

from typing import Any

import pytest

from polarvit.experiments import EXPERIMENTS, Settings, ablation, accuracy, hexformer_defect, position, radius_rule
from polarvit.experiments.cifar100 import table as cifar100
from polarvit.experiments.runs import Row, resolved
from polarvit.models import PolarViTConfig, create_model
from polarvit.training import load
from polarvit.training.recipe import shipped

POLAR = {"rule": "anchored", "residual": "boost", "position": "separate", "rates": {4.0}, "readout": "centroid"}
BARE = {**POLAR, "position": "none", "rates": set()}
LORENTZ = {**BARE, "rule": "lorentz"}
ABLATION = {
    "polar_ops": {**LORENTZ, "residual": "space"},
    "boost_residual": {**LORENTZ, "residual": "ambient_boost"},
    "polar_boost_residual": LORENTZ,
    "polar_fc": BARE,
    "polar_vit": POLAR,
    "boost_encoding": {**POLAR, "position": "boost"},
}
POSITION = {
    "none": BARE,
    "separate": POLAR,
    "boost": {**POLAR, "position": "boost"},
    "joint": {**POLAR, "position": "joint"},
    "separate-rate-1": {**POLAR, "rates": {1.0}},
    "boost-rate-1": {**POLAR, "position": "boost", "rates": {1.0}},
    "rotary": {**POLAR, "position": "rotary", "rates": {1.0}},
}
RULES = {row.name: {**BARE, "rule": row.name} for row in radius_rule.ROWS}


def described(row: Row) -> dict[str, Any]:
    """What the row's model is, and where its rates really start."""
    recipe = resolved(row, 0, Settings())
    model = create_model(recipe.model.name, num_classes=2, **{**recipe.model.options, "depth": 1})
    config = model.config
    assert isinstance(config, PolarViTConfig)
    rates = {value for key, p in model.named_parameters() if key.endswith(".rate") for value in p.flatten().tolist()}
    assert (config.dim, config.mlp_dim, config.heads, config.final_norm, config.head) == (192, 384, 12, False, "mlr")
    return {
        "rule": config.rule,
        "residual": config.residual,
        "position": config.position,
        "rates": rates,
        "readout": config.readout,
    }


@pytest.mark.parametrize(
    ("rows", "stated"),
    [(ablation.ROWS[1:], ABLATION), (position.ROWS, POSITION), (radius_rule.ROWS, RULES)],
    ids=["ablation", "position", "radius-rule"],
)
def test_rows_are_the_models_they_say(rows: tuple[Row, ...], stated: dict[str, dict[str, Any]]) -> None:
    assert {row.name: described(row) for row in rows} == stated


def test_the_first_row_is_the_split_head_lorentz_vit_with_a_class_token() -> None:
    recipe = resolved(ablation.ROWS[0], 0, Settings())
    model = create_model(recipe.model.name, num_classes=2, **recipe.model.options)
    assert (recipe.model.name, model.config.readout) == ("lorentz_vit_tiny", "class_token")  # type: ignore[attr-defined]
    assert model.blocks[0].attention.value.weight.shape == (192, 193)  # type: ignore[union-attr, index]


def test_only_the_clamp_differs_between_the_rows_of_the_defect() -> None:
    sound, clamped = (resolved(row, 0, Settings()) for row in hexformer_defect.ROWS)
    assert clamped.model.options == {**sound.model.options, "clamped_keys": True}
    assert (sound.optim, sound.train, sound.data, sound.augment) == (
        clamped.optim, clamped.train, clamped.data, clamped.augment
    )  # fmt: skip


def test_rows_of_the_ablation_differ_in_the_model_alone() -> None:
    first, *others = (resolved(row, 0, Settings()) for row in ablation.ROWS)
    for recipe in others:
        assert (recipe.optim, recipe.data, recipe.augment) == (first.optim, first.data, first.augment)
        assert recipe.train.precision == "tf32"


@pytest.mark.parametrize("name", [n for n in shipped() if any(s in n for s in ("lorentz_vit", "hexformer", "lvit"))])
def test_ambient_systems_train_in_strict_float32(name: str) -> None:
    assert load(name).train.precision == "fp32"


def test_rows_that_name_one_run_are_one_run_and_no_others_share_a_folder() -> None:
    tables = [cifar100.ROWS, ablation.ROWS, position.ROWS, radius_rule.ROWS, hexformer_defect.ROWS]
    others = [name for name, experiment in EXPERIMENTS.items() if experiment.home == accuracy.__name__]
    whole = [row for name in others for row in accuracy.rows_of(name)]
    homes: dict[str, Any] = {}
    for row in (row for rows in (*tables, whole) for row in rows):
        recipe = resolved(row, 0, Settings())
        made = (recipe.model, recipe.optim, recipe.train, recipe.data, recipe.augment)
        assert homes.setdefault(row.home, made) == made, row.home
    assert len({str(made) for made in homes.values()}) == len(homes), "two folders hold the same run"
    assert {"none", "polar_vit_tiny", "boost", "joint"} <= homes.keys()
    assert {row.folder for row in whole if row.home in {"hexformer_tiny", "hvt_base"}} == {cifar100.FOLDER}
    assert {row.folder for row in whole if not row.name.startswith("cifar100")} == {""}
