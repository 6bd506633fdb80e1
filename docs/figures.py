"""Draw the pictures of docs/numerics.md into docs/images: `python docs/figures.py`.

results/precision.png is drawn by `polarvit precision`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polarvit.experiments.pictures import BLUE, GREEN, GREY, INK, PALE, PURPLE, VERMILION, figure, label
from polarvit.geometry import (
    PolarPoint,
    PolarTangent,
    ambient,
    distance,
    exp_map,
    gyroadd,
    gyroneg,
    gyroscale,
    horoshift,
    to_ambient,
    to_ball,
)

IMAGES = Path(__file__).parent / "images"
F64 = torch.float64
TURN = np.linspace(0, 2 * np.pi, 400)


def point(radius: float, angle: float) -> PolarPoint:
    """A point of the hyperbolic plane."""
    return PolarPoint(torch.tensor(radius, dtype=F64), torch.tensor([math.cos(angle), math.sin(angle)], dtype=F64))


def disk(axes: Any) -> None:
    """The empty Poincare disk."""
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12))
    axes.fill(np.cos(TURN), np.sin(TURN), color="#fafafa", zorder=0)
    axes.plot(np.cos(TURN), np.sin(TURN), color=INK, linewidth=1.4)


def geodesic(p: PolarPoint, q: PolarPoint, steps: int = 120) -> np.ndarray:
    """Points on the geodesic from p to q, in the ball: p (+) t (x) ((-p) (+) q)."""
    away = gyroadd(gyroneg(p), q)
    path = gyroadd(p, gyroscale(away, torch.linspace(0, 1, steps, dtype=F64)))
    return to_ball(path).numpy()


def draw_polar() -> None:
    """Polar coordinates, a horospherical shift, and two far points, in the Poincare disk."""
    with figure(IMAGES / "polar.png", 12.6, 4.5, panels=3) as (left, middle, right):
        draw_coordinates(left)
        draw_shift(middle)
        draw_far_points(right)


def draw_coordinates(axes: Any) -> None:
    """Radius, direction, and the geodesic between two points."""
    disk(axes)
    for radius in (1, 2, 3, 4):
        size = math.tanh(radius / 2)
        axes.plot(size * np.cos(TURN), size * np.sin(TURN), color="#cfcfcf", linewidth=1.0)
        axes.text(0, -size, f"r = {radius}" if radius < 4 else "4", color=GREY, fontsize=8.5, ha="center", va="bottom")
    p, q = point(2.6, math.radians(20)), point(2.2, math.radians(128))
    x, y = to_ball(p).numpy(), to_ball(q).numpy()
    for spot in (x, y):
        axes.plot([0, spot[0]], [0, spot[1]], color=BLUE, linewidth=2.4)
    arc = np.linspace(math.radians(20), math.radians(128), 60)
    axes.plot(0.17 * np.cos(arc), 0.17 * np.sin(arc), color=GREEN, linewidth=1.8)
    label(axes, 0.05, 0.2, "angle", GREEN, ha="center", va="bottom", fontsize=9)
    path = geodesic(p, q)
    axes.plot(path[:, 0], path[:, 1], color=VERMILION, linewidth=2.4)
    label(axes, 0.22, 0.52, f"geodesic, length {distance(p, q).item():.1f}", VERMILION, ha="center", fontsize=9.5)
    label(axes, 0.5, 0.08, "radius 2.6", BLUE, ha="center", va="center", rotation=20, fontsize=9.5)
    label(axes, -0.36, 0.27, "radius 2.2", BLUE, ha="center", va="center", rotation=-52, fontsize=9.5)
    for spot in (x, y, np.zeros(2)):
        axes.plot(*spot, "o", color=INK, markersize=6, zorder=5)
    axes.text(0.03, -0.09, "origin", fontsize=9)
    axes.set_title("How far, and which way")


def draw_shift(axes: Any) -> None:
    """Three horospheres around one ideal point, and the origin shifted along its own."""
    disk(axes)
    for level in (0.25, 0.5, 0.75):
        axes.plot(1 - level + level * np.cos(TURN), level * np.sin(TURN), color=PURPLE, linewidth=1.5)
    axes.plot(1, 0, "o", color=PURPLE, markersize=8, zorder=5, clip_on=False)
    label(axes, 0.73, 0.0, "ideal\npoint", PURPLE, ha="center", va="center", fontsize=9)
    label(axes, -0.46, 0.1, "horosphere", PURPLE, ha="left", va="bottom", fontsize=9.5)
    places = {1.0: (8, -13), 2.0: (0, -16), 4.0: (-12, -14)}
    for shift in (-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0):
        spot = to_ball(horoshift(point(0.0, 0.0), shift)).numpy()
        axes.plot(*spot, "o", color=BLUE if shift else INK, markersize=6, zorder=5)
        if shift in places:
            text = f"t = {shift:g}"
            axes.annotate(text, spot, places[shift], textcoords="offset points", fontsize=9, color=BLUE, ha="center")
    axes.annotate("origin", (0, 0), (-8, -4), textcoords="offset points", fontsize=9, ha="right")
    axes.set_title("A horospherical shift")


def draw_far_points(axes: Any) -> None:
    """Two points 1 apart at radius 10, under a magnifying glass."""
    disk(axes)
    pair = unit_pair(10.0)
    x, s = to_ambient(pair).float(), pair.map(torch.Tensor.float)
    wrong = ambient.distance(x[0], x[1]).item()
    good = distance(*(PolarPoint(s.radius[i], s.direction[i]) for i in range(2))).item()
    spot, centre, size = np.array([math.cos(0.6), math.sin(0.6)]), np.array([-0.15, -0.12]), 0.62
    across = np.array([-math.sin(0.6), math.cos(0.6)])
    for side in (-1, 1):
        end = centre + side * size * across
        axes.plot([spot[0], end[0]], [spot[1], end[1]], color=GREY, linewidth=0.8)
    axes.fill(centre[0] + size * np.cos(TURN), centre[1] + size * np.sin(TURN), color="white", zorder=2)
    axes.plot(centre[0] + size * np.cos(TURN), centre[1] + size * np.sin(TURN), color=GREY, linewidth=1.2, zorder=3)
    axes.plot(*(0.999 * spot), "o", color=INK, markersize=6, zorder=5)
    left, right = (centre + np.array([side, 0.18]) for side in (-0.26, 0.26))
    axes.plot([left[0], right[0]], [left[1], right[1]], color=GREY, linewidth=1.6, zorder=4)
    for place in (left, right):
        axes.plot(*place, "o", color=INK, markersize=7, zorder=5)
    axes.text(centre[0], centre[1] + 0.23, "distance 1", ha="center", fontsize=9.5, zorder=5)
    axes.text(centre[0], centre[1] - 0.06, "float32 answers", ha="center", fontsize=9, color=GREY, zorder=5)
    for height, text, colour in ((-0.22, f"ambient: {wrong:.2f}", VERMILION), (-0.38, f"polar: {good:.4f}", BLUE)):
        label(axes, centre[0], centre[1] + height, text, colour, ha="center", fontsize=10.5, zorder=6)
    axes.set_title("Two points at radius 10")


def unit_pair(radius: float) -> PolarPoint:
    """Two points [2] of the plane at `radius`, 1 apart."""
    angle = 2 * math.asin(math.sinh(0.5) / math.sinh(radius))
    turned = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], dtype=F64)
    return PolarPoint(torch.full((2,), radius, dtype=F64), turned)


def draw_cancellation() -> None:
    """The two products of the ambient inner product on the grid of float32 numbers."""
    x = to_ambient(unit_pair(10.0))
    time, space = (x[0, 0] * x[1, 0]).item(), (x[0, 1:] * x[1, 1:]).sum().item()
    y = x.float()
    time32, space32 = (y[0, 0] * y[1, 0]).item(), (y[0, 1:] * y[1, 1:]).sum().item()
    ticks = np.arange(min(space32, time32) - 8, max(space32, time32) + 9, 8)
    with figure(IMAGES / "cancellation.png", 9.6, 2.7) as axes:
        axes.hlines(0, ticks[0] - 3, ticks[-1] + 3, color=GREY, linewidth=1)
        axes.vlines(ticks, -0.12, 0.12, color=GREY, linewidth=1)
        for tick in ticks:
            axes.text(tick, -0.2, f"{tick:,.0f}".replace(",", "\u2009"), ha="center", va="top", fontsize=9, color=GREY)
        for value, rounded, name, colour in (
            (space, space32, "$\\mathbf{x}\\cdot\\mathbf{y}$", BLUE),
            (time, time32, "$x_0\\,y_0$", VERMILION),
        ):
            axes.plot(value, 0, "o", color=colour, markersize=8, zorder=4)
            bend = f"arc3,rad={-0.3 if rounded > value else 0.3}"
            arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.8, "connectionstyle": bend, "shrinkB": 8}
            axes.annotate("", (rounded, 0.05), (value, 0.1), arrowprops=arrow)
            axes.plot(
                rounded, 0, "s", color=colour, markersize=11, markerfacecolor="none", markeredgewidth=2.2, zorder=4
            )
            label(axes, rounded, 0.62, f"{name} as computed", colour, ha="center", va="center", fontsize=11)
        axes.annotate("", (space32, 1.0), (time32, 1.0), arrowprops={"arrowstyle": "<->", "color": INK})
        middle = 0.5 * (space32 + time32)
        axes.text(middle, 1.08, f"computed difference {time32 - space32:.0f}", ha="center", va="bottom", fontsize=10.5)
        axes.text(middle, 0.42, f"true {time - space:.2f}", ha="center", va="center", fontsize=10.5)
        axes.set(ylim=(-0.55, 1.4), xlim=(ticks[0] - 5, ticks[-1] + 5), yticks=[], xticks=[])
        axes.set_title("The inner product of two points 1 apart at radius 10, on the grid of float32 numbers")
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.grid(False)


def draw_neighbourhood() -> None:
    """What float32 sees around a point: distance to it over its tangent plane, ambient and polar."""
    radii, half, pixels = (4.0, 7.0, 8.0, 9.0, 12.0, 16.0), 2.0, 161
    grid = torch.linspace(-half, half, pixels, dtype=F64)
    across, out = torch.meshgrid(grid, grid, indexing="xy")
    from matplotlib import pyplot
    from matplotlib.colors import BoundaryNorm, ListedColormap

    shades = pyplot.get_cmap("cividis")(np.linspace(0.05, 1.0, 12))
    shades[1::2, :3] = 0.82 * shades[1::2, :3] + 0.18
    colours = ListedColormap(shades)
    colours.set_bad("#c8391f")
    colours.set_over(shades[-1])
    with figure(IMAGES / "neighbourhood.png", 11.2, 3.6, panels=len(radii)) as columns:
        drawn = columns[0].figure
        for axes in columns:
            axes.remove()
        panels = drawn.subplots(2, len(radii))
        for column, radius in enumerate(radii):
            base = point(radius, 0.7)
            sideways = torch.stack([-base.direction[1], base.direction[0]])
            xi = PolarTangent(out, across.unsqueeze(-1) * sideways)
            near = exp_map(PolarPoint(base.radius.expand_as(out), base.direction.expand(*out.shape, 2)), xi)
            here = to_ambient(base).float(), to_ambient(near).float()
            seen = (
                ambient.distance(here[0].expand_as(here[1]), here[1]),
                distance(base.map(torch.Tensor.float), near.map(torch.Tensor.float)),
            )
            for row, values in enumerate(seen):
                axes = panels[row, column]
                image = axes.imshow(
                    np.ma.masked_invalid(values.numpy()),
                    origin="lower",
                    cmap=colours,
                    extent=(-half, half) * 2,
                    norm=BoundaryNorm(np.linspace(0, 3, 13), 12, clip=True),
                    interpolation="nearest",
                )
                axes.set(xticks=[], yticks=[])
                axes.grid(False)
                for spine in axes.spines.values():
                    spine.set_visible(False)
            panels[0, column].set_title(f"r = {radius:g}", loc="center", fontsize=11)
        for row, name in enumerate(("ambient", "polar")):
            panels[row, 0].set_ylabel(name, fontsize=12, fontweight="bold", color=(VERMILION, BLUE)[row])
        bar = drawn.colorbar(image, ax=panels, shrink=0.8, ticks=[0, 1, 2, 3])
        bar.set_label("computed distance (red: NaN)")
        bar.outline.set_edgecolor(PALE)


if __name__ == "__main__":
    for draw in (draw_polar, draw_cancellation, draw_neighbourhood):
        draw()
    print("wrote", ", ".join(sorted(f"docs/images/{path.name}" for path in IMAGES.glob("*.png"))))
