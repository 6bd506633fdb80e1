"""Whether a finished run is the one that a row of a table asks for, wherever its data lay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from polarvit.provenance import without_paths
from polarvit.training import Recipe, SettingsError, checkpoint
from polarvit.training.continuity import differences, free, in_full
from polarvit.training.recipe import read
from polarvit.training.settings import build, plain

RECIPE = "recipe.yaml"
AGAIN = "move it away to run the row again, or choose another --runs"


def same_recipe(recipe: Recipe, folder: Path) -> None:
    """Raise unless the run in `folder` was made by this recipe (but for what is only watched)."""
    if (stored := recipe_of(folder)) is None:
        raise SettingsError(f"{folder}: a result without its {RECIPE}; move it away to run this row again")
    check_same(stored, config_of(folder), recipe, folder)


def same_if_begun(recipe: Recipe, folder: Path) -> None:
    """Raise if an unfinished run in `folder` was begun with another recipe: one run has one recipe."""
    if checkpoint.steps(folder / "checkpoints") and (stored := recipe_of(folder)):
        check_same(stored, config_of(folder), recipe, folder)


def check_same(stored: Recipe, config: dict[str, Any] | None, recipe: Recipe, where: Path) -> None:
    """Raise unless both recipes make the same run, wherever the data lies and however its steps are carried out.

    Models are compared as they were and as they are made now: `config` is that of the stored run's model, where it was
    saved, and what neither it nor the stored recipe names had the default of its time.
    """
    for path, old, new in differences(*in_full(plain(portable(stored)), plain(portable(recipe)), config)):
        if not free(path, recipe):
            raise SettingsError(
                f"{where}: the run there has another '{path}' ({old!r}) than this row has ({new!r}); {AGAIN}"
            )


def recipe_of(folder: Path) -> Recipe | None:
    """The recipe that a run was begun with; None if it is not there."""
    path = folder / RECIPE
    return build(Recipe, read(path)) if path.is_file() else None


def config_of(folder: Path) -> dict[str, Any] | None:
    """The whole config of the model of a run: of its weights, its newest checkpoint, or its start; None if unknown."""
    checkpoints = [path / "state.json" for _, path in checkpoint.steps(folder / "checkpoints")]
    for path in (folder / "model" / "config.json", *checkpoints, folder / "environment.json"):
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["config"]
        except (OSError, ValueError, KeyError):  # a checkpoint may be damaged, or older than its config
            continue
        return found
    return None


def portable(recipe: Recipe) -> Recipe:
    """The recipe without where its data, and weights it started from, lay on one machine."""
    start = recipe.model.pretrained
    model = replace(recipe.model, pretrained=without_paths(start)) if start else recipe.model
    return replace(recipe, data=replace(recipe.data, path=Path(recipe.data.path).name), model=model)
