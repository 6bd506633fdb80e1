"""Loss against steps, a panel for each starting radius, a curve for each system, dotted in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polarvit.experiments.pictures import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, figure
from polarvit.experiments.stability.table import named, started

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

OFF = 0.1
"""A system that starts this share nearer or farther than its panel says so."""


def draw(path: Path, record: dict[str, Any]) -> None:
    """Write the picture of a stability record; where a system diverged its curve ends in a cross."""
    radii = record["radii"]
    with figure(path, 3.3 * len(radii) + 1.2, 4.4, panels=len(radii), sharey=True, squeeze=False) as grid:
        panels = grid[0]
        ceiling = 8 * record["chance"]
        lowest = min((loss for run in record["runs"] for _, loss in run["losses"] if loss is not None), default=1.0)
        for axes, radius in zip(panels, radii, strict=True):
            own = [run for run in record["runs"] if run["seed"] == record["seed"]]
            shown = [run for run in own if run["radius"] == radius or run["system"] == "vit_tiny"]  # never pushed
            for run in shown:
                twin = run["precision"] == "fp64"
                colour, style, width = COLOURS[run["system"]]
                style = DOTTED if twin else style
                points = [(step, loss) for step, loss in run["losses"] if loss is not None]
                steps, losses = [p[0] for p in points], [min(p[1], ceiling) for p in points]
                above = 4 if run["system"] == "polar_vit_tiny" else 3
                told = "_" if twin else run["label"]  # matplotlib leaves such a label out
                axes.plot(steps, losses, color=colour, linestyle=style, linewidth=width, label=told, zorder=above)
                if run["state"] == "diverged":
                    at, size = (steps[-1], losses[-1]) if steps else (1, ceiling), 14 if style == "-" else 8
                    axes.plot(
                        at[0],
                        min(at[1], 0.7 * ceiling),
                        "x",
                        color=colour,
                        markersize=size,
                        markeredgewidth=2.4,
                        clip_on=False,
                        zorder=5,
                    )
            axes.axhline(record["chance"], color=GREY, linewidth=0.9)
            lines = [*filter(None, map(in_words, shown)), *beyond(record, own, radius)]
            place = {"fontsize": 7.5, "color": GREY, "ha": "right", "va": "top", "transform": axes.transAxes}
            axes.text(0.99, 0.99, "\n".join(lines), **place)
            axes.set(title=named(radius), xlabel="step", yscale="log", ylim=(0.85 * lowest, ceiling))
        panels[0].set_ylabel("training loss (x: not a number)")
        panels[-1].plot([], [], color=GREY, linestyle=DOTTED, label="dotted: from the same\nweights in float64")
        known = [axes.get_legend_handles_labels() for axes in panels]  # no panel need have all systems
        entries = {label: line for drawn, labels in known for line, label in zip(drawn, labels, strict=True)}
        panels[-1].legend(
            entries.values(), entries.keys(), loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=9
        )


def in_words(run: dict[str, Any]) -> str:
    """What a curve does not show: when a run broke, and where it started if not near the radius of its panel."""
    broke = f"NaN at step {run['diverged_at']}" if run["state"] == "diverged" else ""
    asked, found = run["radius"], run["radius_before"]
    near = asked is None or (found is not None and abs(found - asked) <= OFF * asked)
    words = ", ".join(filter(None, (broke, "" if near else started(run).strip(" ()"))))
    return f"{run['label']}: {words}" if words else ""


def beyond(record: dict[str, Any], runs: Sequence[dict[str, Any]], radius: float | None) -> list[str]:
    """Systems that have no curve in a panel because their points end before its radius."""
    ends = {run["label"]: record["edges"].get(run["system"], math.inf) for run in runs}
    return [f"{label}: cannot be pushed there" for label, end in ends.items() if radius is not None and radius > end]
