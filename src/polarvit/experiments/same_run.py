"""Whether a finished run is the one that a row of a table asks for, wherever its data lay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from polarvit.models.registry import entry
from polarvit.training import Recipe, SettingsError, checkpoint
from polarvit.training.continuity import differences, free
from polarvit.training.recipe import read
from polarvit.training.settings import build, plain

RECIPE = "recipe.yaml"
AGAIN = "move it away to run the row again, or choose another --runs"
DATA_DECIDES = "num_classes"
"""The one field of a model's config that is not its own."""


def same_recipe(recipe: Recipe, folder: Path) -> None:
    """Raise unless the run in `folder` was made by this recipe (but for what is only watched)."""
    path = folder / RECIPE
    if not path.is_file():
        raise SettingsError(f"{folder}: a result without its {RECIPE}; move it away to run this row again")
    check_same(build(Recipe, read(path)), recipe, folder)
    check_config(config_of(folder), recipe, folder)


def same_if_begun(recipe: Recipe, folder: Path) -> None:
    """Raise if an unfinished run in `folder` was begun with another recipe: one run has one recipe."""
    if checkpoint.steps(folder / "checkpoints") and (folder / RECIPE).is_file():
        check_same(build(Recipe, read(folder / RECIPE)), recipe, folder)


def check_same(stored: Recipe, recipe: Recipe, where: Path) -> None:
    """Raise unless both recipes make the same run, wherever the data lies and however its steps are carried out."""
    for path, old, new in differences(plain(portable(stored)), plain(portable(recipe))):
        if not free(path, recipe):
            raise SettingsError(
                f"{where}: the run there has another '{path}' ({old!r}) than this row has ({new!r}); {AGAIN}"
            )


def check_config(stored: dict[str, Any] | None, recipe: Recipe, where: Path) -> None:
    """Raise if the model that was trained differs from what the recipe makes now: a default may have changed since."""
    config = entry(recipe.model.name.partition(".")[0]).config
    now = type(config).from_dict({**config.to_dict(), **recipe.model.options}).to_dict()
    for key, value in (stored or {}).items():
        if key != DATA_DECIDES and key in now and value != now[key]:
            raise SettingsError(f"{where}: the model there has {key} {value!r}, this row has {now[key]!r} now; {AGAIN}")


def config_of(folder: Path) -> dict[str, Any] | None:
    """The whole config of the model that a run saved; None if it saved none."""
    path = folder / "model" / "config.json"
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["config"]
    return found


def portable(recipe: Recipe) -> Recipe:
    """The recipe without where its data lay on one machine."""
    return replace(recipe, data=replace(recipe.data, path=Path(recipe.data.path).name))
