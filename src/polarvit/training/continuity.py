"""What may change between the parts of one run: model, seed and arithmetic of points never, the rest with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from polarvit.models.config import FORMER_DEFAULTS, former_defaults
from polarvit.models.registry import entry
from polarvit.training.checkpoint import CheckpointError
from polarvit.training.recipe import Recipe
from polarvit.training.settings import SettingsError, build, plain

FIXED = ("model.name", "model.options", "train.seed", "optim.arithmetic")
"""What decides the weights from the first step on."""
FREE = ("title", "watch", "data.workers", "data.resident", "train.compile", "train.cuda_graph", "train.accumulate")
"""What is only watched, or how the same steps are carried out."""
DECIDING = {"segmentation": ("watch.eval_batch", "watch.drop_last")}
"""By task, what of `FREE` decides the result: what the soft Dice is."""
KEEPING = ("watch.keep_best", "watch.eval_every")
"""What decides which weights are kept, where they are not those of the last step."""
DATA_DECIDES = "num_classes"
"""The one field of a model's config that is not its own."""


def check(
    before: dict[str, Any], recipe: Recipe, config: dict[str, Any] | None = None, *, finished: bool = False
) -> None:
    """Raise if `recipe` cannot continue a run that began with the settings `before`; warn if it would differ.

    `config` is that of the run's model, if it was saved. A run that is `finished` does not go on with anything.
    """
    old, new = in_full(completed(before), plain(continued(recipe, before, config)), config)
    changed = {path: pair for path, *pair in differences(old, new) if not free(path, recipe)}
    spelt = {path: f"{path} was {old!r} and is {new!r} now" for path, (old, new) in changed.items()}
    forbidden = [text for path, text in spelt.items() if below(path, FIXED)]
    if forbidden:
        raise CheckpointError(f"another run is in this folder: {'; '.join(forbidden)}; use another folder")
    if spelt:
        goes_on = "the run goes on with other settings than it began with"
        how = "the run is finished and stays as it is, though settings differ" if finished else goes_on
        warnings.warn(f"{how}: {'; '.join(spelt.values())}", stacklevel=3)


def completed(before: dict[str, Any]) -> dict[str, Any]:
    """Settings of an earlier version with the defaults of what it did not know; as they are if it knew other things."""
    try:
        whole: dict[str, Any] = plain(build(Recipe, before))
    except SettingsError:
        return before
    return whole


def in_full(
    before: dict[str, Any], after: dict[str, Any], config: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both settings with every option of their model, the earlier ones with the defaults of their time.

    `config` is that of the earlier run's model, if it was saved. Options of two models, or of weights to start from,
    which bring their own, stay as they are named.
    """
    old, new = before["model"], after["model"]
    if old["name"] != new["name"] or old.get("pretrained") or new.get("pretrained"):
        return before, after
    default = entry(old["name"].partition(".")[0]).config
    fields = default.to_dict()
    saved = {key: value for key, value in (config or {}).items() if key in fields and key != DATA_DECIDES}
    then = {**fields, **former_defaults(type(default)), **old["options"], **saved}
    now = {**fields, **new["options"]}
    return {**before, "model": {**old, "options": then}}, {**after, "model": {**new, "options": now}}


def continued(recipe: Recipe, before: dict[str, Any], config: dict[str, Any] | None) -> Recipe:
    """The recipe of a run that began with `before`: an option whose default changed and that it does not name stays."""
    if before["model"]["name"] != recipe.model.name or before["model"].get("pretrained") or recipe.model.pretrained:
        return recipe
    was, now = (each["model"]["options"] for each in in_full(before, plain(recipe), config))
    silent = [key for key in FORMER_DEFAULTS if key in now and key not in recipe.model.options]
    kept = {key: was[key] for key in silent if was[key] != now[key]}
    return replace(recipe, model=replace(recipe.model, options={**recipe.model.options, **kept}))


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, old, new) of every setting that is not the same."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif before != after:
        yield path, before, after


def free(path: str, recipe: Recipe) -> bool:
    """Whether a setting may change without changing the result."""
    deciding = DECIDING.get(recipe.task, ()) + (KEEPING if recipe.watch.keep_best else KEEPING[:1])
    return below(path, FREE) and not below(path, deciding)


def below(path: str, groups: tuple[str, ...]) -> bool:
    """Whether a setting is one of these, or inside one of them."""
    return any(path == group or path.startswith(group + ".") for group in groups)
