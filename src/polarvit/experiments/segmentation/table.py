"""The paper's table of segmentation: test Dice of four U-Nets on five sets, ours below the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from polarvit.experiments.catalogue.segmentation import CLIPPED, PAPER, SETS
from polarvit.experiments.registry import Settings
from polarvit.experiments.run_records import all_finished
from polarvit.experiments.run_table import heading
from polarvit.experiments.runs import Result, Row, study
from polarvit.experiments.segmentation.rows import NAME, ROWS, at, usual
from polarvit.tables import console, table
from polarvit.training import SettingsError
from polarvit.training.segmentation import ORDERS

__all__ = ["ROWS", "run"]

NOTE = (
    "Soft Dice of batches of 8, mean of foreground and background, the incomplete last batch left out: the benchmark's "
    "definition. The paper's Euclidean and Poincare rows are published ones, with another optimizer."
)

LOST = "Best lost: the best weights could not be read any more, the last ones were measured."


def run(settings: Settings) -> list[str]:
    """Train what is missing and has data, print the table, write records; returns what failed.

    Only a polar run must not diverge: the other nets may, as the paper's did, and the table counts that.
    """
    records = settings.out / NAME
    rows, settings = at(settings)
    if not settings.only:
        there = tuple(row.name for row in rows if usual(row, settings))
        if not there and (kept := all_finished(NAME, rows, settings, records)):
            if settings.queue is not None:
                settings.queue.take(list)
            show("Medical segmentation", rows, kept, settings, f"No set is prepared here: these are records. {NOTE}")
            return []
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
    ran = [row for row in rows if any(result.row == row for result in results)]
    found = {row.name: cell([result for result in results if result.row == row]) for row in ran}
    cells: list[list[str] | None] = []
    for net, (label, values) in PAPER.items():
        ours = [found.get(f"{net}_{key}", "-") for key in SETS]
        cells += [[label, "paper", *values], ["", "ours", *ours], None]
    if any(row.name.startswith(CLIPPED[0]) for row in ran):
        cells += [[CLIPPED[1], "ours", *(found.get(f"{CLIPPED[0]}_{key}", "-") for key in SETS)]]
    lost = f" {LOST}" if any("best lost" in each for each in found.values()) else ""
    columns = ["net", "", *SETS.values()]
    out = console()
    above = f"{heading(title, ran, settings)}, {seeds_of(results)}: test Dice" if ran else f"{title}: test Dice"
    out.print(table(above, columns, cells, caption=toys + note + lost, text=("",)))
    if scored := [[*by_image(row, results)] for row in rows if any(r.row == row and r.metrics for r in results)]:
        columns = [
            "run",
            f"Dice, {ORDERS} orders",
            "Dice per image",
            "IoU",
            "HD95, px (missed)",
            "parameters",
            "seeds",
            "minutes",
        ]
        above = "Over random orders of the test images; and of the foreground, image by image, what clinicians use"
        words = "missed: images where one of net and truth sees nothing; their distance counts as the diagonal"
        out.print(table(above, columns, scored, caption=words))


def by_image(row: Row, results: Sequence[Result]) -> Iterator[str]:
    """The means over seeds of a row's Dice over orders and scores by image, its size, seeds and minutes."""
    own = [result for result in results if result.row == row and result.metrics is not None]
    scores = [result.scores or {} for result in own]
    yield row.label
    orders = [(score["orders_mean"], score["orders_std"]) for score in scores if score.get("orders_mean") is not None]
    yield " ± ".join(f"{statistics.fmean(values):.3f}" for values in zip(*orders, strict=True)) or "-"
    image_dice, iou, distance, missed = (
        statistics.fmean(score[name] for score in scores) for name in ("image_dice", "iou", "hausdorff95", "missed")
    )
    yield f"{image_dice:.3f}"
    yield f"{iou:.3f}"
    yield f"{distance:.1f} ({missed:.3g})"
    metrics = [result.metrics or {} for result in own]
    yield f"{metrics[0]['parameters']:,}"
    yield str(len(own))
    yield f"{statistics.fmean(each['seconds'] for each in metrics) / 60:.1f}"


def seeds_of(results: Sequence[Result]) -> str:
    """How many seeds the runs have, at most."""
    count = max(sum(other.row == result.row for other in results) for result in results)
    return "1 seed" if count == 1 else f"up to {count} seeds"


def cell(results: Sequence[Result]) -> str:
    """Mean and spread over seeds, how many diverged and what they had reached, how many lost their best weights."""
    values = [result.value for result in results if result.value is not None]
    words = []
    if values:
        spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
        words.append(f"{statistics.fmean(values):.3f}{spread}")
    before = [f"{result.reached:.3f}" for result in results if result.reached is not None]
    if len(results) == len(before) == 1:
        words.append(f"{before[0]} before it diverged")
    elif lost := len(results) - len(values):
        words.append(f"{lost} diverged" + (f" ({', '.join(before)} before)" if before else ""))
    if gone := sum("best_lost" in (result.metrics or {}) for result in results):
        words.append(f"{gone} best lost")
    return ", ".join(words) or "-"
