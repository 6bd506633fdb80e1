"""The paper's words on the expressivity test beside what was measured, and what we claim ourselves."""

from __future__ import annotations

from typing import Any

from polarvit.experiments.catalogue.arithmetic import ARITHMETIC

PRECISIONS = ("float64", "float32")
Races = list[dict[str, Any]]


def of(races: Races, layer: str, clipping: str) -> dict[str, dict[str, Any]]:
    """The records of a layer by precision."""
    return {row["precision"]: row for row in races if row["layer"] == layer and row["clipping"] == clipping}


def stops(row: dict[str, Any]) -> int | None:
    """Index of the first target that a seed did not reach; None if all did."""
    return next((index for index, counts in enumerate(row["iterations"]) if None in counts), None)


def reach(rows: dict[str, dict[str, Any]], targets: list[float]) -> str:
    """Which targets a layer reaches, in words, and the range of its means."""
    ends = {precision: stops(rows[precision]) for precision in PRECISIONS}
    if not any(index is not None for index in ends.values()):
        means = [value for row in rows.values() for value in row["mean"]]
        return f"every target in both precisions, {min(means):,.0f} to {max(means):,.0f} iterations"
    words = [
        f"all in {precision}" if index is None else f"fails from radius {targets[index]:g} in {precision}"
        for precision, index in ends.items()
    ]
    late = [
        f"{target:g}"
        for index, target in enumerate(targets)
        if any(end is not None and end < index and None not in rows[p]["iterations"][index] for p, end in ends.items())
    ]
    return ", ".join(words) + (f" (yet reaches {', '.join(late)})" if late else "")


def fewest(races: Races, targets: list[float]) -> str:
    """From which radius on Polar-FC, not clipped, needs fewer iterations than every other layer."""
    polar = of(races, "polar", "unclipped")
    rivals = {row["layer"]: row["label"] for row in races if row["layer"] not in ("polar", "polar_off_axis")}
    texts = []
    for layer, label in rivals.items():
        rows = [row for row in races if row["layer"] == layer]
        worse = [
            targets[index]
            for index in range(len(targets))
            if any(row["mean"][index] <= polar[row["precision"]]["mean"][index] for row in rows)
        ]
        if worse:
            span = f"at {worse[0]:g}" if len(worse) == 1 else f"from {worse[0]:g} to {worse[-1]:g}"
            texts.append(f"{label} needs fewer {span}")
    return "Polar-FC at every radius" if not texts else f"Polar-FC, but {'; '.join(texts)}"


def statements(races: Races, targets: list[float]) -> list[dict[str, str]]:
    """Each row of the catalogue: key, label, the paper's words, ours."""
    ours = {
        "polar_unclipped": reach(of(races, "polar", "unclipped"), targets),
        "polar_clipped": reach(of(races, "polar", "clipped"), targets),
        "chen": reach(of(races, "chen", "clipped"), targets),
        "fgg_clipped": reach(of(races, "fgg", "clipped"), targets),
        "fgg_unclipped": reach(of(races, "fgg", "unclipped"), targets),
        "fewest": fewest(races, targets),
    }
    declared = next(experiment for experiment in ARITHMETIC if experiment.name == "expressivity")
    return [{"key": row.key, "label": row.label, "paper": row.paper, "ours": ours[row.key]} for row in declared.rows]


def failures(races: Races) -> list[str]:
    """Polar-FC reaches every target; Chen's layer stops before FGG-LNN does."""
    wrong = []
    for clipping in ("clipped", "unclipped"):
        for precision, row in of(races, "polar", clipping).items():
            if stops(row) is not None:
                wrong.append(f"Polar-FC, {clipping}, {precision}: a target was not reached")
        for precision in PRECISIONS:
            chen, fgg = (stops(of(races, layer, clipping)[precision]) for layer in ("chen", "fgg"))
            if chen is None or (fgg is not None and fgg <= chen):
                wrong.append(f"{clipping}, {precision}: Chen's layer does not stop before FGG-LNN")
    return wrong
