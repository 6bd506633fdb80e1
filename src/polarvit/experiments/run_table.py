"""What a study of training runs found (`polarvit.experiments.runs`): its JSON, and its table beside the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Result, Row, resolved, spelled
from polarvit.provenance import provenance, write_json
from polarvit.tables import console, table


def summary(row: Row, results: Sequence[Result]) -> dict[str, Any]:
    """One row in the JSON: the paper's value, ours with mean, standard deviation and seeds, and every run."""
    own = [result for result in results if result.row == row]
    values = [result.value for result in own if result.value is not None]
    paper = row.paper
    return {
        "name": row.name,
        "label": row.label,
        "recipe": row.recipe,
        "overrides": list(row.overrides),
        "paper": None if paper is None else {"mean": paper.mean, "std": paper.std, "word": paper.word},
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "seeds": len(values),
        "diverged": sum(result.metrics is None for result in own),
        "runs": [result.record() for result in own],
    }


def write(name: str, title: str, rows: Sequence[Row], results: Sequence[Result], settings: Settings) -> Path:
    """The JSON of the study as it stands; a toy study never overwrites a real one."""
    path = settings.out / f"{name}{'-quick' if settings.quick else ''}.json"
    recipe = resolved(rows[0], settings.seed, settings)
    write_json(
        path,
        {
            "experiment": name,
            "title": title,
            "command": command(name, settings),
            "provenance": provenance(
                seed=settings.seed, quick=settings.quick, product_precision=recipe.train.precision
            ),
            "data": Path(recipe.data.path).name,
            "steps": recipe.train.steps,
            "batch_size": recipe.train.batch_size,
            "rows": [summary(row, results) for row in rows],
            "summary": listed(rows, results, settings),
        },
    )
    return path


def listed(rows: Sequence[Row], results: Sequence[Result], settings: Settings) -> dict[str, Any]:
    """Our value of every row that ran, as `polarvit reproduce --list` shows it, with the machine of its runs."""
    found: dict[str, Any] = {}
    for each in rows:
        row, steps = summary(each, results), resolved(each, 0, settings).train.steps
        if not row["runs"]:
            continue
        seeds = f"{row['seeds']} seed{'s' * (row['seeds'] != 1)} of {steps:,} steps"
        value = f"{spelled(row['mean'], row['std'])} ({seeds})" if row["seeds"] else f"diverged ({steps:,} steps)"
        machines = [run["machine"] for run in row["runs"] if "machine" in run]
        here = provenance(seed=0)
        origin = {"date": here["date"], "machine": machines[0] if machines else here["machine"]}
        found[row["name"]] = {"value": value, "provenance": origin}
    return found


def command(name: str, settings: Settings) -> str:
    """The command line that makes this table."""
    words = ["polarvit", "reproduce", name]
    words += ["--quick"] if settings.quick else []
    words += ["--steps", str(settings.steps)] if settings.steps is not None else []
    if settings.seed_list:
        words += ["--seeds", ",".join(map(str, settings.seed_list)) + ("," if len(settings.seed_list) == 1 else "")]
    else:
        words += ["--seeds", str(settings.seeds)] if settings.seeds != 1 else []
        words += ["--seed", str(settings.seed)] if settings.seed else []
    return " ".join(words + [word for pair in settings.sets for word in ("--set", pair)])


def show(title: str, rows: Sequence[Row], results: Sequence[Result], settings: Settings, note: str = "") -> None:
    """Print the table: the paper's value, ours, seeds, mean radius and minutes."""
    recipe = resolved(rows[0], settings.seed, settings)
    heading = f"{title}: {recipe.train.steps:,} steps of {recipe.train.batch_size}"
    toys = "TOY SIZE on digits: shows that everything runs, not how good it is. " if settings.quick else ""
    cells = list(cells_of(rows, results))
    columns = ["row", "paper", "ours, top-1 %", "seeds", "radius", "minutes"]
    console().print(table(heading, columns, cells, caption=toys + note))


def cells_of(rows: Sequence[Row], results: Sequence[Result]) -> Iterator[list[str]]:
    """The cells of every row."""
    for row in rows:
        found = summary(row, results)
        ours = spelled(found["mean"], found["std"]) if found["mean"] is not None else "-"
        if found["diverged"]:
            ours = f"{found['diverged']} diverged" if ours == "-" else f"{ours}, {found['diverged']} diverged"
        whole = [run for run in found["runs"] if "diverged" not in run]
        radii = [run["radius"] for run in whole if run.get("radius") is not None]
        minutes = [run["seconds"] / 60 for run in whole]
        yield [
            row.label,
            "-" if row.paper is None else str(row.paper),
            ours,
            str(found["seeds"]),
            f"{statistics.fmean(radii):.2f}" if radii else "-",
            f"{statistics.fmean(minutes):.1f}" if minutes else "-",
        ]
