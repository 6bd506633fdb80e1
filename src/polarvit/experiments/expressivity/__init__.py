"""The expressivity test: how many iterations does a single layer need to reach a target at distance 1 to 18?

Prints the iterations of every layer, the paper's statements beside ours, and writes `expressivity.json` and `.png`.
Its own claims, checked on every run: Polar-FC reaches every target in both precisions, clipped or not; Chen's layer
stops at a smaller radius than FGG-LNN.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from polarvit.experiments.expressivity.batch import ARRIVED, Runs, race
from polarvit.experiments.expressivity.contestants import CONTESTANTS, DIM, OFF_AXIS, START, Contestant
from polarvit.experiments.expressivity.picture import draw
from polarvit.experiments.expressivity.statements import failures, statements
from polarvit.experiments.pictures import NoPictures
from polarvit.experiments.registry import Settings
from polarvit.provenance import provenance, write_json
from polarvit.tables import console, prose, table

PRECISIONS = {"float64": torch.float64, "float32": torch.float32}
CLIPS = {"clipped": 1.0, "unclipped": None}
SEEDS, LIMIT = 3, 10_000
TARGETS = [float(radius) for radius in range(1, 19)]
FALSE = 2 * ARRIVED
"""An arrival whose true distance is above this was false: the layer's own distance was wrong."""


def run(settings: Settings) -> list[str]:
    """Run every layer, print, write; return the claims of ours that did not hold."""
    out, began, used = console(), time.perf_counter(), time.process_time()
    origin = provenance(seed=settings.seed, quick=settings.quick)
    targets, limit = ([2.0, 4.0], 500) if settings.quick else (TARGETS, LIMIT)
    seeds = list(range(settings.seed, settings.seed + (1 if settings.quick else SEEDS)))
    races = []
    for contestant in (*CONTESTANTS, OFF_AXIS):
        for precision, dtype in PRECISIONS.items():
            for clipping, clip in CLIPS.items():
                if contestant is OFF_AXIS and clip is not None:
                    continue
                runs = race(contestant, targets, seeds, dtype, clip, limit)
                races.append(record(contestant, precision, clipping, runs))
                out.print(f"{contestant.label}, {precision}, {clipping}: {in_short(races[-1])}", soft_wrap=True)
    result = {
        "experiment": "expressivity",
        "command": "polarvit reproduce expressivity",
        "provenance": origin,
        "protocol": {
            "dimension": DIM,
            "input_distance": START,
            "targets": targets,
            "seeds": seeds,
            "limit": limit,
            "arrived_below": ARRIVED,
            "false_above": FALSE,
            "clip": CLIPS["clipped"],
        },
        "races": races,
        "seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time() - used,
    }
    out.print(iteration_table(races, targets, limit))
    if not settings.quick:
        found = statements(races, targets)
        result["statements"] = found
        result["summary"] = {row["key"]: row["ours"] for row in found}
        words = [[row["label"], row["paper"], row["ours"]] for row in found]
        out.print(prose("The paper's words", ("subject", "paper", "ours"), words))
    write_json(settings.file("expressivity"), result)
    out.print(f"wrote {settings.file('expressivity')}", soft_wrap=True)
    try:
        draw(settings.file("expressivity", "png"), races, targets, limit)
        out.print(f"wrote {settings.file('expressivity', 'png')}", soft_wrap=True)
    except NoPictures as reason:
        out.print(str(reason), style="yellow", markup=False)
    return [] if settings.quick else failures(races)


def record(contestant: Contestant, precision: str, clipping: str, runs: Runs) -> dict[str, Any]:
    """One layer in one precision: iterations [target][seed], None where the run did not arrive; their mean counts such
    runs at the limit, as the paper does. `false` marks arrivals that the layer's own distance made up.
    """
    false = runs.arrived & ~(runs.true_gap < FALSE)
    counts = [
        [int(n) if ok else None for n, ok in zip(row, good, strict=True)]
        for row, good in zip(runs.iterations.tolist(), (runs.arrived & ~false).tolist(), strict=True)
    ]
    limit = max(int(runs.iterations.max()), 1)
    mean = [sum(limit if n is None else n for n in row) / len(row) for row in counts]
    return {
        "layer": contestant.name,
        "label": contestant.label,
        "precision": precision,
        "clipping": clipping,
        "lr": contestant.lr,
        "iterations": counts,
        "mean": mean,
        "false": false.sum(-1).tolist(),
        "not_finite_from": runs.broke.tolist(),
        "true_distance_at_the_end": runs.true_gap.tolist(),
        "dead_starts_redrawn": runs.redrawn,
    }


def in_short(row: dict[str, Any]) -> str:
    """How many targets were reached, and in how many iterations."""
    reached = [n for counts in row["iterations"] for n in counts if n is not None]
    whole = sum(None not in counts for counts in row["iterations"])
    false = f", {sum(row['false'])} false arrivals" if sum(row["false"]) else ""
    span = f", {min(reached):,} to {max(reached):,} iterations" if reached else ""
    return f"{whole} of {len(row['iterations'])} targets{span}{false}"


def iteration_table(races: list[dict[str, Any]], targets: list[float], limit: int) -> Any:
    """Mean iterations of every layer: one line for each target, 64 and 32 bits in one cell."""
    pairs: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in races:
        pairs.setdefault((row["layer"], row["clipping"]), {})[row["precision"]] = row
    names = {"chen_bounded": "chen\nbound", "poincare": "poinc.", "polar_off_axis": "polar\noff axis"}
    heads = [f"{names.get(layer, layer)}\n{'clip' if clipping == 'clipped' else 'free'}" for layer, clipping in pairs]
    lines = [
        [f"{target:g}", *(cell([pair[p] for p in PRECISIONS], index, limit) for pair in pairs.values())]
        for index, target in enumerate(targets)
    ]
    note = f"float64/float32 where they differ; a dash: at least one seed did not arrive within {limit:,}"
    return table("Iterations to each target, mean over seeds", ("target", *heads), lines, note)


def cell(rows: list[dict[str, Any]], index: int, limit: int) -> str:
    texts = ["-" if None in row["iterations"][index] else f"{row['mean'][index]:.0f}" for row in rows]
    return texts[0] if texts[0] == texts[1] else "/".join(texts)
