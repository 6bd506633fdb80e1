"""Loss against steps, a panel for each starting radius, a curve for each system, dotted in float64.

Curves are running means, cut off above. Of several seeds the first is drawn strong and the others thin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from polarvit.experiments.pictures import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, figure
from polarvit.experiments.stability.table import doubt, named, started

COLOURS: dict[str, tuple[str, Any, float]] = {
    "polar_vit_tiny": (BLUE, "-", 3.0),
    "vit_tiny": (INK, "-.", 1.6),
    "lorentz_vit_tiny": (VERMILION, "-", 2.2),
    "hexformer_tiny": (PURPLE, "-", 1.8),
    "hexformer_hybrid_tiny": (PURPLE, (0, (4, 2)), 1.8),
    "lvit_tiny": (GREEN, "-", 1.8),
    "hvt_tiny": (ORANGE, "-", 1.8),
}
DOTTED = (0, (1, 1.2))
"""How a twin in float64 is drawn."""

HALF = 4
"""Points on either side of one over which its mean is taken: of 100."""
HIGHEST = 1.25
"""Upper end of the panels, in units of the loss of chance: what begins higher comes in from above."""
OFF = 0.1
"""A system that starts this share nearer or farther than its panel says so."""


def draw(path: Path, record: dict[str, Any]) -> None:
    """Write the picture of a stability record; where a system diverged its curve ends in a cross."""
    radii = record["radii"]
    with figure(path, 3.3 * len(radii) + 1.2, 4.4, panels=len(radii), sharey=True, squeeze=False) as grid:
        panels = grid[0]
        ceiling = HIGHEST * record["chance"]
        lowest = min((loss for run in record["runs"] for loss in smoothed(run["losses"])[1]), default=1.0)
        for axes, radius in zip(panels, radii, strict=True):
            own = [run for run in record["runs"] if run["seed"] == record["seed"]]
            shown = [run for run in own if run["radius"] == radius or run["system"] == "vit_tiny"]  # never pushed
            more = [run for run in record["runs"] if run["radius"] == radius and run["seed"] != record["seed"]]
            for run in [*more, *shown]:
                twin, thin = run["precision"] == "fp64", run["seed"] != record["seed"]
                colour, style, width = COLOURS[run["system"]]
                style = DOTTED if twin else style
                steps, losses = smoothed(run["losses"])
                above = 4 if run["system"] == "polar_vit_tiny" else 3
                look = {"linewidth": 0.7, "alpha": 0.45, "zorder": 2} if thin else {"linewidth": width, "zorder": above}
                told = "_" if twin or thin else run["label"]  # matplotlib leaves such a label out
                axes.plot(steps, losses, color=colour, linestyle=style, label=told, **look)
                if run["state"] == "diverged":
                    at, size = (steps[-1], losses[-1]) if steps else (1, ceiling), 14 if style == "-" else 8
                    axes.plot(
                        at[0],
                        min(at[1], 0.95 * ceiling),
                        "x",
                        color=colour,
                        markersize=size,
                        markeredgewidth=2.4,
                        clip_on=False,
                        zorder=5,
                    )
            axes.axhline(record["chance"], color=GREY, linewidth=0.9)
            lines = [*filter(None, map(in_words, shown)), *beyond(record, own, radius)]
            place = {"fontsize": 6.6, "color": GREY, "ha": "right", "va": "top", "transform": axes.transAxes}
            paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}
            axes.text(0.99, 0.99, "\n".join(lines), bbox=paper if lines else None, zorder=6, **place)
            axes.set(title=named(radius), xlabel="step", ylim=(0.98 * lowest, ceiling))
        panels[0].set_ylabel("training loss (x: not a number)")
        panels[-1].plot([], [], color=GREY, linestyle=DOTTED, label="dotted: from the same\nweights in float64")
        known = [axes.get_legend_handles_labels() for axes in panels]  # no panel need have all systems
        entries = {label: line for drawn, labels in known for line, label in zip(drawn, labels, strict=True)}
        panels[-1].legend(
            entries.values(), entries.keys(), loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=9
        )


def smoothed(losses: Sequence[tuple[int, float | None]]) -> tuple[list[int], list[float]]:
    """Steps, and the mean of the losses around each."""
    points = [(step, loss) for step, loss in losses if loss is not None]
    around = [points[max(0, i - HALF) : i + HALF + 1] for i in range(len(points))]
    return [step for step, _ in points], [fmean(loss for _, loss in part) for part in around]


def in_words(run: dict[str, Any]) -> str:
    """What a curve does not show: when a run broke, what speaks against it, and where it started if not near."""
    broke = f"NaN at step {run['diverged_at']}" if run["state"] == "diverged" else ""
    asked, found = run["radius"], run["radius_before"]
    near = asked is None or (found is not None and abs(found - asked) <= OFF * asked)
    doubted = doubt(run).strip(", ") if run["state"] != "diverged" and run["precision"] == "fp32" else ""
    words = ", ".join(filter(None, (broke, "" if near else started(run).strip(" ()"), doubted)))
    return f"{run['label']}: {words}" if words else ""


def beyond(record: dict[str, Any], runs: Sequence[dict[str, Any]], radius: float | None) -> list[str]:
    """Systems that have no curve in a panel because their points end before its radius."""
    ends = {run["label"]: record["edges"].get(run["system"], math.inf) for run in runs}
    return [f"{label}: cannot be pushed there" for label, end in ends.items() if radius is not None and radius > end]
