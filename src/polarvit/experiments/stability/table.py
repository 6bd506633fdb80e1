"""The table of stability: systems down, radii across."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, resolved
from polarvit.experiments.stability.rows import RADII, ROWS, edge, system_of
from polarvit.tables import console, table

COLLAPSED = 1e-3
"""A model whose logits differ between images by less than this share of their size tells images apart no more."""
SEEN, WRONG = 1e-3, 0.1
"""Noise of logits, and of the gradient, from which on it is told."""
BREAKS = "float32 breaks it"


def named(radius: float | None) -> str:
    """The head of a column."""
    return "as it is" if radius is None else f"radius {radius:g}"


def key_of(run: dict[str, Any]) -> tuple[str, float | None, int]:
    """What tells a run from all others."""
    return run["row"], run["radius"], run["seed"]


def twins(runs: Iterable[dict[str, Any]]) -> dict[tuple[str, float | None, int], dict[str, Any]]:
    """The runs in float64, by the key of the float32 run that each is the twin of."""
    return {(run["system"], run["radius"], run["seed"]): run for run in runs if run["precision"] == "fp64"}


def broken(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs that float32 breaks: a loss was not a number, and in float64 it always was one."""
    runs = list(runs)
    known = twins(runs)
    return [run for run in runs if run["precision"] == "fp32" and verdict(run, known.get(key_of(run))) == BREAKS]


def verdict(run: dict[str, Any], twin: dict[str, Any] | None) -> str:
    """What the twin in float64 says about a run in float32; empty where there is none, or nothing to say."""
    if twin is None:
        return ""
    if run["state"] == "diverged":
        return "in float64 too" if twin["state"] == "diverged" else BREAKS
    return "learns in float64" if (run["state"], twin["state"]) == ("goes on", "learns") else ""


def at(row: Row, radius: float | None, runs: Sequence[dict[str, Any]]) -> str:
    """The cell of a row: what happened to its seeds from there, or why nothing did."""
    end = edge(system_of(row))
    if radius is not None and radius > end:
        return f"cannot be pushed there, ends at {end:.1f}"
    return cell([run for run in runs if run["row"] == row.name and run["radius"] == radius], twins(runs))


def cell(
    runs: Sequence[dict[str, Any]], known: Mapping[tuple[str, float | None, int], dict[str, Any]] | None = None
) -> str:
    """What happened to the seeds of one row from one radius, and what their twins say."""
    if len(runs) > 1:
        return cell_of_seeds(runs, known or {})
    words = []
    for run in runs:
        if run["state"] == "diverged":
            words.append(f"NaN at step {run['diverged_at']}")
        else:
            words.append(f"{run['state']}, {run['first_loss']:.2f} to {run['last_loss']:.2f}{doubt(run)}")
        said = verdict(run, known.get(key_of(run))) if known else ""
        words[-1] += started(run) + (f": {said}" if said else "")
    return "; ".join(words) or "-"


def cell_of_seeds(runs: Sequence[dict[str, Any]], known: Mapping[tuple[str, float | None, int], dict[str, Any]]) -> str:
    """`cell` for several seeds: how many did what, where each of them ended, and the worst doubt about any."""
    states = [run["state"] for run in runs]
    told = {"learns": "learns", "goes on": "goes on", "diverged": "NaN"}
    counted = [f"{word} {states.count(state)} of {len(runs)}" for state, word in told.items() if state in states]
    words = told[states[0]] if len(set(states)) == 1 else ", ".join(counted)
    ended = [run for run in runs if run["state"] != "diverged"]
    if ended:
        first = sum(run["first_loss"] for run in ended) / len(ended)
        last = ", ".join(f"{run['last_loss']:.2f}" for run in ended)
        words += f", {first:.2f} to {last}"
        words += doubt(max(ended, key=lambda run: math.inf if run["noise_after"] is None else run["noise_after"]))
    said = [verdict(run, known.get(key_of(run))) for run in runs]
    notes = [f"{text}, {said.count(text)} of {len(runs)}" for text in dict.fromkeys(filter(None, said))]
    return words + started(runs[0]) + (f": {'; '.join(notes)}" if notes else "")


def doubt(run: dict[str, Any]) -> str:
    """What speaks against a run that went on: logits that are all alike, or rounding; gradients that are rounding."""
    if run["spread_after"] is not None and run["spread_after"] < COLLAPSED:
        return ", collapsed" + in_gradient(run)
    noise = 1.0 if run["noise_after"] is None else run["noise_after"]
    return (", noise only" if noise >= 1 else f", noise {100 * noise:.2g} %" if noise > SEEN else "") + in_gradient(run)


def in_gradient(run: dict[str, Any]) -> str:
    """How much of the gradient was rounding, in the end or else at the start, where it was more than a tenth."""
    told = [run.get(f"gradient_noise_{when}", 0.0) for when in ("before", "after")]
    first, last = (math.inf if value is None else value for value in told)
    if last > WRONG:
        return ", gradient noise only" if last >= 1 else f", gradient noise {100 * last:.2g} %"
    return ", noise in its first gradient" if first > WRONG else ""


def started(run: dict[str, Any]) -> str:
    """Where the tokens of a run started: bounds and residuals may keep them from the radius that layers were given."""
    if run["system"] == "vit_tiny":
        return ""
    found = run["radius_before"]
    return " (not finite before training)" if found is None else f" (from {found:.1f})"


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Every row that ran in a line, with the day and the machine of its newest run."""
    found = {}
    for row in ROWS:
        own = [run for run in runs if run["row"] == row.name]
        if not own:
            continue
        texts = {radius: at(row, radius, runs) for radius in RADII}
        told = [f"{'as it is' if radius is None else f'{radius:g}'}: {text}" for radius, text in texts.items()]
        ran = [line for line, text in zip(told, texts.values(), strict=True) if text != "-"]
        newest = max((run["provenance"] for run in own), key=lambda origin: origin["date"])
        found[row.name] = {"value": ", ".join(ran), "provenance": newest}
    return found


def show(runs: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Print it."""
    ran = {run["row"] for run in runs}
    rows = [[row.label, *(at(row, radius, runs) for radius in RADII)] for row in ROWS if row.name in ran]
    images = resolved(ROWS[0], settings.seed, settings).train.batch_size
    title = (
        f"Training from far out, strict float32 unless stated, {settings.steps} steps of {images}: first and last loss"
    )
    title += f" (chance {runs[0]['chance']:.2f})"
    note = "TOY SIZE on digits. " if settings.quick else "Each at the rate of its recipe. "
    note += (
        "In brackets: mean radius of the tokens before training. Noise over 0.1 %: how far logits in float32 are from "
        "those of the same weights in float64, after training. Gradient noise over 10 %: the same of a batch's whole "
        "gradient, before training or after. Collapsed: logits hardly differ between images. Rows in float64 start "
        "from the same weights: only where they go on and float32 does not does float32 break a system; what is bad "
        "in both is no matter of precision."
    )
    console().print(table(title, ["system", *map(named, RADII)], rows, caption=note, text=()))
