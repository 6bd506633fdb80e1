"""Write what results/ hold into docs/segmentation.md and README.md: `python docs/segmentation_page.py`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from blocks import filled, rewrite, rows

from polarvit.experiments.catalogue.segmentation import PAPER, SETS
from polarvit.experiments.segmentation.corruptions import CLEAN
from polarvit.experiments.segmentation.pictures import PLACES
from polarvit.training import load

ROOT = Path(__file__).parent.parent
PAGE, README = ROOT / "docs" / "segmentation.md", ROOT / "README.md"
SCRIPT = "docs/segmentation_page.py"


def record(results: Path, name: str) -> dict[str, Any]:
    """The JSON of an experiment."""
    found: dict[str, Any] = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    return found


def measured(results: Path) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Sets on which something ran, and the rows that did, by name."""
    found = {row["name"]: row for row in record(results, "segmentation")["rows"] if row["runs"]}
    return [key for key in SETS if any(name.endswith(f"_{key}") for name in found)], found


def overview(results: Path) -> str:
    """Nets down, sets across: the paper's test Dice and ours."""
    keys, found = measured(results)
    cells = [["net", *(head for key in keys for head in (f"{SETS[key]}, paper", "ours"))]]
    for net, (label, values) in reversed(PAPER.items()):
        paper = dict(zip(SETS, values, strict=True))
        if any(f"{net}_{key}" in found for key in keys):
            cells.append([label, *(cell for key in keys for cell in (paper[key], ours(found.get(f"{net}_{key}"))))])
    return rows(cells)


def ours(row: dict[str, Any] | None) -> str:
    """Mean and spread over seeds, how many diverged."""
    if row is None:
        return "-"
    lost = [f"{row['diverged']} diverged"] if row["diverged"] else []
    spread = "" if row["std"] is None else f" ± {row['std']:.3f}"
    return ", ".join(([f"**{row['mean']:.3f}**{spread}"] if row["seeds"] else []) + lost)


def details(results: Path) -> str:
    """Every run: over orders of the images, by image, which step was kept."""
    keys, found = measured(results)
    head = ["set", "net", "seed", "Dice, 20 orders", "Dice per image", "IoU", "HD95, px (missed)", "best step"]
    cells = [head]
    for key in keys:
        for net, (label, _) in reversed(PAPER.items()):
            row = found.get(f"{net}_{key}", {"runs": []})
            for run in row["runs"]:
                if "diverged" in run:
                    cells.append([SETS[key], label, str(run["seed"]), "diverged", "", "", "", ""])
                    continue
                distance = f"{run['hausdorff95']:.1f} ({run['missed']} of {run['count']})"
                orders = f"{run['orders_mean']:.3f} ± {run['orders_std']:.3f}"
                scores = [orders, f"{run['image_dice']:.3f}", f"{run['iou']:.3f}", distance]
                cells.append([SETS[key], label, str(run["seed"]), *scores, kept(results, row, run["seed"])])
    return rows(cells)


def kept(results: Path, row: dict[str, Any], seed: int) -> str:
    """Which step's weights were the best in validation, of how many."""
    steps = load(row["recipe"]).train.steps
    path = results / "segmentation" / f"{steps}-steps" / f"{row['name']}-seed-{seed}.json"
    metrics = json.loads(path.read_text(encoding="utf-8"))["metrics"]
    return f"{metrics['kept_step']:,} of {metrics['steps']:,}"


def robustness(results: Path) -> str:
    """Clean test Dice and its mean over the strengths of each corruption."""
    points = record(results, "segmentation-robustness")["points"]
    cells = [["set", "net", "clean", *CLEAN]]
    for key in SETS:
        for net, (label, _) in reversed(PAPER.items()):
            own = [point for point in points if (point["set"], point["net"]) == (key, net)]
            if own:
                worse = [p for p in own if p["strength"] != CLEAN[p["corruption"]]]
                means = [fmean(p["dice"] for p in worse if p["corruption"] == name) for name in CLEAN]
                clean = next(p["dice"] for p in own if p["strength"] == CLEAN[p["corruption"]])
                cells.append([SETS[key], label, *(f"{value:.3f}" for value in (clean, *means))])
    return rows(cells)


def radii(results: Path) -> str:
    """Mean radius at the bottleneck of the polar net, by where the cell lies."""
    sets = record(results, "segmentation-pictures")["sets"]
    return rows([["set", *PLACES], *([SETS[key], *(f"{sets[key]['polar'][p]:.2f}" for p in PLACES)] for key in sets)])


def page(text: str, results: Path = ROOT / "results") -> str:
    """The page with the tables as they stand now."""
    return filled(
        text,
        SCRIPT,
        {
            "segmentation": overview(results),
            "segmentation-runs": details(results),
            "segmentation-robustness": robustness(results),
            "segmentation-radii": radii(results),
        },
    )


if __name__ == "__main__":
    rewrite(page, PAGE, README)
