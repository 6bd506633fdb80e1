"""A run is the row's if both make the same model, whoever names what: defaults are those of the run's time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polarvit.experiments.same_run import check_same, config_of, same_if_begun, same_recipe
from polarvit.models.config import FORMER_DEFAULTS, PolarViTConfig
from polarvit.training import Recipe, SettingsError, load
from polarvit.training.recipe import dump

WEIGHTS, OFFSET = "model.options.calibration=weights", "model.options.calibration=offset"
RUNS = {
    "before the field": ((), {"rate": None}),
    "before configs were recorded": ((), None),
    "by the former default": ((), {"calibration": "offset"}),
    "offset, named": ((OFFSET,), {"calibration": "offset"}),
    "by the default": ((), {"calibration": "weights"}),
    "weights, named": ((WEIGHTS,), {"calibration": "weights"}),
}
OLD = ("before the field", "before configs were recorded", "by the former default", "offset, named")
ROWS = {"default": (), "weights": (WEIGHTS,), "offset": (OFFSET,)}


def recipe(*overrides: str, name: str = "cifar100_polar_vit_tiny") -> Recipe:
    return load(name, list(overrides))


def begin(folder: Path, run: str, file: str) -> None:
    """Lay down the recipe of a run and, in `file`, the config it saved."""
    overrides, config = RUNS[run]
    checkpoint = folder / "checkpoints" / "step-00000005"
    checkpoint.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(dump(recipe(*overrides)))
    (checkpoint / "state.json").write_text('{"step": 5}')
    if config is not None:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(json.dumps({"config": {**config, "num_classes": 100}}))


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("file", ["model/config.json", "checkpoints/step-00000005/state.json", "environment.json"])
def test_old_and_new_runs_match_the_rows_that_make_the_same_model(
    tmp_path: Path, run: str, row: str, file: str
) -> None:
    begin(tmp_path, run, file)
    for same in (same_recipe, same_if_begun):
        if (run in OLD) == (row == "offset"):
            same(recipe(*ROWS[row]), tmp_path)
            continue
        pair = r"\('offset'\) than this row has \('weights'\)" if run in OLD else r"\('weights'\) .* \('offset'\)"
        with pytest.raises(SettingsError, match=rf"another 'model\.options\.calibration' {pair}; move it away"):
            same(recipe(*ROWS[row]), tmp_path)


def test_the_config_of_a_run_is_that_of_its_weights_or_of_what_can_be_read(tmp_path: Path) -> None:
    assert config_of(tmp_path) is None
    begin(tmp_path, "by the default", "environment.json")
    (tmp_path / "checkpoints" / "step-00000009").mkdir()
    (tmp_path / "checkpoints" / "step-00000009" / "state.json").write_text('{"config": {')
    assert config_of(tmp_path) == {"calibration": "weights", "num_classes": 100}


def test_models_without_the_field_have_no_former_default(tmp_path: Path) -> None:
    twin = recipe(name="cifar100_vit_tiny")
    check_same(twin, None, twin, tmp_path)
    for key, former in FORMER_DEFAULTS.items():
        assert getattr(PolarViTConfig(), key) != former, "a default that is what it was needs no entry"


def test_weights_to_start_from_bring_their_own_config(tmp_path: Path) -> None:
    tuned = recipe("model.pretrained=polar_vit_tiny.cifar100")
    check_same(tuned, {"calibration": "offset"}, tuned, tmp_path)
