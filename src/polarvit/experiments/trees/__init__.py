"""Trees in the hyperbolic plane: the oldest use of hyperbolic space, and how far out float32 can follow it.

A tree fits into the plane with less and less distortion the longer its edges are, and the farther out its leaves lie
(Sarkar, 2011). So precision is what limits it (Sala et al., 2018). A complete binary tree is placed exactly, in
float64; every library stores the points in its own coordinates and says how far apart they are. Then all nodes are
pushed off their places and each library trains them back, with its own Riemannian Adam, the same rate and schedule.

Prints both beside each other and writes `trees.json` and `trees.png`. Its own claims: up to radius 17, where float32
directions end, polar float32 keeps and trains the tree as well as float64, to 2 % of the average distortion; and
nothing of it is ever NaN, at any radius.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from polarvit.experiments.pictures import NoPictures
from polarvit.experiments.registry import Settings
from polarvit.experiments.threads import one_thread
from polarvit.experiments.trees.spaces import SPACES, Space, Stored, installed
from polarvit.experiments.trees.tree import F64, Distortion, Tree, at, place
from polarvit.geometry import PolarPoint, distance, from_tangent0, gyroadd
from polarvit.provenance import package_version, provenance, write_json
from polarvit.tables import console, number, table

LENGTHS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
PUSH, LR = 0.5, 0.03
FLOAT32_ENDS = 17.0
TOLERANCE = 1.02


def run(settings: Settings) -> list[str]:
    """Measure, print, draw, write; return the claims of ours that did not hold."""
    began = time.perf_counter()
    tree = Tree(2, 4) if settings.quick else Tree(2, 7)
    lengths, steps = ((1.0, 2.0, 3.0), 40) if settings.quick else (LENGTHS, 300)
    spaces, missing = installed()
    with one_thread():
        rows = [row for length in lengths for row in measure(tree, length, steps, spaces, settings.seed)]
    result = {
        "experiment": "trees",
        "command": "polarvit reproduce trees",
        "provenance": provenance(seed=settings.seed, quick=settings.quick),
        "versions": {name: package_version(name) for name in ("geoopt", "hypll") if name not in missing},
        "protocol": {
            "branches": tree.branches,
            "depth": tree.depth,
            "nodes": tree.nodes,
            "dimension": 2,
            "push": PUSH,
            "lr": LR,
            "steps": steps,
            "loss": "mean of (d / (length x edges) - 1)^2 over all pairs",
        },
        "seconds": time.perf_counter() - began,
        "rows": rows,
        "summary": summary(rows),
    }
    out = console()
    out.print(kept_table(rows, spaces, tree))
    out.print(trained_table(rows, spaces, steps))
    for package in missing:
        out.print(f"{package} is not installed: pip install 'polarvit[peers]'", markup=False)
    write_json(settings.file("trees"), result)
    out.print(f"wrote {settings.file('trees')}", soft_wrap=True)
    try:
        from polarvit.experiments.trees.picture import draw

        draw(settings.file("trees", "png"), rows)
        out.print(f"wrote {settings.file('trees', 'png')}", soft_wrap=True)
    except NoPictures as error:
        out.print(str(error), markup=False)
    return failures(rows)


def measure(tree: Tree, length: float, steps: int, spaces: list[Space], seed: int) -> list[dict[str, Any]]:
    """One row for each space: what it keeps of the placed tree, and what it makes of the pushed one."""
    one, other = torch.triu_indices(tree.nodes, tree.nodes, 1)
    wanted = length * tree.distances()[one, other]
    placed = place(tree, length)
    start = pushed(placed, seed)
    rows = []
    for space in spaces:
        kept = Distortion.of(space.store(placed).distance(one, other), wanted)
        stored, stopped = train(space.store(start), one, other, wanted, steps)
        ended = Distortion.of(true_distance(stored.points(), one, other), wanted)
        rows.append(
            {
                "space": space.key,
                "length": length,
                "largest_radius": placed.radius.max().item(),
                "kept": asdict(kept),
                "trained": asdict(ended) if stopped is None else None,
                "stopped_at_step": stopped,
            }
        )
    return rows


def pushed(points: PolarPoint, seed: int) -> PolarPoint:
    """Every point moved by `PUSH` in a direction of its own."""
    generator = torch.Generator().manual_seed(seed)
    away = torch.randn(*points.direction.shape, generator=generator, dtype=F64)
    return gyroadd(points, from_tangent0(PUSH * away / away.norm(dim=-1, keepdim=True)))


def train(stored: Stored, one: Tensor, other: Tensor, wanted: Tensor, steps: int) -> tuple[Stored, int | None]:
    """Bring distances to what is wanted; the step at which the loss stopped being a number, None if it never did."""
    optimizer = stored.optimizer(LR)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LR * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimizer.zero_grad()
        found = stored.distance(one, other)
        loss = (found / wanted.to(found.dtype) - 1).square().mean()
        if not loss.isfinite():
            return stored, step
        loss.backward()
        optimizer.step()
    return stored, None if stored.points().direction.isfinite().all() else steps


def true_distance(points: PolarPoint, one: Tensor, other: Tensor) -> Tensor:
    """Distances of what is stored, whatever the library that stores it makes of them."""
    return distance(at(points, one), at(points, other))


def by_space(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["space"] == key]


def summary(rows: list[dict[str, Any]]) -> dict[str, str]:
    """For each space: how far out it keeps the tree, and how far out it trains it, within a tenth of float64."""
    found = {}
    for space in SPACES:
        own = by_space(rows, space.key)
        if own:
            kept = reach(own, [as_good(row["kept"], twin(rows, row)["kept"], "worst") for row in own])
            trained = reach(own, [as_good(row["trained"], twin(rows, row)["trained"], "average") for row in own])
            found[space.key] = (
                f"within a tenth of float64 to radius {kept} placed (worst distortion), {trained} trained (average)"
            )
    return found


def twin(rows: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
    """What float64 in polar form makes of the same tree."""
    return next(each for each in by_space(rows, "polar_64") if each["length"] == row["length"])


def as_good(own: dict[str, float] | None, best: dict[str, float], what: str) -> bool:
    """Within a tenth of float64."""
    return own is not None and own["lost"] == 0 and own[what] <= 1.1 * best[what]


def reach(rows: list[dict[str, Any]], good: list[bool]) -> str:
    """The largest radius at which it is good."""
    return f"{max((row['largest_radius'] for row, fine in zip(rows, good, strict=True) if fine), default=0.0):.1f}"


def failures(rows: list[dict[str, Any]]) -> list[str]:
    """What we claim of the polar form in float32."""
    wrong = []
    for row in by_space(rows, "polar"):
        where, best = f"polar float32, largest radius {row['largest_radius']:.1f}", twin(rows, row)
        if row["kept"]["lost"] or row["trained"] is None or row["trained"]["lost"]:
            wrong.append(f"{where}: a distance is not a number")
        elif row["largest_radius"] <= FLOAT32_ENDS:
            for what in ("kept", "trained"):
                if row[what]["average"] > TOLERANCE * best[what]["average"]:
                    wrong.append(
                        f"{where}: {what} with an average distortion of {row[what]['average']:.4f}, float64 has "
                        f"{best[what]['average']:.4f}"
                    )
    return wrong


def columns(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['length']:g}\nr = {row['largest_radius']:.1f}" for row in by_space(rows, "polar")]


def kept_table(rows: list[dict[str, Any]], spaces: list[Space], tree: Tree) -> Any:
    def cell(found: dict[str, float]) -> str:
        return f"{max(found['lost'], 0.001):.1%} NaN" if found["lost"] else worst(found["worst"])

    cells = [[space.label, *(cell(row["kept"]) for row in by_space(rows, space.key))] for space in spaces]
    title = f"A binary tree of {tree.nodes} nodes, placed exactly: worst distortion of distances as each computes them"
    note = (
        "Worst distortion: the largest ratio of a distance to that in the tree, over the smallest. r: largest radius."
    )
    return table(title, ("edges of length", *columns(rows)), cells, note)


def trained_table(rows: list[dict[str, Any]], spaces: list[Space], steps: int) -> Any:
    def cell(row: dict[str, Any]) -> str:
        found = row["trained"]
        return f"NaN at {row['stopped_at_step']}" if found is None else f"{found['average']:.4f}"

    cells = [[space.label, *(cell(row) for row in by_space(rows, space.key))] for space in spaces]
    title = f"The same tree, every node pushed {PUSH:g} away and trained back for {steps} steps: average distortion"
    note = "Of the points each ends with, their true distances taken in float64; or the step at which the loss was NaN."
    return table(title, ("edges of length", *columns(rows)), cells, note)


def worst(value: float) -> str:
    return f"{value:.3f}" if value < 10 else number(value)
