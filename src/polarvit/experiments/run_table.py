"""What a study of training runs found (`polarvit.experiments.runs`): its JSON, its table and its picture."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from polarvit.experiments.pictures import NoPictures
from polarvit.experiments.registry import Settings
from polarvit.experiments.run_picture import agreement, draw, ranks
from polarvit.experiments.runs import Result, Row, resolved, spelled
from polarvit.provenance import as_written, provenance, write_json
from polarvit.tables import console, table
from polarvit.training import load


def summary(row: Row, results: Sequence[Result]) -> dict[str, Any]:
    """One row in the JSON: the paper's value, ours with mean, standard deviation and seeds, and every run."""
    own = [result for result in results if result.row == row]
    values = [result.value for result in own if result.value is not None]
    paper = row.paper
    return {
        "name": row.name,
        "label": row.label,
        "recipe": row.recipe,
        "overrides": [each for each in row.overrides if not each.startswith("data.path=")],  # says `data`
        "data": Path(load(row.recipe, list(row.overrides)).data.path).name,
        "paper": None if paper is None else {"mean": paper.mean, "std": paper.std, "word": paper.word},
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "seeds": len(values),
        "diverged": sum(result.metrics is None for result in own),
        "runs": [result.record() for result in own],
    }


def write(name: str, title: str, rows: Sequence[Row], results: Sequence[Result], settings: Settings) -> bool:
    """The JSON of the study as it stands, and True; False, and it is left alone, if it holds these results already."""
    path = settings.file(name)
    ran = [row for row in rows if any(result.row == row for result in results)]
    recipes = [resolved(row, settings.seed, settings) for row in ran or rows]
    used = sorted({result.origin.get("product_precision", "unknown") for result in results})
    products = ",".join(used) or "none yet"
    lengths = sorted({recipe.train.steps for recipe in recipes})
    data = list(dict.fromkeys(Path(recipe.data.path).name for recipe in recipes))
    found = [summary(row, results) for row in rows]
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")).get("rows") == as_written(found):
        return False
    write_json(
        path,
        {
            "experiment": name,
            "title": title,
            "command": settings.command(name),
            "provenance": provenance(seed=settings.seed, quick=settings.quick, product_precision=products),
            "data": data if len(data) > 1 else data[0],
            "steps": lengths if len(lengths) > 1 else lengths[0],
            "batch_size": recipes[0].train.batch_size,
            "rows": found,
            "order": order_of(found, settings),
            "summary": listed(rows, results, settings),
        },
    )
    return True


def order_of(found: Sequence[dict[str, Any]], settings: Settings) -> str:
    """How many pairs of rows are ordered as in the paper; nothing of toys, which rank nothing."""
    return "" if settings.quick else agreement(found)


def picture(name: str, title: str, rows: Sequence[Row], results: Sequence[Result], settings: Settings) -> None:
    """Draw the rows in the paper's order beside ours, where two of them can be compared and are no toys."""
    found = [summary(row, results) for row in rows]
    if not order_of(found, settings):
        return
    path = settings.file(name, "png")
    try:
        whole = resolved(rows[0], 0, settings).train.steps == load(rows[0].recipe).train.steps
        draw(path, heading(title, rows, settings), found, whole=whole)
        console().print(f"wrote {path}", soft_wrap=True)
    except NoPictures as reason:
        console().print(str(reason), style="yellow", markup=False)


def listed(rows: Sequence[Row], results: Sequence[Result], settings: Settings) -> dict[str, Any]:
    """Our value of every row that ran, as `polarvit reproduce --list` shows it, with the machine of its runs."""
    found: dict[str, Any] = {}
    for each in rows:
        row, steps = summary(each, results), resolved(each, 0, settings).train.steps
        if not row["runs"]:
            continue
        seeds = f"{row['seeds']} seed{'s' * (row['seeds'] != 1)} of {steps:,} steps"
        lost = f", {row['diverged']} diverged" if row["diverged"] else ""
        digits = 3 if any("dice" in {**run, **run.get("before", {})} for run in row["runs"]) else 2
        mean = spelled(row["mean"], row["std"], digits) if row["seeds"] else ""
        value = f"{mean} ({seeds}{lost})" if mean else f"diverged ({steps:,} steps)"
        reached = [result.reached for result in results if result.row == each and result.reached is not None]
        if reached:
            value += f", before that {', '.join(f'{best:.{digits}f}' for best in reached)}"
        newest = max(row["runs"], key=lambda run: run["date"])
        origin = {"date": newest["date"], "machine": newest["machine"]}
        found[row["name"]] = {"value": value, "provenance": origin}
    return found


def show(title: str, rows: Sequence[Row], results: Sequence[Result], settings: Settings, note: str = "") -> None:
    """Print the table: the paper's value, ours, seeds, mean radius and minutes."""
    toys = "TOY SIZE on digits: shows that everything runs, not how good it is. " if settings.quick else ""
    cells = list(cells_of(rows, results))
    columns = ["row", "paper", "ours, top-1 %", "rank", "seeds", "radius", "minutes"]
    order = order_of([summary(row, results) for row in rows], settings)
    if not order:  # nothing to compare, or with nothing that means anything
        columns.remove("rank")
        cells = [row[:3] + row[4:] for row in cells]
    told = " ".join(filter(None, (toys.strip(), order and f"Rank: in the paper, here. {order}", "" if toys else note)))
    console().print(table(heading(title, rows, settings), columns, cells, caption=told))


def heading(title: str, rows: Sequence[Row], settings: Settings) -> str:
    """The title with the length of the runs."""
    lengths = sorted({resolved(row, settings.seed, settings).train.steps for row in rows})
    steps = " or ".join(f"{steps:,}" for steps in lengths)
    toy = ", but TOY MODELS ON TOY DATA" if settings.quick else ""
    return f"{title}{toy}: {steps} steps of {resolved(rows[0], settings.seed, settings).train.batch_size}"


def cells_of(rows: Sequence[Row], results: Sequence[Result]) -> Iterator[list[str]]:
    """The cells of every row."""
    places = ranks([summary(row, results) for row in rows])
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
            ", ".join(map(str, places[row.name])) if row.name in places else "-",
            str(found["seeds"]),
            f"{statistics.fmean(radii):.2f}" if radii else "-",
            f"{statistics.fmean(minutes):.1f}" if minutes else "-",
        ]
