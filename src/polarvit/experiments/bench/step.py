"""Training steps of several models side by side: forward and backward alone, and the whole step with its optimizer.

On a GPU each is one CUDA graph and all models take turns. On a CPU models are narrow and the table says so: that shows
that everything runs, not how fast the library is.
"""

from __future__ import annotations

import gc
import subprocess
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polarvit.experiments.bench import bars
from polarvit.experiments.bench.contestants import BASE, Case, Contestant, Setting, chosen
from polarvit.experiments.bench.picture import draw_steps
from polarvit.experiments.bench.report import FOLDER, cell, device_of, keep, leave, machine_name
from polarvit.experiments.bench.start import Started, cold_start, start
from polarvit.experiments.bench.timing import Budget, Timed, Times, captured
from polarvit.models import PolarViTConfig
from polarvit.models.registry import entry
from polarvit.tables import console, table
from polarvit.training.recipe import Precision
from polarvit.training.step import WARM_UP, autocast

Row = dict[str, Any]
BATCH = {"tiny": 128, "small": 64, "base": 64}
"""Images in a step, unless told otherwise."""
COLD = (BASE, "polar")
"""Whose cold start is measured."""


def setting_of(size: str, image: int | None, patch: int | None, classes: int, device: torch.device) -> Setting:
    """Sizes asked for; images and patches default to the registered model's."""
    config = entry(f"polar_vit_{size}").config
    assert isinstance(config, PolarViTConfig)
    return Setting(size, image or config.image[0], patch or config.patch_size, classes, device.type != "cuda")


def run(
    *,
    size: str = "tiny",
    image: int | None = None,
    patch: int | None = None,
    classes: int = 100,
    batches: Sequence[int] = (),
    precisions: Sequence[Precision] = ("tf32",),
    device: str | None = None,
    seconds: float = 60.0,
    compiled: bool = True,
    only: Iterable[str] | None = None,
    cold: bool | None = None,
    out: Path | None = FOLDER,
) -> dict[str, Any]:
    """Time every contestant in every precision and batch size; print the tables, write and return the record.

    `cold` adds the cold starts of Polar-ViT and its twin; by default where there is a GPU.
    """
    here = device_of(device)
    cuda = here.type == "cuda"
    compiled = compiled and cuda
    setting, contestants = setting_of(size, image, patch, classes, here), chosen(only)
    sizes = [b if cuda else min(b, 8) for b in batches or [BATCH[size]]]
    sizes = sorted(set(sizes))
    budget = Budget(seconds, len(precisions) * len(sizes))
    rows: list[Row] = []
    starts: dict[str, float] = {}
    content = {"setting": setting.__dict__, "cold_start_seconds": starts, "rows": rows}
    name, used = f"step-{size}", ",".join(precisions)
    for precision in precisions:
        for batch in sizes:
            case = Case(setting, here, batch, precision, compiled)
            found = measure(contestants, case, budget)
            show(found, f"Training step: {case}, {machine_name(here)}")
            rows += found
            keep(out, name, here, content, judge(rows, setting, starts), used)  # what is measured outlives an end here
    if cuda if cold is None else cold:
        for key in (one.key for one in contestants if one.key in COLD):
            try:
                starts[key] = cold_start(key, Case(setting, here, sizes[0], precisions[0], compiled))
                budget.say(f"cold start of '{key}': {starts[key]:.1f} s to the first training step")
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                budget.say(f"{error}"[:300])
    claims, draw = judge(rows, setting, starts), partial(draw_steps, rows=rows, setting=setting)
    return leave(out, name, here, content, claims, draw, used)


def measure(contestants: Sequence[Contestant], case: Case, budget: Budget) -> list[Row]:
    """One row for each contestant, timed in turns; one that cannot run has `failed` and does not end the comparison."""
    found = [made_ready(one, case, budget) for one in contestants]
    rows = [row for row, _ in found]
    fill(rows, budget.times({name: timed for _, ready in found for name, timed in ready.items()}, case.device))
    return rows


def made_ready(one: Contestant, case: Case, budget: Budget) -> tuple[Row, dict[str, Timed]]:
    """A contestant's row without times, and what to time by name: nothing if it cannot run, which the row says."""
    row: Row = {"key": one.key, "label": one.label, "precision": case.precision, "batch": case.batch}
    try:
        facts, ready = prepare(one, case)
    except Exception as error:
        row["failed"] = "out of memory" if isinstance(error, torch.OutOfMemoryError) else in_short(error)
        budget.say(f"{one.label}: {row['failed']}")
        return row, {}
    budget.say(f"{one.label}, {case.precision}, batch {case.batch}: ready after {facts['ready_seconds']:.1f} s")
    return row | facts, {f"{one.key}: {part}": timed for part, timed in ready.items()}


def in_short(error: Exception) -> str:
    """Its kind and the last line that says something: a compiler's message ends with what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if len(line.split()) > 1]
    hints = ("Set TORCHDYNAMO", "Set TORCH_LOGS", "set TORCHDYNAMO")
    said = [line for line in lines if not line.startswith(hints)]
    return f"{type(error).__name__}: {said[-1] if said else error}"[:300]


def prepare(one: Contestant, case: Case) -> tuple[Row, dict[str, Timed]]:
    """A contestant ready to be timed: its facts and the two things to time."""
    torch._dynamo.reset()
    gc.collect()  # after the reset: what the contestant before leaves behind must not be freed while this one counts
    device, cuda = case.device, case.cuda
    if cuda:
        torch.cuda.synchronize(device)
        torch._C._cuda_clearCublasWorkspaces()  # every contestant pays for its own, as in a process of its own
    before = torch.cuda.memory_allocated(device) if cuda else 0
    began = time.perf_counter()
    with one.kernels():
        started = start(one, case)
        facts = {**started.facts, "ready_seconds": time.perf_counter() - began, "peak_mib": None}
        if cuda:
            torch.cuda.reset_peak_memory_stats(device)  # what compilation tried out does not count
            for _ in range(WARM_UP):
                started()  # the last of these captures
            torch.cuda.synchronize(device)
            facts["peak_mib"] = (torch.cuda.max_memory_allocated(device) - before) / 2**20
        pool = started.step.graph.pool() if started.step.graph is not None else None
        both = captured([lambda: forward_backward(started, case.precision)], device, pool)
    ready = {"step": Timed(started), "both": both}
    if cuda:
        for timed in ready.values():
            timed.call()  # one whose graph fails says so here, under its own name
        torch.cuda.synchronize(device)
    return facts, ready


def forward_backward(started: Started, precision: Precision) -> tuple[Tensor | None, ...]:
    """Gradients of every parameter; nothing is updated."""
    with autocast(precision, started.images.device):
        logits = started.model(started.images)
    loss = F.cross_entropy(logits.to(started.targets.dtype), started.targets)
    return torch.autograd.grad(loss, started.step.parameters, allow_unused=True)


def fill(rows: Sequence[Row], times: Times) -> None:
    """Times and ratios into the rows, against the twin with the mean readout and the one with a class token."""
    ready = {row["key"]: row for row in rows if "failed" not in row}
    for key, row in ready.items():
        for part, name in (("step", "step"), ("both", "forward_backward")):
            row[name] = times.record(f"{key}: {part}")
            for base, against in ((BASE, "ratio"), ("class-token", "ratio_to_class_token")):
                if base in ready:
                    row[name][against] = times.ratio(f"{key}: {part}", f"{base}: {part}")
        row["images_per_second"] = 1e3 * row["batch"] / row["step"]["ms"]
        peak, base_peak = row["peak_mib"], ready.get(BASE, {}).get("peak_mib")
        row["memory_ratio"] = peak / base_peak if peak and base_peak else None


def show(rows: Sequence[Row], title: str) -> None:
    """The table, ratios first."""
    cells: list[list[str]] = []
    for row in rows:
        step, both = row.get("step", {}), row.get("forward_backward", {})
        cells.append([
            f"{row['label']}: {row['failed'][:60]}" if "failed" in row else row["label"],
            cell(step.get("ratio")), cell(both.get("ratio")), cell(row.get("memory_ratio")),
            cell(step.get("ratio_to_class_token")),
            cell(step.get("ms")), cell(both.get("ms")), cell(row.get("peak_mib"), ",.0f"),
        ])  # fmt: skip
    columns = ["model", "step", "fwd+bwd", "memory", "step / class token", "step ms", "fwd+bwd ms", "peak MiB"]
    console().print(table(title, columns, cells, caption="First three columns: ratio to the Euclidean ViT that reads "
                          "the mean of the same number of tokens."))  # fmt: skip


def judge(rows: Sequence[Row], setting: Setting, starts: dict[str, float]) -> list[bars.Claim]:
    """Polar-ViT beside the bars of its settings."""
    claims = []
    for row in rows:
        key = (setting.size, setting.image, setting.patch, row["batch"], row["precision"])
        if row["key"] != "polar" or key not in bars.STEP or setting.narrow:
            continue
        case = f"{setting}, batch {row['batch']}, {row['precision']}"
        for part, name in (("step", "whole step"), ("forward_backward", "forward+backward")):
            claims.append(bars.Claim(f"{case}: {name}", row.get(part, {}).get("ratio"), bars.STEP[key]))
        if key in bars.STEP_MEMORY:
            claims.append(bars.Claim(f"{case}: peak memory", row.get("memory_ratio"), bars.STEP_MEMORY[key]))
    if "polar" in starts:
        claims.append(bars.Claim("cold start to the first training step", starts["polar"], bars.COLD_START, " s"))
    return claims
