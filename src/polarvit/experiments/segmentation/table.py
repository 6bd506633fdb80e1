"""The paper's table of segmentation: test Dice of four U-Nets on five sets, ours below the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from polarvit.experiments.catalogue.segmentation import PAPER, SETS
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Result, Row, study
from polarvit.experiments.segmentation.rows import NAME, ROWS, at, ready
from polarvit.tables import console, table
from polarvit.training import SettingsError

__all__ = ["ROWS", "run"]

NOTE = (
    "Soft Dice of batches of 8, mean of foreground and background, the incomplete last batch left out: the benchmark's "
    "definition. The paper's Euclidean and Poincare rows are published ones, with another optimizer."
)


def run(settings: Settings) -> list[str]:
    """Train what is missing and has data, print the table, write records; returns what failed.

    Only a polar run must not diverge: the other nets may, as the paper's did, and the table counts that.
    """
    records = settings.out / NAME
    rows, settings = at(settings)
    if not settings.only:
        there = tuple(row.name for row in rows if ready(row, settings))
        if not there:
            raise SettingsError(
                "no segmentation set is prepared here; see docs/segmentation.md, or try --quick, or give --data"
            )
        settings = replace(settings, only=there)
    failures = study(NAME, "Medical segmentation", rows, settings, records=records, show=show, note=NOTE)
    return [failure for failure in failures if failure.startswith(PAPER["polar"][0]) or " diverged (" not in failure]


def show(title: str, rows: Sequence[Row], results: Sequence[Result], settings: Settings, note: str) -> None:
    """Print nets down and sets across: the paper's value, ours, and what stands behind it."""
    toys = "TOY SIZE on discs: shows that everything runs, not how good it is. " if settings.quick else ""
    cells: list[list[str] | None] = []
    for net, (label, values) in PAPER.items():
        own = {row.name.rpartition("_")[2]: row for row in rows if row.name.startswith(f"{net}_")}
        found = [cell([result for result in results if result.row == own[key]]) for key in SETS]
        cells += [[label, "paper", *values], ["", "ours", *found], None]
    columns = ["net", "", *SETS.values()]
    out = console()
    out.print(table(f"{title}: test Dice", columns, cells, caption=toys + note, text=("",)))
    if scored := [[*by_image(row, results)] for row in rows if any(r.row == row and r.metrics for r in results)]:
        columns = ["run", "Dice per image", "IoU", "HD95, px", "parameters", "seeds", "minutes"]
        out.print(table("Of the foreground, image by image: what clinicians use", columns, scored))


def by_image(row: Row, results: Sequence[Result]) -> Iterator[str]:
    """The means over seeds of a row's scores by image, its size, seeds and minutes."""
    own = [result for result in results if result.row == row and result.metrics is not None]
    scores = [result.scores or {} for result in own]
    yield row.label
    for name, digits in (("image_dice", 3), ("iou", 3), ("hausdorff95", 1)):
        yield f"{statistics.fmean(score[name] for score in scores):.{digits}f}"
    metrics = [result.metrics or {} for result in own]
    yield f"{metrics[0]['parameters']:,}"
    yield str(len(own))
    yield f"{statistics.fmean(each['seconds'] for each in metrics) / 60:.1f}"


def cell(results: Sequence[Result]) -> str:
    """Mean and spread over seeds, and how many diverged."""
    values = [result.value for result in results if result.value is not None]
    words = []
    if values:
        spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
        words.append(f"{statistics.fmean(values):.3f}{spread}")
    if lost := len(results) - len(values):
        words.append(f"{lost} diverged")
    return ", ".join(words) or "-"
