"""Training every system with its embeddings pushed outward: which diverge, which go on. Our own experiment.

Every layer and norm of a system starts at mean radius 2, 4, 8 or 12 (`push`), or where it starts by itself, and then it
trains for some hundred steps in strict float32 with the same data, seed and optimizer as all others, at the rate of its
own recipe: three blocks of the width of Tiny, 16 tokens, so a CPU can do it. From 8 and 12 a twin starts with the
same weights and trains in float64: float32 breaks a system where its twin goes on. A system can go on without a NaN and
still compute noise, so the difference of its logits from those of the same weights in float64 is measured before and
after, and how much logits differ between images at all. `--quick` does it with narrow models on digits. A run that
`stability.json` holds is not run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polarvit.experiments.pictures import NoPictures
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, chosen, resolved
from polarvit.experiments.side_by_side import Unfinished, in_processes
from polarvit.experiments.stability.rows import FAR, RADII, ROWS, SYSTEMS, edge, precision_of, radii_of, system_of
from polarvit.experiments.stability.table import broken, key_of, named, show, summary, twins
from polarvit.experiments.stability.trial import even, train_pushed
from polarvit.provenance import provenance, without_paths, write_json
from polarvit.tables import console
from polarvit.training import SettingsError
from polarvit.training.distributed import place

NAME = "stability"
STEPS, TOY_STEPS = 500, 40
WORDS = {"fp32": "float32", "fp64": "float64"}


def run(settings: Settings) -> list[str]:
    """Run what is missing, print the table, write `stability.json` and its picture.

    The JSON is written after every run, with what it held before: further systems, radii and seeds join it.
    """
    settings = placed(settings)
    runs = {key_of(each): each for each in recorded(settings)}
    rows = chosen(ROWS, settings.only)
    wanted = [(row, radius, seed) for seed in settings.all_seeds for row in rows for radius in radii_of(row)]
    todo = [(row, radius, seed) for row, radius, seed in wanted if (row.name, radius, seed) not in runs]
    left = len(todo)
    for found in trained(todo, settings):
        runs = {key_of(each): each for each in recorded(settings)} | runs | {key_of(found): found}  # others write too
        left -= 1
        write(list(runs.values()), settings)
    if runs:
        whole = ordered(runs.values())
        write(whole, settings)
        show(whole, settings)
        draw_record(settings)
    if left:
        raise Unfinished(f"{left} runs are not done, the same command goes on with them")
    polar = [run for run in runs.values() if run["row"] == "polar_vit_tiny" and run["state"] == "diverged"]
    both = {key for key, twin in twins(runs.values()).items() if twin["state"] == "diverged"}
    alone = [run for run in polar if key_of(run) not in both]
    return [f"Polar-ViT, {named(run['radius'])}, seed {run['seed']} diverged" for run in alone]


def trained(todo: Sequence[tuple[Row, float | None, int]], settings: Settings) -> Iterator[dict[str, Any]]:
    """Run these until the time is up, several at once in processes of their own if asked; yields their records."""
    began = time.monotonic()
    in_time = (each for each in todo if settings.minutes is None or time.monotonic() - began <= 60 * settings.minutes)
    if settings.side_by_side == 1:
        return (one(*each, settings) for each in in_time)
    calls = ((*each, settings) for each in in_time)
    say = console().print
    return in_processes(one, calls, settings.side_by_side, device=settings.device, say=say)


def placed(settings: Settings) -> Settings:
    """Settings with a length; what comes of another than the usual one goes into a folder of its own."""
    usual = TOY_STEPS if settings.quick else STEPS
    if settings.steps in (None, usual):
        return replace(settings, steps=usual)
    return replace(settings, out=settings.out / NAME / f"{settings.steps}-steps")


def ordered(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seed by seed, in the order of the rows and radii."""
    places = {row.name: index for index, row in enumerate(ROWS)}
    return sorted(runs, key=lambda run: (run["seed"], places[run["row"]], run["radius"] or 0))


def write(runs: Sequence[dict[str, Any]], settings: Settings) -> None:
    """The JSON as it stands."""
    runs = ordered(runs)
    products = ",".join(sorted({WORDS[run["precision"]] for run in runs}))
    record = facts(settings) | {
        "experiment": NAME,
        "command": settings.command(NAME),
        "provenance": provenance(seed=settings.seed, quick=settings.quick, product_precision=products),
        "seed": runs[0]["seed"],
        "radii": list(RADII),
        "edges": {row.name: edge(row.name) for row in SYSTEMS if edge(row.name) < max(FAR)},
        "chance": runs[0]["chance"],
        "breaks": [{key: run[key] for key in ("system", "radius", "seed")} for run in broken(runs)],
        "runs": runs,
        "summary": summary(runs),
    }
    write_json(settings.file(NAME), record)


def facts(settings: Settings) -> dict[str, Any]:
    """What runs must share to stand in one table."""
    recipe = resolved(SYSTEMS[0], settings.seed, settings)
    length = {"steps": settings.steps, "batch_size": recipe.train.batch_size, "rates": "each recipe's"}
    size = {"model": dict(recipe.model.options), **length}
    return {
        "data": Path(recipe.data.path).name,
        "sets": [without_paths(pair) for pair in settings.sets],
        **size,
        "twins": list(FAR),
    }


def recorded(settings: Settings) -> list[dict[str, Any]]:
    """The runs in the JSON; those of other data or settings there are an error, not a loss."""
    path, wanted = settings.file(NAME), facts(settings)
    if not path.is_file():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    other = [key for key, value in wanted.items() if record.get(key) != value]
    if other:
        raise SettingsError(f"{path} holds runs of other {', '.join(other)}; give another folder with --out")
    found: list[dict[str, Any]] = record["runs"]
    return found


def draw_record(settings: Settings) -> None:
    """Draw what the JSON holds."""
    from polarvit.experiments.stability.picture import draw

    path = settings.file(NAME)
    console().print(f"wrote {path}", soft_wrap=True)
    try:
        draw(path.with_suffix(".png"), json.loads(path.read_text(encoding="utf-8")))
        console().print(f"wrote {path.with_suffix('.png')}", soft_wrap=True)
    except NoPictures as error:
        console().print(str(error))


def one(row: Row, radius: float | None, seed: int, settings: Settings) -> dict[str, Any]:
    """One system from one radius: its record."""
    console().print(f"{row.label}, {named(radius)}, seed {seed}: {settings.steps} steps")
    precision = precision_of(row)
    found: dict[str, Any] = {"row": row.name, "system": system_of(row), "precision": precision, "label": row.label}
    found |= {"radius": radius, "seed": seed}
    with place(settings.device) as here:
        found |= train_pushed(even(resolved(row, seed, settings), precision), radius, here)
    return found | {"provenance": provenance(seed=seed, quick=settings.quick, product_precision=WORDS[precision])}
