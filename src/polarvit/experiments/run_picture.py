"""The rows of a study in the paper's order, the paper's accuracy beside ours, each with its spread and its rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polarvit.experiments.pictures import BLUE, GREY, INK, VERMILION, figure

Summary = dict[str, Any]


def ranks(rows: Sequence[Summary]) -> dict[str, tuple[int, int]]:
    """(rank in the paper, rank here) of every row that has both values, 1 for the best on the same data."""
    found: dict[str, tuple[int, int]] = {}
    for data in dict.fromkeys(row["data"] for row in rows):
        both = [row for row in rows if row["data"] == data and compares(row)]
        theirs = sorted((row["paper"]["mean"] for row in both), reverse=True)
        ours = sorted((row["mean"] for row in both), reverse=True)
        found |= {row["name"]: (theirs.index(row["paper"]["mean"]) + 1, ours.index(row["mean"]) + 1) for row in both}
    return found


def compares(row: Summary) -> bool:
    """Whether a row has a number in the paper and one here."""
    return bool(row["paper"]) and row["paper"]["mean"] is not None and row["mean"] is not None


def agreement(rows: Sequence[Summary]) -> str:
    """How many pairs of rows on the same data stand in the paper's order, in a sentence; empty if there is no pair."""
    found = ranks(rows)
    known = [(row["data"], *found[row["name"]]) for row in rows if row["name"] in found]
    pairs = [
        (a[1:], b[1:]) for index, a in enumerate(known) for b in known[index + 1 :] if a[0] == b[0] and a[1] != b[1]
    ]
    if not pairs:
        return ""
    same = sum((a[0] < b[0]) == (a[1] < b[1]) and a[1] != b[1] for a, b in pairs)
    return f"{same} of {len(pairs)} pairs of rows are ordered as in the paper."


def draw(path: Path, title: str, rows: Sequence[Summary], *, whole: bool = False) -> None:
    """Write the picture: a panel for the paper, one for ours; one range if runs are `whole`, as long as the paper's."""
    places = range(len(rows), 0, -1)
    found = ranks(rows)
    theirs = [((row["paper"] or {}).get("mean"), (row["paper"] or {}).get("std")) for row in rows]
    ours = [(row["mean"], row["std"]) for row in rows]
    lost = [bool(row["paper"]) and row["paper"]["word"] == "diverged" for row in rows]
    panels = (
        ("paper", theirs, lost, 0, GREY),
        ("here", ours, [row["diverged"] > 0 and row["mean"] is None for row in rows], 1, BLUE),
    )
    with figure(path, 11.5, 0.42 * len(rows) + 1.4, panels=2, sharey=True, sharex=whole) as grid:
        for axes, (name, values, diverged, which, colour) in zip(grid, panels, strict=True):
            for place, row, (mean, std), broken in zip(places, rows, values, diverged, strict=True):
                if mean is not None:
                    axes.errorbar(mean, place, xerr=std, fmt="o", color=colour, markersize=6, capsize=3, linewidth=1.6)
                    if row["name"] in found:
                        offset = {"textcoords": "offset points", "fontsize": 9, "color": INK, "ha": "center"}
                        axes.annotate(str(found[row["name"]][which]), (mean, place), (0, 6), **offset)
                elif broken:
                    told = {"color": VERMILION, "transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 9}
                    axes.text(0.02, place, "diverged", **told)
            axes.set(title=name, xlabel="%", ylim=(0.4, len(rows) + 0.8))
            axes.margins(x=0.12)
        grid[0].set_yticks(list(places), [row["label"] for row in rows])
        seeds = {row["seeds"] for row in rows if row["seeds"]}
        spread = ", bars: standard deviation over seeds" if seeds and max(seeds) > 1 else ""
        grid[0].figure.suptitle(f"{title} (numbers: rank{spread})", x=0.01, ha="left", fontsize=11)
