"""How cost grows: attention from 64 to 16,384 tokens, the training step from 32 to 1,024 images.

Attention keeps B N = 16,384 tokens in all (12 heads of 64), so only the part that is quadratic in N grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from polarvit.experiments.bench import step
from polarvit.experiments.bench.attention import Core, Shape
from polarvit.experiments.bench.contestants import Case, chosen
from polarvit.experiments.bench.picture import draw_scaling
from polarvit.experiments.bench.report import FOLDER, cell, device_of, keep, leave, machine_name
from polarvit.experiments.bench.timing import Budget, Timed, captured, extra_memory
from polarvit.tables import console, table
from polarvit.training.recipe import Precision

PARTS = ("attention", "step")
TOKENS = (64, 256, 1024, 4096, 16384)
BATCHES = (32, 128, 512, 1024)
CONTESTANTS = ("euclidean", "polar")
ALL_TOKENS = 16384


def run(
    *,
    parts: Sequence[str] = PARTS,
    tokens: Sequence[int] = (),
    batches: Sequence[int] = (),
    size: str = "tiny",
    precision: Precision = "tf32",
    only: Iterable[str] | None = None,
    device: str | None = None,
    seconds: float = 60.0,
    out: Path | None = FOLDER,
) -> dict[str, Any]:
    """Time both, print the tables, write and return the record."""
    here = device_of(device)
    cuda = here.type == "cuda"
    tokens = sorted(set(tokens or (TOKENS if cuda else (16, 32, 64)))) if "attention" in parts else []
    batches = sorted(set(batches or (BATCHES if cuda else (2, 4)))) if "step" in parts else []
    budget = Budget(seconds, len(tokens) + len(batches))
    torch.manual_seed(0)
    setting, contestants = step.setting_of(size, None if cuda else 8, None, 100, here), chosen(only or CONTESTANTS)
    attention: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    name = "scaling" if tokens and batches else "-".join(["scaling", *dict.fromkeys(parts)])
    content = {"setting": setting.__dict__, "attention": attention, "steps": rows}
    for n in tokens:
        attention.append(attention_at(shape_of(n, cuda), here, budget))
        keep(out, name, here, content, [], precision)  # what is measured outlives an end here
    if attention:
        show_attention(attention, here)
    for batch in batches:
        case = Case(setting, here, batch, precision, cuda)
        found = step.measure(contestants, case, budget)
        step.show(found, f"Training step: {case}, {machine_name(here)}")
        rows += found
        keep(out, name, here, content, [], precision)
    return leave(out, name, here, content, [], partial(draw_scaling, attention=attention, steps=rows), precision)


def shape_of(n: int, cuda: bool) -> Shape:
    """(B, H, N, d) with B N = 16,384 where that divides; small without a GPU."""
    return (max(1, ALL_TOKENS // n), 12, n, 64) if cuda else (1, 2, n, 8)


def attention_at(shape: Shape, device: torch.device, budget: Budget) -> dict[str, Any]:
    """Forward and backward of SDPA and of the polar core, and the memory they need."""
    row: dict[str, Any] = {"tokens": shape[2], "shape": shape}
    cases: dict[str, Timed] = {}
    memory: dict[str, float | None] = {}
    for key in ("sdpa", "polar"):
        try:
            core = Core(key, shape, device)
            core.prepare()
            memory[key] = extra_memory(core.both, device)
            cases[key] = captured([core.both], device)
        except torch.OutOfMemoryError:
            row[f"{key}_failed"] = "out of memory"
    budget.say(f"attention {shape}: ready")
    times = budget.times(cases, device)
    for key in cases:
        row[key] = {**times.record(key), "extra_mib": memory[key]}
    if len(cases) == 2:
        row["ratio"] = times.ratio("polar", "sdpa")
    return row


def show_attention(rows: Sequence[dict[str, Any]], device: torch.device) -> None:
    """The table, ratios first."""
    cells = [
        [
            str(row["shape"]),
            cell(row.get("ratio")),
            *(cell(row.get(key, {}).get("ms"), ",.3f") for key in ("polar", "sdpa")),
            *(cell(row.get(key, {}).get("extra_mib"), ",.0f") for key in ("polar", "sdpa")),
        ]
        for row in rows
    ]
    title = f"Attention core, forward and backward, {machine_name(device)}"
    columns = ["(B, H, N, d)", "polar / SDPA", "polar ms", "SDPA ms", "polar MiB", "SDPA MiB"]
    console().print(table(title, columns, cells))
