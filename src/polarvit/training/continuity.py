"""What may change between the parts of one run: model, seed and arithmetic of points never, the rest with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from polarvit.training.checkpoint import CheckpointError
from polarvit.training.recipe import Recipe
from polarvit.training.settings import SettingsError, build, plain

FIXED = ("model.name", "model.options", "train.seed", "optim.arithmetic")
"""What decides the weights from the first step on."""
FREE = ("title", "watch", "data.workers", "data.resident", "train.compile", "train.cuda_graph", "train.accumulate")
"""What is only watched, or how the same steps are carried out."""
DECIDING = {"segmentation": ("watch.keep_best", "watch.eval_every", "watch.eval_batch", "watch.drop_last")}
"""By task, what of `FREE` decides the result: which weights are kept, and what the soft Dice is."""


def check(before: dict[str, Any], recipe: Recipe) -> None:
    """Raise if `recipe` cannot continue a run that began with the settings `before`; warn if it would differ."""
    changed = {path: pair for path, *pair in differences(completed(before), plain(recipe)) if not free(path, recipe)}
    spelt = {path: f"{path} was {old!r} and is {new!r} now" for path, (old, new) in changed.items()}
    forbidden = [text for path, text in spelt.items() if below(path, FIXED)]
    if forbidden:
        raise CheckpointError(f"another run is in this folder: {'; '.join(forbidden)}; use another folder")
    if spelt:
        warnings.warn(
            f"the run goes on with other settings than it began with: {'; '.join(spelt.values())}", stacklevel=3
        )


def completed(before: dict[str, Any]) -> dict[str, Any]:
    """Settings of an earlier version with the defaults of what it did not know; as they are if it knew other things."""
    try:
        whole: dict[str, Any] = plain(build(Recipe, before))
    except SettingsError:
        return before
    return whole


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, old, new) of every setting that is not the same."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif before != after:
        yield path, before, after


def free(path: str, recipe: Recipe) -> bool:
    """Whether a setting may change without changing the result."""
    return below(path, FREE) and not below(path, DECIDING.get(recipe.task, ()))


def below(path: str, groups: tuple[str, ...]) -> bool:
    """Whether a setting is one of these, or inside one of them."""
    return any(path == group or path.startswith(group + ".") for group in groups)
