"""The pictures of the analysis, one panel or curve for each model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from polarvit.data.cifar100 import SUPERCLASSES
from polarvit.experiments.cifar100.analysis.superclasses import Classes, Flat
from polarvit.experiments.pictures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    VERMILION,
    figure,
    names_beside,
)

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)
HUES = ("#1f4e9c", "#d5402b", "#17853f", "#8a4fb0", "#b8860b", "#00838f", "#c2185b", "#6d4c41", "#5c7a00", "#455a64")
MARKS = ("o", "^")
"""Ten hues twice, with two marks: twenty superclasses that can be told apart."""


def panels_of(axes: Any, count: int) -> list[Any]:
    return [axes] if count == 1 else list(axes)


def draw_radius(path: Path, found: dict[str, dict[str, Any]]) -> None:
    """Accuracy and confidence against radius, in groups of equal size."""
    with figure(path, 5.4 * len(found), 4.3, panels=len(found), sharey=True) as axes:
        for panel, colour, (name, radius) in zip(panels_of(axes, len(found)), COLOURS, found.items(), strict=False):
            groups = radius["groups"]
            x = [group["radius"] for group in groups]
            accuracy, error = ([100 * group[key] for group in groups] for key in ("accuracy", "error"))
            panel.errorbar(
                x, accuracy, yerr=error, color=colour, marker="o", linewidth=2.2, capsize=3, label="accuracy"
            )
            sure = [100 * group["confidence"] for group in groups]
            panel.plot(x, sure, color=GREY, linestyle=(0, (4, 3)), marker=".", linewidth=1.4, label="mean confidence")
            panel.legend(frameon=False)
            panel.set(ylim=(0, None), xlabel="distance of the pooled point from the origin")
            panel.set_title(f"{name}: Spearman {radius['spearman_with_confidence']:+.2f}")
        panels_of(axes, len(found))[0].set_ylabel("% of test images")


def draw_noise(path: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    """Accuracy under noise, and where the pooled points go."""
    with figure(path, 10.4, 4.2, panels=2) as (left, right):
        for colour, (name, levels) in zip(COLOURS, found.items(), strict=False):
            x = [level["noise"] for level in levels]
            accuracy, error = ([100 * level[key] for level in levels] for key in ("accuracy", "error"))
            left.errorbar(x, accuracy, yerr=error, color=colour, marker="o", linewidth=2.2, capsize=3, label=name)
            clean = max(levels[0]["radius"], 1e-30)
            right.plot(x, [level["radius"] / clean for level in levels], color=colour, marker="o", linewidth=2.2)
            for panel in (left, right):
                panel.set_xticks(x, [f"{value:g}" for value in x])
        left.set(xlabel="standard deviation of the noise, pixels in [0, 1]", ylabel="top-1 %", ylim=(0, None))
        left.set_title("Accuracy under noise")
        left.legend(frameon=False)
        right.axhline(1, color=GREY, linewidth=1)
        right.set(xlabel="standard deviation of the noise, pixels in [0, 1]", ylabel="mean radius / that without noise")
        right.set_title("Radius under noise")


def draw_calibration(path: Path, found: dict[str, dict[str, Any]]) -> None:
    """Reliability diagrams: accuracy in each bin of confidence; pale bars are the share of images in it."""
    with figure(path, 4.9 * len(found), 4.6, panels=len(found), sharey=True) as axes:
        for panel, colour, (name, one) in zip(panels_of(axes, len(found)), COLOURS, found.items(), strict=False):
            bins = one["bins"]
            count, width = np.array(bins["count"]), 1 / len(bins["count"])
            left = np.arange(len(count)) * width
            filled = count > 0
            accuracy, sure = np.array(bins["accuracy"]), np.array(bins["confidence"])
            panel.bar(left, count / count.sum(), width, align="edge", color=PALE, edgecolor="white")
            panel.plot([0, 1], [0, 1], color=INK, linestyle=(0, (4, 3)), linewidth=1.2)
            panel.plot(sure[filled], accuracy[filled], color=colour, marker="o", linewidth=2.2)
            panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", aspect="equal")
            panel.set_title(f"{name}: ECE {100 * one['ece']:.1f} %")
            side = "over" if one["gap"] > 0 else "under"
            panel.text(0.04, 0.93, f"{side}confident by {100 * abs(one['gap']):.1f} points", fontsize=9.5)
        panels_of(axes, len(found))[0].set_ylabel("accuracy")


def draw_superclasses(path: Path, found: dict[str, tuple[Classes, Flat, dict[str, Any]]]) -> None:
    """Every class as a point with the mark of its superclass: on the Poincare disk, or in the plane."""
    columns, height = (3, 10.0) if len(found) == 1 else (5, 9.2)  # more columns are wider than one panel
    with figure(path, 7.4 * len(found), height, panels=len(found)) as axes:
        panels = panels_of(axes, len(found))
        for panel, (name, (classes, flat, facts)) in zip(panels, found.items(), strict=True):
            panel.set_aspect("equal")
            panel.axis("off")
            if classes.k is not None:
                _disk(panel, flat)
            else:
                reach = 1.05 * max(np.abs(flat.x).max(), np.abs(flat.y).max())
                panel.set(xlim=(-reach, reach), ylim=(-reach, reach))
            for index in range(len(SUPERCLASSES)):
                own = classes.home == index
                look = {"color": HUES[index % len(HUES)], "marker": MARKS[index // len(HUES)]}
                panel.scatter(flat.x[own], flat.y[own], s=42, label=list(SUPERCLASSES)[index], zorder=3, **look)
            near = f"{100 * facts['siblings_near']:.0f} % of the four nearest classes are siblings"
            panel.set_title(
                f"{name}: {near}\n(distances in the picture are off by {100 * flat.error:.0f} %)", fontsize=11
            )
        handles, labels = panels[0].get_legend_handles_labels()
        panels[0].figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8.5)
        for panel, (classes, flat, _) in zip(panels, found.values(), strict=True):
            names, colours = (
                [name.replace("_", " ") for name in classes.names],
                [HUES[i % len(HUES)] for i in classes.home],
            )
            if left_out := names_beside(panel, flat.x, flat.y, names, colours):
                panel.text(
                    0.5, 0, f"names without room: {left_out}", transform=panel.transAxes, ha="center", fontsize=8.5
                )


def draw_rates(path: Path, found: dict[str, dict[str, Any]]) -> None:
    """Rates of every head, rows against columns, darker in deeper blocks; dots on the edge attend by content alone."""
    with figure(path, 5.6 * len(found), 5.2, panels=len(found)) as axes:
        for panel, (name, rates) in zip(panels_of(axes, len(found)), found.items(), strict=True):
            rows, columns = np.array(rates["rows"]), np.array(rates["columns"])
            depth = np.repeat(np.arange(1, len(rows) + 1)[:, None], rows.shape[1], 1)
            dots = panel.scatter(rows, columns, c=depth, cmap="viridis_r", s=34, edgecolor="white", zorder=3)
            edge = 1.15 * max(rows.max(), columns.max(), 1)
            for axis in ("x", "y"):
                getattr(panel, f"set_{axis}scale")("symlog", linthresh=0.25, linscale=0.6)
            ticks = [tick for tick in (0, 0.25, 0.5, 1, 2, 4, 8, 16, 32) if tick <= edge]
            panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            panel.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            panel.minorticks_off()
            panel.set(xlim=(-0.03, edge), ylim=(-0.03, edge), aspect="equal")
            panel.set(xlabel="rate from row to row", ylabel="rate from column to column")
            panel.axvspan(-0.03, 0.25, color=PALE, zorder=0)
            panel.axhspan(-0.03, 0.25, color=PALE, zorder=0)
            start = (rates["start"], rates["start"])
            panel.plot(*start, marker="+", markersize=13, color=VERMILION, zorder=4)
            panel.annotate("start", start, (7, 5), textcoords="offset points", color=VERMILION)
            panel.figure.colorbar(dots, ax=panel, label="block", shrink=0.8)
            panel.set_title(
                f"{name}: {100 * rates['blind_to_one']:.0f} % of the heads see one axis only,\n"
                f"{100 * rates['blind_to_both']:.0f} % none (pale bands)", fontsize=11
            )  # fmt: skip


def _disk(panel: Any, flat: Flat) -> None:
    """The rim, and circles of equal distance from the origin."""
    from matplotlib.patches import Circle

    panel.add_patch(Circle((0, 0), 1, fill=False, color=GREY, linewidth=1.4))
    for distance, rho in flat.rings:
        panel.add_patch(Circle((0, 0), rho, fill=False, color=PALE, linewidth=0.8))
        panel.text(0, rho, f"{distance:g}", fontsize=8, color=GREY, ha="center", va="bottom")
    panel.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
