"""Each fused kernel beside the plain code that torch.compile makes, and the floor set by the bytes it must move.

Both are compiled as the model compiles them. Inputs rotate through more memory than the cache holds, so that the bytes
a second are those of the memory. The floor counts every input, output, upstream gradient and gradient once, at the
speed of a copy measured in the same run; what backward keeps or computes again is not in it, nor is arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polarvit.compilation import compiled
from polarvit.experiments.bench.operations import NARROW, OPERATIONS, SIZES, Operation, Sizes
from polarvit.experiments.bench.picture import draw_kernels
from polarvit.experiments.bench.report import FOLDER, cell, device_of, keep, leave, machine_name
from polarvit.experiments.bench.timing import Budget, Timed, captured, interleaved
from polarvit.kernels.pick import kernels
from polarvit.tables import console, table
from polarvit.training.settings import SettingsError
from polarvit.training.step import set_precision

CACHE = 150_000_000
"""Bytes through which inputs rotate; an H200's cache holds a third of it."""
MOST_COPIES = 6
PARTS = ("forward", "both")


class Ready:
    """An operation with several sets of inputs."""

    def __init__(self, operation: Operation, sizes: Sizes, device: torch.device, *, plain: bool) -> None:
        torch.manual_seed(0)
        first = operation.make(sizes, device, plain)
        copies = max(1, min(MOST_COPIES, math.ceil(CACHE / nbytes(first.inputs)))) if device.type == "cuda" else 1
        self.parameters = list(first.parameters)
        held = operation.fused  # as the model compiles its blocks and its ends

        def function(*inputs: Tensor) -> tuple[Tensor, ...]:
            return tuple(as_stored(x) for x in first.function(*inputs))

        self.function = compiled(function, rows_at_once=held) if device.type == "cuda" else function
        sets = [first.inputs, *(operation.make(sizes, device, plain).inputs for _ in range(copies - 1))]
        self.sets = [[x.detach().requires_grad_() for x in inputs] for inputs in sets]
        with torch.no_grad():
            self.upstream = [torch.randn_like(x) for x in self.function(*self.sets[0])]

    def forward(self, index: int) -> Sequence[Tensor]:
        with torch.no_grad():
            return self.function(*self.sets[index])

    def both(self, index: int) -> Sequence[Tensor | None]:
        outputs = self.function(*self.sets[index])
        return torch.autograd.grad(outputs, [*self.sets[index], *self.parameters], self.upstream, allow_unused=True)

    def timed(self, part: str, device: torch.device) -> Timed:
        function = getattr(self, part)
        return captured([partial(function, index) for index in range(len(self.sets))], device)

    def bytes_moved(self) -> dict[str, int]:
        """Every input and output once; with backward also upstream gradients, inputs again, and gradients of inputs."""
        inputs, outputs = nbytes(self.sets[0]), nbytes(self.upstream)
        return {"forward": inputs + outputs, "both": 3 * inputs + 2 * outputs}


def as_stored(x: Tensor) -> Tensor:
    """Dimensions in the order of memory: PyTorch 2.11 copies gradients that reach compiled code in any other."""
    strides = x.stride()
    return x.permute(sorted(range(x.ndim), key=lambda i: -strides[i]))


def nbytes(tensors: Iterable[Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)


def copy_speed(device: torch.device) -> float:
    """Bytes a second that a copy reads and writes."""
    source = torch.zeros(2**27 if device.type == "cuda" else 2**20, device=device)
    target = torch.empty_like(source)
    times = interleaved({"copy": captured([lambda: target.copy_(source)], device)}, device, 1.0, most=10)
    return 2 * nbytes([source]) / (times.median("copy") / 1e3)


def chosen(keys: Iterable[str] | None) -> list[Operation]:
    known = [each.key for each in OPERATIONS]
    wanted = list(keys or known)
    for key in wanted:
        if key not in known:
            raise SettingsError(f"unknown kernel '{key}'; there are {', '.join(known)}")
    return [each for each in OPERATIONS if each.key in wanted]


def run(
    *,
    size: str = "tiny",
    device: str | None = None,
    seconds: float = 40.0,
    only: Iterable[str] | None = None,
    out: Path | None = FOLDER,
) -> dict[str, Any]:
    """Time every operation with and without its kernel; print the table, write and return the record."""
    here = device_of(device)
    sizes = SIZES[size] if here.type == "cuda" else NARROW
    operations = chosen(only)
    set_precision("tf32")
    budget = Budget(seconds, len(operations))
    speed = copy_speed(here)
    rows: list[dict[str, Any]] = []
    name, content = f"kernels-{size}", {"sizes": sizes.__dict__, "copy_gb_per_second": speed / 1e9, "rows": rows}
    for operation in operations:
        rows.append(measure(operation, sizes, here, speed, budget))
        keep(out, name, here, content, [], "tf32")  # what is measured outlives an end here
    show(rows, sizes, speed, here)
    return leave(out, name, here, content, [], partial(draw_kernels, rows=rows), "tf32")


def measure(operation: Operation, sizes: Sizes, device: torch.device, speed: float, budget: Budget) -> dict[str, Any]:
    """One row: times, ratios, bytes and floor. A side that cannot run says why."""
    row: dict[str, Any] = {"key": operation.key, "label": operation.label}
    cases: dict[str, Timed] = {}
    for side in ("fused", "plain") if operation.fused else ("plain",):
        torch._dynamo.reset()
        try:
            with kernels("auto" if side == "fused" else "plain"):
                ready = Ready(operation, sizes, device, plain=side == "plain")
                cases |= {f"{side}: {part}": ready.timed(part, device) for part in PARTS}
        except Exception as error:
            row[f"{side}_failed"] = f"{type(error).__name__}: {error}"[:300]
            cases = {name: timed for name, timed in cases.items() if not name.startswith(side)}
            continue
        row |= {"bytes": ready.bytes_moved(), "copies": len(ready.sets)}
    budget.say(f"{operation.label}: ready")
    times = budget.times(cases, device)
    moved = row.get("bytes", dict.fromkeys(PARTS, 0))
    row["floor_us"] = {part: 1e6 * moved[part] / speed for part in PARTS}
    for side in ("fused", "plain"):
        if f"{side}: both" not in cases:
            continue
        row[side] = {part: times.record(f"{side}: {part}") for part in PARTS}
        for part in PARTS:
            row[side][part]["gb_per_second"] = moved[part] / (1e6 * row[side][part]["ms"])
            row[side][part]["over_floor"] = 1e3 * row[side][part]["ms"] / row["floor_us"][part]
    if "fused" in row and "plain" in row:
        row["ratio"] = {part: times.ratio(f"plain: {part}", f"fused: {part}") for part in PARTS}
    return row


def show(rows: Sequence[dict[str, Any]], sizes: Sizes, speed: float, device: torch.device) -> None:
    """The table, ratios first."""
    cells = []
    for row in rows:
        failed = row.get("fused_failed") or row.get("plain_failed")
        for part, name in (("both", "fwd+bwd"), ("forward", "forward")):
            fused, plain = (row.get(side, {}).get(part, {}) for side in ("fused", "plain"))
            times = [1e3 * each["ms"] if "ms" in each else None for each in (fused, plain)]
            cells.append([
                f"{row['label']}: {failed[:50]}" if failed else row["label"], name,
                cell(row.get("ratio", {}).get(part)), *(cell(x.get("over_floor"), ".1f") for x in (fused, plain)),
                *(cell(x, ",.1f") for x in times), cell(row["floor_us"][part], ",.1f"),
                cell(fused.get("gb_per_second"), ",.0f"),
            ])  # fmt: skip
    shape = f"(B, N, n) = ({sizes.batch}, {sizes.tokens}, {sizes.dim}), {sizes.heads} heads"
    title = f"Fused kernels, {shape}, {machine_name(device)}"
    columns = ["operation", "", "plain / fused", "fused / floor", "plain / floor"]
    columns += ["fused us", "plain us", "floor us", "fused GB/s"]
    caption = f"Floor: bytes at {speed / 1e9:,.0f} GB/s, a copy in this run."
    console().print(table(title, columns, cells, caption=caption))
