"""Iterations against the distance of the target, one panel for each precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polarvit.experiments.pictures import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, figure, label

COLOURS = {"polar": BLUE, "fgg": GREEN, "chen_bounded": ORANGE, "chen": VERMILION, "poincare": PURPLE}
LABELS = {
    ("polar", "unclipped"): (9.0, 225, "Polar-FC", "center", "top"),
    ("fgg", "unclipped"): (9.2, 500, "FGG-LNN", "left", "bottom"),
    ("chen", "unclipped"): (2.3, 2.4, "Chen et al.", "left", "center"),
    ("chen_bounded", "unclipped"): (3.25, 12, "Chen et al., sigmoid-bounded", "left", "center"),
    ("poincare", "unclipped"): (12.0, 27, "Poincaré, curvature \N{MINUS SIGN}0.01", "center", "top"),
}
CROSSES = {"fgg": 12}
"""Larger crosses for a layer whose others would hide it at the limit."""
BELOW = {"chen_bounded": 2.0}
"""Drawn below the others, which meet it at the limit."""


def draw(path: Path, races: list[dict[str, Any]], targets: list[float], limit: int) -> None:
    """Write the picture."""
    with figure(path, 12, 5.2, panels=2, sharey=True) as panels:
        for axes, precision, letter in zip(panels, ("float64", "float32"), "ab", strict=True):
            axes.set(yscale="log", ylim=(1.5, 1.6 * limit), xlim=(0.5, 18.5))
            axes.set_xlabel("distance of the target from the origin")
            axes.set_xticks(range(2, 19, 2))
            axes.set_title(f"({letter}) {precision}")
            axes.axhline(limit, color=GREY, linewidth=1)
            axes.text(0.7, 1.08 * limit, "limit of iterations", color=GREY, fontsize=9, va="bottom")
            for row in races:
                if row["precision"] == precision and row["layer"] in COLOURS:
                    draw_race(axes, row, targets, limit)
        panels[0].set_ylabel("iterations to reach the target (mean of 3 seeds)")
        panels[1].plot([], [], color=INK, linewidth=2.2, label="not clipped")
        panels[1].plot([], [], color=INK, linewidth=1.6, linestyle=(0, (4, 2)), label="gradient clipped at 1")
        panels[1].plot([], [], "x", color=INK, markersize=7, markeredgewidth=2, label="did not arrive")
        panels[1].legend(loc="lower right", frameon=False, fontsize=9.5)


def draw_race(axes: Any, row: dict[str, Any], targets: list[float], limit: int) -> None:
    """One layer: a line through its means, crosses at the limit where a seed did not arrive."""
    colour, free = COLOURS[row["layer"]], row["clipping"] == "unclipped"
    level = {"zorder": BELOW.get(row["layer"], 2.2)}
    axes.plot(
        targets,
        row["mean"],
        color=colour,
        linewidth=2.4 if free else 1.7,
        linestyle="-" if free else (0, (4, 2)),
        marker="o" if free else None,
        markersize=3.5,
        **level,
    )
    missed = [target for target, counts in zip(targets, row["iterations"], strict=True) if None in counts]
    at = [mean for mean, counts in zip(row["mean"], row["iterations"], strict=True) if None in counts]
    axes.plot(missed, at, "x", color=colour, markersize=CROSSES.get(row["layer"], 7), markeredgewidth=2, **level)
    if (row["layer"], row["clipping"]) in LABELS:
        x, y, text, side, height = LABELS[row["layer"], row["clipping"]]
        label(axes, x, y, text, colour, ha=side, va=height, zorder=5)
