"""Write what results/ hold into docs/comparison.md and README.md: `python docs/comparison_page.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from blocks import filled, rewrite, rows

from polarvit.experiments.cifar100.table import FOLDER
from polarvit.experiments.listing import NOT_RUN, read
from polarvit.experiments.runs import spelled

ROOT = Path(__file__).parent.parent
PAGE, README = ROOT / "docs" / "comparison.md", ROOT / "README.md"
SCRIPT = "docs/comparison_page.py"
STEPS = 11_710
SHORT = Path(FOLDER, f"{STEPS}-steps")
TABLES = ("ablation", "position", "hexformer-defect", "radius-rule")
TRAINED = (
    ("vit_tiny", Path(FOLDER, "cifar100-sweep.json"), "vit_tiny-lr-2e-3", "Euclidean ViT, the best of four rates"),
    ("lorentz_vit_tiny", SHORT / "ablation.json", "lorentz_vit", "Lorentz ViT, ambient"),
    ("hexformer_tiny", SHORT / "hexformer-defect.json", "sound", "HexFormer"),
    ("polar_vit_tiny", SHORT / "ablation.json", "polar_vit", "Polar-ViT"),
)
"""Systems of which there are a run of that length and a cost: their names, and the table and row of the run."""
PRODUCTS = {"fp32": "float32", "tf32": "TF32", "bf16": "bf16"}


def in_paper(row: dict[str, Any]) -> str:
    """What the paper has for a row: a mean with its spread, or a word."""
    paper = row["paper"]
    if paper is None:
        return "-"
    return paper["word"] if paper["mean"] is None else spelled(paper["mean"], paper["std"])


def ours(row: dict[str, Any]) -> str:
    """Our mean with its spread, the seeds if there are several, how many diverged."""
    if not row["runs"]:
        return NOT_RUN
    found = [spelled(row["mean"], row["std"])] if row["seeds"] else []
    found += [f"{row['seeds']} seeds"] * (row["seeds"] > 1)
    found += [f"{row['diverged']} of {len(row['runs'])} diverged"] * bool(row["diverged"])
    return ", ".join(found)


def radius(row: dict[str, Any]) -> str:
    """The mean over seeds of the final tokens' mean radius."""
    found = [run["radius"] for run in row["runs"] if run.get("radius") is not None]
    return f"{sum(found) / len(found):.2f}" if found else ""


def measured(results: Path, name: str) -> str:
    """A table of trained models; in the ablation also what a row gains over the nearest above it that has a mean."""
    record = read(results / SHORT / f"{name}.json")
    stacked, stated = name == "ablation", any(row["paper"] for row in record["rows"])
    head = ["row", *["paper"] * stated, "ours", *["gain over the row above"] * stacked, "mean radius"]
    cells, above = [head], None
    for row in record["rows"]:
        gain = "" if above is None or row["mean"] is None else f"{row['mean'] - above:+.2f}"
        cells.append([row["label"], *[in_paper(row)] * stated, ours(row), *[gain] * stacked, radius(row)])
        above = above if row["mean"] is None else row["mean"]
    return rows(cells) + (f"\n\n{record['order']}" if record["order"] else "")


def costs(results: Path) -> str:
    """Forward and backward of every system over the Euclidean ViT in both precisions, memory and size."""
    found = {(row["key"], row["precision"]): row for row in read(results / "cost.json")["rows"]}
    times = [f"{word}{unit}" for unit in ("", ", ms") for word in ("TF32", "float32")]
    cells = [["system", "paper", *times, "peak MiB", "parameters", "GFLOP an image"]]
    for key in dict.fromkeys(key for key, _ in found):
        both = [found[key, precision] for precision in ("tf32", "fp32")]
        row = both[1]
        paper = "-" if row["paper_ratio"] is None else f"{row['paper_ratio']:.2f}"
        ratios = [f"{each['both_ratio']:.2f}" for each in both]
        spent = [f"{each['forward_backward']['ms']:.2f}" for each in both]
        sizes = [f"{row['peak_mib']:,.0f}", f"{row['parameters']:,}", f"{row['gflops']:.2f}"]
        cells.append([row["label"], paper, *ratios, *spent, *sizes])
    return rows(cells)


def bought(results: Path) -> str:
    """What a system has learnt after so many steps and what these take, in the precision it was trained in."""
    found = {(row["key"], row["precision"]): row for row in read(results / "cost.json")["rows"]}
    cells = [["system", "top-1 %", "matrix products in", "ms a step", f"minutes of {STEPS:,} steps alone"]]
    for key, table, name, label in TRAINED:
        row = next(row for row in read(results / table)["rows"] if row["name"] == name)
        if not row["runs"]:
            cells.append([label, NOT_RUN, "", "", ""])
            continue
        products = row["runs"][0]["product_precision"]
        step = found[key, products]["step"]["ms"]
        cells.append([label, ours(row), PRODUCTS[products], f"{step:.2f}", f"{step * STEPS / 6e4:.1f}"])
    return rows(cells)


def page(text: str, results: Path = ROOT / "results") -> str:
    """The page with the tables as they stand now."""
    tables: dict[str, Callable[[Path], str]] = {name: partial(measured, name=name) for name in TABLES}
    tables |= {"cost": costs, "bought": bought}
    asked = {name: table for name, table in tables.items() if f"<!-- {name}: written by {SCRIPT} -->" in text}
    return filled(text, SCRIPT, {name: table(results) for name, table in asked.items()})


if __name__ == "__main__":
    rewrite(page, PAGE, README)
