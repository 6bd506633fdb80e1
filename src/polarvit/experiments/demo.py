"""The demo: a micro Polar-ViT and its Euclidean twin on the built-in digits, a table and a page to look at."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from polarvit.experiments.report.collect import Run, read_run
from polarvit.experiments.report.page import HEADINGS, facts, write_report
from polarvit.experiments.threads import one_thread
from polarvit.training import load, train

RECIPES = ("digits", "digits_vit")
LEAD = (
    "A micro Polar-ViT and its Euclidean twin, trained on the 8 x 8 handwritten digits that ship with scikit-learn: "
    "same size, same data, same schedule."
)


def run_demo(
    out: Path, *, overrides: list[str] | None = None, fresh: bool = False, say: Callable[[str], None] = print
) -> Path:
    """Train both models under `out` (or take up what is there), print the table, write and return the report."""
    with one_thread():
        for name in RECIPES:
            recipe, folder = load(name, overrides), out / name
            if fresh and (folder / "recipe.yaml").is_file():
                shutil.rmtree(folder)
            say(f"{recipe.title}: {recipe.train.steps} steps of {recipe.train.batch_size} images -> {folder}")
            train(recipe, folder, resume=True, device="cpu")
        folders = [out / name for name in RECIPES]
        say("")
        for line in table([read_run(folder, look_at_images=False) for folder in folders]):
            say(line)
        return write_report(folders, out / "report.html", title="Polar-ViT on handwritten digits", lead=LEAD)


def table(runs: list[Run]) -> list[str]:
    """The rows of the runs in columns, for a terminal."""
    rows = [HEADINGS, *map(facts, runs)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
