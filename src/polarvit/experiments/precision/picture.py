"""Error against radius, for the distance and for the centroid."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from polarvit.experiments.pictures import BLUE, GREEN, GREY, INK, PURPLE, VERMILION, figure, label

CURVES = {
    "ambient": (VERMILION, "-", 2.4),
    "geoopt": (PURPLE, (0, (1.2, 1.8)), 3.0),
    "hypll": (GREEN, (0, (5, 2)), 2.0),
    "polarvit": (BLUE, "-", 3.2),
}
LABELS = {
    "distance": {
        "ambient": (5.3, 2.5e-2, "ambient Lorentz\ncoordinates", "right"),
        "hypll": (10.2, 4.0, "hypll: its ball ends at 6.2", "left"),
        "polarvit": (12.5, 1.1e-4, "polarvit", "left"),
    },
    "centroid": {
        "ambient": (5.2, 2.5e-2, "ambient Lorentz\ncoordinates", "right"),
        "hypll": (9.4, 22.0, "hypll midpoint", "left"),
        "polarvit": (12.5, 2.4e-4, "polarvit", "left"),
    },
}
TITLES = {"distance": "Distance between points about 1.5 apart", "centroid": "Centroid of 64 points"}
NAN_OFFSETS = {"ambient": (9, -9), "hypll": (9, -4), "geoopt": (9, -4), "polarvit": (9, -4)}


def draw(path: Path, sweep: dict[str, Any]) -> None:
    """Write the picture of a sweep."""
    with figure(path, 11, 4.9, panels=2, sharey=True) as panels:
        for axes, (operation, title) in zip(panels, TITLES.items(), strict=True):
            draw_panel(axes, sweep, operation)
            axes.set_title(title)
        panels[0].set_ylabel("median error in float32")
        if "geoopt" in sweep["errors"]:
            value = sweep["median_returned_distance"]["geoopt"][sweep["radii"].index(12.0)]
            label(
                panels[0],
                10.2,
                55.0,
                f"geoopt Lorentz: answers {value:.0f}".replace("-", "\N{MINUS SIGN}"),
                PURPLE,
                va="center",
            )


def draw_panel(axes: Any, sweep: dict[str, Any], operation: str) -> None:
    """One operation: a curve for each method up to where most answers are NaN, and the resolution limit."""
    radii = sweep["radii"]
    axes.set(yscale="log", xlim=(0, 20), ylim=(1e-8, 4e2), xlabel="radius r (distance from the origin)")
    axes.set_xticks(range(0, 21, 2))
    axes.axhspan(1, 4e2, color="#f4f0ec", zorder=0)
    axes.text(0.4, 2.2, "error larger than 1", color=GREY, fontsize=9.5, va="center")
    axes.plot(radii, sweep["resolution_limit"], color=INK, linestyle=(0, (4, 3)), linewidth=1.3)
    label(axes, 13.2, 7e-2, "resolution limit\nof stored points", INK, ha="right", va="center", fontweight="normal")
    for name, (colour, style, width) in CURVES.items():
        medians = [point["median"] for point in sweep["errors"].get(name, {}).get(operation, [])]
        if not medians:
            continue
        end = next((i for i, value in enumerate(medians) if not math.isfinite(value)), len(medians))
        axes.plot(radii[:end], medians[:end], color=colour, linestyle=style, linewidth=width)
        if 0 < end < len(medians):
            last = radii[end - 1], medians[end - 1]
            axes.plot(*last, "x", color=colour, markersize=10, markeredgewidth=2.6)
            axes.annotate("NaN", last, NAN_OFFSETS[name], textcoords="offset points", color=colour, fontweight="bold")
        if name in LABELS[operation]:
            x, y, text, side = LABELS[operation][name]
            label(axes, x, y, text, colour, ha=side, va="center")
