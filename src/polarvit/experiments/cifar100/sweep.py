"""Learning rates before any claim: four for the Euclidean twin, two for Polar-ViT, a tenth of the steps.

Long runs use the paper's rate for Polar-ViT and the best of these for the twin; nothing else is chosen here. The runs
of Polar-ViT were made when its horoshift rates started at 1, its position table did not decay and calibration moved
phi_0.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from polarvit.experiments.cifar100.table import FOLDER
from polarvit.experiments.registry import Settings
from polarvit.experiments.run_records import all_finished
from polarvit.experiments.runs import Result, Row, study
from polarvit.tables import console

NAME = "cifar100-sweep"
SHORT = ("train.steps=11710", "optim.warmup=1171")
"""A tenth of the recipe, with its share of warm-up."""
RATE_1 = "model.options.rate=1.0"
OFFSET = "model.options.calibration=offset"
"""Calibration moves phi_0 and its anchor, as it did before it scaled W."""
THEN = (RATE_1, "optim.decay_tables=false", OFFSET)
"""What was otherwise when Polar-ViT's runs were made."""


def at_rate(model: str, label: str, recipe: str, rate: str, *changes: str) -> Row:
    """A row of the sweep."""
    return Row(f"{model}-lr-{rate}", f"{label}, lr {rate}", recipe, (*SHORT, f"optim.lr={rate}", *changes))


ROWS = (
    *(at_rate("vit_tiny", "Euclidean ViT-Tiny", "cifar100_vit_tiny", rate) for rate in ("5e-4", "1e-3", "2e-3")),
    at_rate("vit_tiny", "Euclidean ViT-Tiny", "cifar100_vit_tiny", "4.15e-3"),  # HexFormer's released value
    at_rate("polar_vit_tiny", "Polar-ViT-Tiny", "cifar100_polar_vit_tiny", "1.5e-3", *THEN),
    at_rate("polar_vit_tiny", "Polar-ViT-Tiny", "cifar100_polar_vit_tiny", "3e-3", *THEN),  # the paper's
)


def placed(settings: Settings, folder: str) -> tuple[Settings, Path]:
    """Settings whose table lies in results/cifar100, and the folder of its records there."""
    home = settings.out / FOLDER
    return replace(settings, out=home), home / folder


def run(settings: Settings) -> list[str]:
    """Train every rate, print the table and the best rate of each model, write records; returns what failed."""
    settings, records = placed(settings, "sweep")
    note = "4.15e-3 is HexFormer's rate for the twin, 3e-3 the paper's for Polar-ViT."
    failures = study(NAME, "CIFAR-100, learning rates", ROWS, settings, note=note, records=records)
    for line in best(all_finished(NAME, ROWS, settings, records)):
        console().print(line)
    return failures


def best(results: list[Result]) -> list[str]:
    """The best rate of each model so far, over the seeds that every one of its finished rates has."""
    lines = []
    for model in ("vit_tiny", "polar_vit_tiny"):
        own = [result for result in results if result.row.name.startswith(f"{model}-lr-")]
        seeds = [{result.seed for result in own if result.row == row} for row in {result.row for result in own}]
        common = set.intersection(*seeds) if seeds else set()
        scores: dict[str, list[float]] = {}
        for result in own:
            if result.seed in common:
                scores.setdefault(result.row.name.rpartition("-lr-")[2], []).append(result.top1 or 0.0)
        if scores:
            rate, values = max(scores.items(), key=lambda pair: sum(pair[1]))
            mean = sum(values) / len(values)
            tried = f"{len(scores)} of {sum(row.name.startswith(f'{model}-lr-') for row in ROWS)} rates"
            lines.append(
                f"{model}: best lr {rate}, {mean:.2f} % ({tried}, seeds {', '.join(map(str, sorted(common)))})"
            )
    return lines
