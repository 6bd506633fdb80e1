"""Write what results/ hold into docs/cifar100.md and README.md: `python docs/cifar100_page.py`."""

from __future__ import annotations

import json
from pathlib import Path

from blocks import filled, rewrite, rows

from polarvit.experiments import EXPERIMENTS
from polarvit.experiments.cifar100.table import gaps
from polarvit.experiments.listing import NOT_RUN, lines

ROOT = Path(__file__).parent.parent
PAGE, README = ROOT / "docs" / "cifar100.md", ROOT / "README.md"
SCRIPT = "docs/cifar100_page.py"
NAMES = (
    "cifar100",
    "cifar100-sweep",
    "cifar100-precision",
    "cifar100-choices",
    "cifar100-variants",
    "cifar100-analysis",
)


PICTURES = {
    "radius": "Accuracy and confidence of test images by their distance from the origin",
    "noise": "Accuracy and radius under noise",
    "superclasses": "The hundred classes on the Poincaré disk, marked by superclass",
    "calibration": "How sure predictions are, and how often right",
    "rates": "Learned horoshift rates of every head",
}


def table(name: str, results: Path) -> str:
    """The rows of one experiment: the paper's value and ours, with date and machine.

    Of what only we ask, rows that were not run are named below the table.
    """
    experiment = EXPERIMENTS[name]
    of_paper = any(row.paper for row in experiment.rows)
    columns = ("row", "paper", "ours", "measured") if of_paper else ("row", "ours", "measured")
    cells, missing = [list(columns)], []
    for row, (label, paper, ours, where) in zip(experiment.rows, lines(experiment, results), strict=True):
        if of_paper:
            told = f"`{where}`" if where and where == experiment.command_of(row) else where
            cells.append([label, paper, ours, told])
        elif ours == NOT_RUN:
            missing.append(f"`{row.key}` ({label})")
        else:
            cells.append([label, ours, where])
    return rows(cells) + (
        f"\n\nNot yet run, `{experiment.command} --only ROW`: {', '.join(missing)}." if missing else ""
    )


def told(name: str, results: Path) -> str:
    """The table, and under that of the headline how far ours is from the paper's."""
    path = results / "cifar100" / "cifar100.json"
    lines = gaps(json.loads(path.read_text(encoding="utf-8"))["rows"]) if name == NAMES[0] and path.is_file() else []
    return "\n".join([table(name, results), *([""] if lines else []), *(f"- {line}" for line in lines)])


def pictures(results: Path, up: str, *subjects: str) -> str:
    """Those pictures of the analysis that were drawn; `up` leads from the page to the root of the repository."""
    drawn = [subject for subject in subjects if (results / "cifar100" / f"analysis-{subject}.png").is_file()]
    return "\n\n".join(f"![{PICTURES[subject]}]({up}results/cifar100/analysis-{subject}.png)" for subject in drawn)


def page(text: str, results: Path = ROOT / "results") -> str:
    """The page with the tables and pictures as they stand now."""
    written = {name: told(name, results) for name in NAMES}
    written["cifar100-pictures"] = pictures(results, "../", *PICTURES)
    written["cifar100-picture"] = pictures(results, "", "superclasses")
    return filled(text, SCRIPT, written)


if __name__ == "__main__":
    rewrite(page, PAGE, README)
