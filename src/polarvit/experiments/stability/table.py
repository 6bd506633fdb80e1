"""The table of stability: systems down, radii across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, resolved
from polarvit.tables import console, table

COLLAPSED = 1e-3
"""A model whose logits differ between images by less than this share of their size tells images apart no more."""


def named(radius: float | None) -> str:
    """The head of a column."""
    return "as it is" if radius is None else f"radius {radius:g}"


def cell(runs: Sequence[dict[str, Any]]) -> str:
    """What happened to the seeds of one system at one radius."""
    words = []
    for run in runs:
        if run["state"] == "diverged":
            words.append(f"NaN at step {run['diverged_at']}")
        else:
            words.append(f"{run['state']}, {run['first_loss']:.2f} to {run['last_loss']:.2f}{doubt(run)}")
        words[-1] += started(run)
    return "; ".join(words) or "-"


def doubt(run: dict[str, Any]) -> str:
    """What speaks against the logits of a run that went on: they are all alike, or rounding."""
    if run["spread_after"] is not None and run["spread_after"] < COLLAPSED:
        return ", collapsed"
    noise = 1.0 if run["noise_after"] is None else run["noise_after"]
    return ", noise only" if noise >= 1 else f", noise {100 * noise:.2g} %" if noise > 1e-3 else ""


def started(run: dict[str, Any]) -> str:
    """Where the tokens of a run started: bounds and residuals may keep them from the radius that layers were given."""
    if run["system"] == "vit_tiny":
        return ""
    found = run["radius_before"]
    return " (not finite before training)" if found is None else f" (from {found:.1f})"


def summary(systems: Sequence[Row], runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Every system that ran in a line, with the day and the machine of its newest run."""
    found = {}
    for row in systems:
        own = [run for run in runs if run["system"] == row.name]
        if not own:
            continue
        radii = dict.fromkeys(run["radius"] for run in own)
        lines = {radius: cell([run for run in own if run["radius"] == radius]) for radius in radii}
        told = ", ".join(f"{'as it is' if radius is None else f'{radius:g}'}: {text}" for radius, text in lines.items())
        found[row.name] = {"value": told, "provenance": max((r["provenance"] for r in own), key=lambda o: o["date"])}
    return found


def show(systems: Sequence[Row], runs: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Print it."""
    radii = sorted({run["radius"] for run in runs}, key=lambda radius: radius or 0)
    rows = []
    for row in systems:
        own = [run for run in runs if run["system"] == row.name]
        if own:
            rows.append([row.label, *(cell([run for run in own if run["radius"] == radius]) for radius in radii)])
    images = resolved(systems[0], settings.seed, settings).train.batch_size
    title = f"Training from far out, float32, {settings.steps} steps of {images}: first and last loss"
    title += f" (chance {runs[0]['chance']:.2f})"
    note = "TOY SIZE on digits. " if settings.quick else "Each at the rate of its recipe. "
    note += (
        "In brackets: mean radius of the tokens before training. Noise over 0.1 %: how "
        "far logits in float32 are from those of the same weights in float64, after training. Collapsed: logits hardly "
        "differ between images."
    )
    console().print(table(title, ["system", *map(named, radii)], rows, caption=note, text=()))
