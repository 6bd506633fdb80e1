"""The tree on the Poincare disk, and what each library keeps and trains of it as its leaves move out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from polarvit.experiments.pictures import BLUE, GREEN, GREY, INK, PALE, PURPLE, VERMILION, figure, label
from polarvit.experiments.trees.tree import F64, Tree, at, place
from polarvit.geometry import PolarPoint, gyroadd, gyroneg, gyroscale, to_ball

SHOWN = {
    "polar_64": (GREY, (0, (1, 1.5)), "polarvit, float64"),
    "geoopt_lorentz_64": (PURPLE, (0, (4, 2)), "geoopt Lorentz, float64"),
    "geoopt_ball": (GREEN, "-", "geoopt ball, float32"),
    "geoopt_lorentz": (VERMILION, "-", "geoopt Lorentz, float32"),
    "polar": (BLUE, "-", "polarvit, float32"),
}
DRAWN = Tree(2, 7)


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the picture."""
    with figure(path, 13.2, 4.7, panels=3) as (left, middle, right):
        disk(left)
        curves(middle, rows, "kept", "worst")
        middle.set(yscale="log", ylim=(0.85, 300), title="(b) placed: worst distortion")
        middle.set_yticks([1, 2, 5, 10, 100], ["1", "2", "5", "10", "100"])
        curves(right, rows, "trained", "average")
        right.set(yscale="log", ylim=(0.018, 1), title="(c) trained: average distortion")
        right.set_yticks([0.02, 0.05, 0.1, 0.2, 0.5, 1], ["2 %", "5 %", "10 %", "20 %", "50 %", "100 %"])
        for axes in (middle, right):
            axes.set_xlabel("largest radius of the tree")
            axes.minorticks_off()
        place_labels(middle, right, {row["space"] for row in rows})


def disk(axes: Any) -> None:
    """The tree with edges of length 1, its edges geodesics."""
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title("(a) 255 nodes, edges of length 1")
    turn = np.linspace(0, 2 * np.pi, 400)
    axes.fill(np.cos(turn), np.sin(turn), color="#fafafa")
    axes.plot(np.cos(turn), np.sin(turn), color=INK, linewidth=1.2)
    points, parents = place(DRAWN, 1.0), torch.tensor(DRAWN.parents[1:])
    child, parent = at(points, slice(1, None)), at(points, parents)
    for depth, level in enumerate(DRAWN.levels[1:], 1):
        for node in level:
            way = geodesic(at(parent, node - 1), at(child, node - 1))
            axes.plot(way[:, 0], way[:, 1], color=BLUE, linewidth=2.0 - 0.22 * depth, solid_capstyle="round")
    dots = to_ball(points).numpy()
    sizes = [28 * 0.5**depth for depth, level in enumerate(DRAWN.levels) for _ in level]
    axes.scatter(dots[:, 0], dots[:, 1], s=sizes, color=INK, linewidths=0, zorder=3)


def geodesic(p: PolarPoint, q: PolarPoint) -> np.ndarray:
    """Points between p and q, in the ball: p (+) t (x) ((-p) (+) q)."""
    way = gyroscale(gyroadd(gyroneg(p), q), torch.linspace(0, 1, 24, dtype=F64))
    found: np.ndarray = to_ball(gyroadd(p, way)).numpy()
    return found


def curves(axes: Any, rows: list[dict[str, Any]], part: str, what: str) -> None:
    """A line for each library up to the last radius it survives; a cross where the next one gives NaN."""
    axes.axvspan(17.3, 30, color=PALE, alpha=0.5, linewidth=0)
    axes.set_xlim(0, 28)
    for key, (colour, dashes, _) in SHOWN.items():
        own = [row for row in rows if row["space"] == key]
        fine = [row for row in own if row[part] is not None and not row[part]["lost"]]
        xs, ys = [row["largest_radius"] for row in fine], [row[part][what] for row in fine]
        axes.plot(xs, ys, color=colour, linestyle=dashes, linewidth=2.2, marker="o", markersize=3.5)
        if len(fine) < len(own) and ys:
            axes.plot(xs[-1:], ys[-1:], "x", color=colour, markersize=10, markeredgewidth=2.4)


def place_labels(middle: Any, right: Any, present: set[str]) -> None:
    """Names beside the curves; what a cross and the grey field mean."""
    spots = (
        (middle, "geoopt_ball", 9.9, 18.0, "left"),
        (middle, "geoopt_lorentz", 10.0, 2.0, "left"),
        (middle, "polar", 4.2, 60.0, "left"),
        (middle, "geoopt_lorentz_64", 18.6, 0.93, "right"),
        (middle, "polar_64", 27.6, 1.25, "right"),
        (right, "geoopt_ball", 9.9, 0.29, "left"),
        (right, "geoopt_lorentz", 3.9, 0.165, "left"),
        (right, "polar", 14.0, 0.058, "left"),
        (right, "geoopt_lorentz_64", 12.0, 0.041, "right"),
        (right, "polar_64", 20.6, 0.024, "right"),
    )
    for axes, key, x, y, side in spots:
        if key in present:
            colour, _, text = SHOWN[key]
            label(axes, x, y, text, colour, ha=side, va="center", fontsize=9)
    middle.text(17.6, 250, "past what\na float32\ndirection\ncan hold", color=GREY, fontsize=8.5, va="top")
    right.plot([], [], "x", color=INK, markersize=9, markeredgewidth=2.2, label="NaN from the next radius on")
    right.legend(loc="upper left", frameon=False, fontsize=9)
