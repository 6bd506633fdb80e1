"""Pictures of the benchmarks. Each says on which machine it was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polarvit.experiments.bench.bars import ATTENTION, STEP, Bar
from polarvit.experiments.bench.contestants import Setting
from polarvit.experiments.pictures import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, figure

COLOURS = {
    "euclidean": GREY,
    "class-token": INK,
    "timm": PURPLE,
    "polar": BLUE,
    "joint": GREEN,
    "plain": ORANGE,
    "lorentz": VERMILION,
}
CORES = {"sdpa": (GREY, "SDPA, float32"), "polar": (BLUE, "polar"), "reference": (ORANGE, "polar, reference")}
LONGEST = 8.0
"""Ratio at which a bar is cut off; its number stands beside its name."""
ROUND = [digit * 10.0**power for power in range(-4, 6) for digit in (1, 2, 3, 5)]
"""Where a logarithmic axis of less than a decade may have ticks."""
Row = Mapping[str, Any]


def draw_steps(path: Path, rows: Sequence[Row], setting: Setting, machine: str) -> None:
    """Ratio of the whole step to the Euclidean twin's, a panel for each precision and batch size."""
    panels: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if "ratio" in row.get("step", {}):
            panels.setdefault((row["precision"], row["batch"]), []).append(row)
    if not panels:
        return
    with figure(path, 5.4 * len(panels), 3.6, panels=len(panels), squeeze=False) as axes:
        for ax, ((precision, batch), found) in zip(axes[0], panels.items(), strict=True):
            bar = STEP.get((setting.size, setting.image, setting.patch, batch, precision))
            ratios = [row["step"]["ratio"] for row in found]
            _horizontal(ax, [row["label"] for row in found], ratios, [COLOURS[row["key"]] for row in found])
            _limit(ax, "step / Euclidean ViT's", None if setting.narrow else bar)
            ax.set_title(f"{precision}, batch {batch}")
        _note(axes[0][0], f"{setting.short}, {machine}")


def draw_attention(path: Path, shapes: Sequence[Row], memory: Sequence[Row], machine: str) -> None:
    """Forward and backward over SDPA for each shape, and the extra memory against N."""
    with figure(path, 11, 4.2, panels=2 if memory else 1, squeeze=False) as axes:
        left = axes[0][0]
        bars = [
            (f"{tuple(shape['shape'])} {CORES[row['key']][1]}", row["both"]["ratio"], CORES[row["key"]][0])
            for shape in shapes
            for row in shape["rows"]
            if row["key"] in ("polar", "reference") and "ratio" in row.get("both", {})
        ]
        if bars:
            _horizontal(left, *zip(*bars, strict=True))
        bar = next((ATTENTION[s] for shape in shapes if (s := tuple(shape["shape"])) in ATTENTION), None)
        _limit(left, "ratio, by (B, H, N, d)", bar)
        left.set_title("Forward + backward / float32 SDPA")
        if memory:
            right = axes[0][1]
            for key, (colour, label) in CORES.items():
                _curve(right, [(row["tokens"], row[key]) for row in memory if row.get(key)], colour, label)
            _logarithmic(right, [row["tokens"] for row in memory])
            right.set(title="Extra peak memory, 12 heads of 64", xlabel="tokens N", ylabel="MiB")
        _note(left, machine)


def draw_kernels(path: Path, rows: Sequence[Row], machine: str) -> None:
    """Forward and backward of each operation: plain, fused, and the time its bytes need."""
    with figure(path, 9, 0.75 * len(rows) + 2) as ax:
        places = np.arange(len(rows))[::-1]
        for offset, key, colour in ((0.26, "plain", ORANGE), (0.0, "fused", BLUE)):
            values = [1e3 * row[key]["both"]["ms"] if key in row else 0.0 for row in rows]
            ax.barh(places + offset, values, height=0.25, color=colour, label=f"{key}, forward + backward")
        floors = [row["floor_us"]["both"] for row in rows]
        ax.barh(places - 0.26, floors, height=0.25, color=GREY, label="its bytes at the speed of a copy")
        ax.set_yticks(places, [row["label"] for row in rows])
        ax.set(xlabel="microseconds", xscale="log", axisbelow=True)
        ax.grid(axis="y", visible=False)
        ax.figure.legend(frameon=False, loc="outside lower center", ncols=3)
        _note(ax, machine)


def draw_scaling(path: Path, attention: Sequence[Row], steps: Sequence[Row], machine: str) -> None:
    """Attention against N, the training step against the batch: a panel for each that was measured."""
    parts = [(draw, rows) for draw, rows in ((_attention_panel, attention), (_step_panel, steps)) if rows]
    with figure(path, 5.5 * len(parts), 4.4, panels=len(parts), squeeze=False) as axes:
        for ax, (draw, rows) in zip(axes[0], parts, strict=True):
            draw(ax, rows)
        _note(axes[0, 0], machine)


def _attention_panel(ax: Any, rows: Sequence[Row]) -> None:
    for key in ("sdpa", "polar"):
        _curve(ax, [(row["tokens"], row[key]["ms"]) for row in rows if key in row], *CORES[key])
    ax.set(title="Attention, forward + backward", xlabel="tokens N", ylabel="ms")
    _logarithmic(ax, [row["tokens"] for row in rows])


def _step_panel(ax: Any, rows: Sequence[Row]) -> None:
    for key, label in {row["key"]: row["label"] for row in rows}.items():
        found = [row for row in rows if row["key"] == key and "step" in row]
        _curve(ax, [(row["batch"], 1e3 / row["images_per_second"]) for row in found], COLOURS[key], label)
    ax.set(title="Training step", xlabel="batch", ylabel="ms an image")
    _logarithmic(ax, [row["batch"] for row in rows])


def _horizontal(ax: Any, labels: Sequence[str], values: Sequence[float], colours: Sequence[str]) -> None:
    """Bars with their numbers in the labels."""
    places = np.arange(len(labels))[::-1]
    ax.barh(places, values, color=colours, height=0.62)
    ax.set_yticks(places, [f"{label}   {value:.2f}" for label, value in zip(labels, values, strict=True)])
    ax.set(xlim=(0, min(1.1 * max(values), LONGEST)), axisbelow=True)
    for place, value in zip(places, values, strict=True):
        if value > LONGEST:
            ax.text(0.98 * LONGEST, place, "cut off", ha="right", va="center", color="white", fontsize=8)
    ax.grid(axis="y", visible=False)


def _limit(ax: Any, xlabel: str, bar: Bar | None) -> None:
    """The label of the axis, and the bar as a dashed line."""
    if bar is not None:
        ax.axvline(bar.limit, color=VERMILION, linewidth=1.4, linestyle=(0, (4, 3)))
        ax.set_xlim(right=max(ax.get_xlim()[1], 1.05 * bar.limit))
        xlabel += f"\n(dashed: bar {bar.limit:g})"
    ax.set_xlabel(xlabel)


def _curve(ax: Any, points: Sequence[tuple[float, float]], colour: str, label: str) -> None:
    if points:
        ax.plot(*zip(*points, strict=True), "o-", color=colour, label=label)


def _logarithmic(ax: Any, ticks: Sequence[float]) -> None:
    """Both axes logarithmic, marked where something was measured."""
    if ticks:
        ax.set(xscale="log", yscale="log")
        ax.set_xticks(sorted(set(ticks)), [f"{tick:,}" for tick in sorted(set(ticks))])
        ax.minorticks_off()
        low, high = ax.get_ylim()
        if high < 10 * low:  # less than a decade has one tick or none
            ticks = [tick for tick in ROUND if low <= tick <= high]
            ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.legend(frameon=False)


def _note(ax: Any, text: str) -> None:
    ax.figure.suptitle(text, x=0.01, ha="left", fontsize=10, color=GREY)
