"""Loss against steps, a panel for each starting radius, a curve for each system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polarvit.experiments.pictures import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, figure

COLOURS = {
    "polar_vit_tiny": (BLUE, "-", 3.0),
    "vit_tiny": (INK, (0, (1, 1.5)), 1.6),
    "lorentz_vit_tiny": (VERMILION, "-", 2.2),
    "hexformer_tiny": (PURPLE, "-", 1.8),
    "hexformer_hybrid_tiny": (PURPLE, (0, (4, 2)), 1.8),
    "lvit_tiny": (GREEN, "-", 1.8),
    "hvt_tiny": (ORANGE, "-", 1.8),
}


def draw(path: Path, record: dict[str, Any]) -> None:
    """Write the picture of a stability record; where a system diverged its curve ends in a cross."""
    radii = record["radii"]
    with figure(path, 3.3 * len(radii) + 1.2, 4.4, panels=len(radii), sharey=True, squeeze=False) as grid:
        panels = grid[0]
        ceiling = 8 * record["chance"]
        for axes, radius in zip(panels, radii, strict=True):
            for run in record["runs"]:
                if run["seed"] != record["seed"] or run["radius"] not in (radius, None):
                    continue
                colour, style, width = COLOURS[run["system"]]
                points = [(step, loss) for step, loss in run["losses"] if loss is not None]
                steps, losses = [p[0] for p in points], [min(p[1], ceiling) for p in points]
                axes.plot(steps, losses, color=colour, linestyle=style, linewidth=width, label=run["label"])
                if run["state"] == "diverged":
                    at = (steps[-1], losses[-1]) if steps else (1, ceiling)
                    axes.plot(*at, "x", color=colour, markersize=10, markeredgewidth=2.6)
            axes.axhline(record["chance"], color=GREY, linewidth=0.9)
            axes.set(title=f"radius {radius:g}", xlabel="step", yscale="log", ylim=(0.25 * record["chance"], ceiling))
        panels[0].set_ylabel("training loss (x: not a number)")
        panels[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=9)
