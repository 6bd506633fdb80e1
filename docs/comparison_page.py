"""Write what results/ hold into docs/comparison.md and README.md: `python docs/comparison_page.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from blocks import filled, rows

from polarvit.experiments.cifar100.table import FOLDER

ROOT = Path(__file__).parent.parent
PAGE, README = ROOT / "docs" / "comparison.md", ROOT / "README.md"
SCRIPT = "docs/comparison_page.py"
LENGTH = "11710-steps"
TABLES = ("ablation", "position", "hexformer-defect", "radius-rule")
TRAINED = (
    ("vit_tiny", "cifar100-sweep", "vit_tiny-lr-2e-3", "Euclidean ViT, the best of four rates"),
    ("lorentz_vit_tiny", "ablation", "lorentz_vit", "Lorentz ViT, ambient"),
    ("hexformer_tiny", "hexformer-defect", "sound", "HexFormer"),
    ("polar_vit_tiny", "ablation", "polar_vit", "Polar-ViT"),
)
"""Systems of which there are a run of that length and a cost: their names, and the table and row of the run."""


def record(results: Path, name: str) -> dict[str, Any]:
    """The JSON of an experiment; of the tables here, at that length."""
    folder = {**dict.fromkeys(TABLES, Path(FOLDER, LENGTH)), "cifar100-sweep": Path(FOLDER)}.get(name, Path())
    found: dict[str, Any] = json.loads((results / folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def row_of(results: Path, name: str, key: str) -> dict[str, Any]:
    """One row of a table."""
    row: dict[str, Any] = next(row for row in record(results, name)["rows"] if row["name"] == key)
    return row


def spelled(value: dict[str, Any]) -> str:
    """A mean with its spread, if it has one."""
    if value["mean"] is None:
        return value.get("word") or "-"
    return f"{value['mean']:.2f}" + ("" if value["std"] is None else f" ± {value['std']:.2f}")


def of_paper(value: dict[str, Any] | None) -> str:
    return "-" if value is None else spelled(value)


def measured(results: Path, name: str) -> str:
    """A table of trained models: the paper's value, ours, what the row above is short of it, and the radius."""
    found = record(results, name)
    cells, above = [["row", "paper", "ours", "less the row above", "mean radius"]], None
    for row in found["rows"]:
        if not row["runs"]:
            cells.append([row["label"], of_paper(row["paper"]), "not yet run", "", ""])
            continue
        step = "" if above is None or row["mean"] is None else f"{row['mean'] - above:+.2f}"
        above = row["mean"]
        radii = [run["radius"] for run in row["runs"] if run.get("radius") is not None]
        radius = f"{sum(radii) / len(radii):.2f}" if radii else ""
        cells.append([row["label"], of_paper(row["paper"]), f"**{spelled(row)}**", step, radius])
    if name != "ablation":  # only there does each row change the one above
        cells = [[*line[:3], line[4]] for line in cells]
    seeds = sorted({row["seeds"] for row in found["rows"] if row["runs"]})
    told = f"{' or '.join(map(str, seeds))} seed{'s' * (seeds != [1])} of each row. {found['order']}".strip()
    return f"{rows(cells)}\n\n{told}"


def costs(results: Path) -> str:
    """Forward and backward of every system over the Euclidean ViT, in both precisions, and memory."""
    found = record(results, "cost")["rows"]
    head = ["system", "paper", "TF32", "float32", "TF32, ms", "float32, ms", "peak MiB", "parameters", "GFLOP an image"]
    cells = [head]
    for row in (row for row in found if row["precision"] == "fp32"):
        twin = next(each for each in found if each["key"] == row["key"] and each["precision"] == "tf32")
        paper = "-" if row["paper_ratio"] is None else f"{row['paper_ratio']:.2f}"
        ratios = [f"{each['both_ratio']:.2f}" for each in (twin, row)]
        times = [f"{each['forward_backward']['ms']:.2f}" for each in (twin, row)]
        sizes = [f"{row['peak_mib']:,.0f}", f"{row['parameters']:,}", f"{row['gflops']:.2f}"]
        cells.append([row["label"], paper, *ratios, *times, *sizes])
    return rows(cells)


def bought(results: Path) -> str:
    """What a system has learnt after so many steps, and what they took: at the precision it was trained in."""
    found = {(row["key"], row["precision"]): row for row in record(results, "cost")["rows"]}
    cells = [["system", "top-1 %", "products", "ms a step", "minutes of 11,710 steps"]]
    for key, table, row, label in TRAINED:
        run = row_of(results, table, row)
        products = run["runs"][0]["product_precision"]
        step = found[key, products]["step"]["ms"]
        word = {"fp32": "float32", "tf32": "TF32"}[products]
        cells.append([label, f"**{spelled(run)}**", word, f"{step:.2f}", f"{step * 11710 / 6e4:.1f}"])
    return rows(cells)


def page(text: str, results: Path = ROOT / "results") -> str:
    """The page with the tables as they stand now."""
    written = {name: measured(results, name) for name in TABLES}
    return filled(text, SCRIPT, {**written, "cost": costs(results), "bought": bought(results)})


if __name__ == "__main__":
    for file in (PAGE, README):
        file.write_text(page(file.read_text(encoding="utf-8")), encoding="utf-8")
