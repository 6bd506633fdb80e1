"""Finished runs kept small enough for version control: what they were, what came out, and a thinned log; no weights.

    results/cifar100/117100-steps/polar_vit_tiny-seed-0.json    recipe, seed, commit, machine, final metrics
    results/cifar100/117100-steps/polar_vit_tiny-seed-0.jsonl   the log: every evaluation, and the loss now and then

A record stands for its run: a table can be printed, and need not be trained again, where the run folders are not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import DIVERGED, METRICS, Result, Row, finished, place, resolved
from polarvit.experiments.same_run import check_same, config_of, portable, recipe_of
from polarvit.files import put_text
from polarvit.training import Recipe
from polarvit.training.run_folder import RunFolder
from polarvit.training.settings import build, plain

LINES = 150
"""Lines of training loss that a thinned log keeps."""


def all_finished(name: str, rows: Sequence[Row], settings: Settings, records: Path | None) -> list[Result]:
    """Finished runs of a study: those in run folders, which are recorded by the way, and those that are only recorded.

    Toy runs are never recorded.
    """
    results = finished(name, rows, settings)
    if records is None or settings.quick:
        return results
    for result in results:
        folder = place(name, result.row, settings) / f"seed-{result.seed}"
        keep(result, resolved(result.row, result.seed, settings), folder, records)
    known = {(result.row.name, result.seed) for result in results}
    kept = [found for row in rows for found in recorded(row, settings, records) if (row.name, found.seed) not in known]
    return sorted(results + kept, key=lambda result: ([row.name for row in rows].index(result.row.name), result.seed))


def keep(result: Result, recipe: Recipe, folder: Path, records: Path) -> Path:
    """Write the record of the finished run in `folder`; returns its JSON."""
    path = result.row.under(records) / f"{recipe.train.steps}-steps" / f"{result.row.home}-seed-{result.seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = METRICS if result.metrics is not None else DIVERGED
    content = {
        "row": result.row.home,
        "label": json.loads(path.read_text(encoding="utf-8"))["label"] if path.is_file() else result.row.label,
        "seed": result.seed,
        "diverged": result.diverged or None,
        "metrics": json.loads((folder / file).read_text(encoding="utf-8")),
        "recipe": plain(portable(recipe_of(folder) or recipe)),
        "config": config_of(folder),
        "log": path.with_suffix(".jsonl").name,
    }
    put_text(path, json.dumps(content, indent=1) + "\n")
    if (folder / "log.jsonl").is_file():
        lines = thinned(RunFolder.read_log(folder))
        put_text(path.with_suffix(".jsonl"), "".join(json.dumps(line) + "\n" for line in lines))
    elif not path.with_suffix(".jsonl").is_file():  # a log that is recorded is not lost with that of the run
        put_text(path.with_suffix(".jsonl"), "")
    return path


def recorded(row: Row, settings: Settings, records: Path) -> list[Result]:
    """The runs of a row, at the length asked for, that were recorded."""
    steps = resolved(row, 0, settings).train.steps
    found = []
    for path in sorted((row.under(records) / f"{steps}-steps").glob(f"{row.home}-seed-*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["row"] != row.home:
            continue  # a row whose name goes on with "-seed-"
        seed = content["seed"]
        recipe = resolved(row, seed, settings)
        check_same(build(Recipe, content["recipe"]), content.get("config"), recipe, path)
        found.append(Result.read(row, seed, content["metrics"]))
    return found


def thinned(log: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every evaluation, and at most `LINES` evenly spaced lines of the rest with the last; five digits."""
    rest = [index for index, line in enumerate(log) if "val_loss" not in line]
    count = min(LINES, len(rest))
    chosen = {rest[round((i + 1) * len(rest) / count) - 1] for i in range(count)}
    return [
        {key: value if isinstance(value, int) else float(f"{value:.5g}") for key, value in line.items()}
        for index, line in enumerate(log)
        if "val_loss" in line or index in chosen
    ]
