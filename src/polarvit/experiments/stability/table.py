"""The table of stability: systems down, radii across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, resolved
from polarvit.tables import console, table

OFF = 0.1
"""A system that starts this share nearer or farther than it was told says where it starts."""


def cell(runs: Sequence[dict[str, Any]]) -> str:
    """What happened to the seeds of one system at one radius."""
    words = []
    for run in runs:
        if run["state"] == "diverged":
            words.append(f"NaN at step {run['diverged_at']}")
        else:
            noise = 1.0 if run["noise_after"] is None else run["noise_after"]
            told = ", noise only" if noise >= 1 else f", noise {100 * noise:.2g} %" if noise > 1e-3 else ""
            words.append(f"{run['state']}, {run['first_loss']:.2f} to {run['last_loss']:.2f}{told}")
        words[-1] += from_elsewhere(run)
    return "; ".join(words) or "-"


def from_elsewhere(run: dict[str, Any]) -> str:
    """Where the tokens of a run really start, if its own bounds or residuals keep them from the radius asked for."""
    asked, found = run["radius"], run["radius_before"]
    return f" (tokens from {found:.1f})" if asked and found and abs(found - asked) > OFF * asked else ""


def summary(systems: Sequence[Row], runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Every system that ran in a line, with the day and the machine of its newest run."""
    found = {}
    for row in systems:
        own = [run for run in runs if run["system"] == row.name]
        if not own:
            continue
        radii = dict.fromkeys(run["radius"] for run in own)
        lines = {radius: cell([run for run in own if run["radius"] == radius]) for radius in radii}
        told = ", ".join(text if radius is None else f"{radius:g}: {text}" for radius, text in lines.items())
        found[row.name] = {"value": told, "provenance": max((r["provenance"] for r in own), key=lambda o: o["date"])}
    return found


def show(systems: Sequence[Row], runs: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Print it."""
    radii = sorted({run["radius"] for run in runs if run["radius"] is not None})
    rows = []
    for row in systems:
        own = [run for run in runs if run["system"] == row.name]
        if own and own[0]["radius"] is None:
            rows.append([row.label, f"{cell(own)} (not pushed)", *[""] * (len(radii) - 1)])
        elif own:
            rows.append([row.label, *(cell([run for run in own if run["radius"] == radius]) for radius in radii)])
    images = resolved(systems[0], settings.seed, settings).train.batch_size
    title = f"Training from far out, float32, {settings.steps} steps of {images}: first and last loss"
    title += f" (chance {runs[0]['chance']:.2f})"
    note = "TOY SIZE on digits. " if settings.quick else ""
    note += "Noise over 0.1 %: how far logits in float32 are from those of the same weights in float64, after training."
    console().print(
        table(title, ["system", *([f"radius {r:g}" for r in radii] or ["loss"])], rows, caption=note, text=())
    )
