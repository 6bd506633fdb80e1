"""The attention core: `polar_attention` beside scaled dot product attention and its own reference, ratios first.

Ratios are against float32 SDPA with TF32 products, its faster way. Backward is what forward and backward take together
less forward alone. Extra memory is the peak of one forward and backward beyond what was allocated before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polarvit.compilation import compiled
from polarvit.experiments.bench import bars
from polarvit.experiments.bench.picture import draw_attention
from polarvit.experiments.bench.report import FOLDER, cell, device_of, keep, leave, machine_name
from polarvit.experiments.bench.timing import Budget, Timed, captured, extra_memory
from polarvit.geometry import PolarPoint
from polarvit.kernels.attention import polar_attention, reference_attention
from polarvit.models.vit import MOST_WRITTEN_OUT, written_out_attention
from polarvit.tables import console, table
from polarvit.training.step import set_precision

Shape = tuple[int, int, int, int]
SHAPES: tuple[Shape, ...] = ((128, 12, 64, 16), (64, 6, 196, 64), (128, 12, 65, 16), (8, 12, 1024, 64))
SMALL: tuple[Shape, ...] = ((2, 2, 16, 8), (1, 2, 33, 16))
TOKENS = (1024, 2048, 4096, 8192, 16384)
LARGEST_MATRIX = 2**31
"""Bytes of one N x N matrix for all heads; beyond that the reference, which keeps several, is left out."""
LABELS = {
    "sdpa": "SDPA, float32 with TF32 products",
    "sdpa-strict": "SDPA, strict float32",
    "sdpa-bf16": "SDPA, bf16",
    "written-out": "dot products written out, compiled, TF32",
    "polar": "polar, as the model calls it",
    "row-major": "polar, directions not yet transposed",
    "reference": "polar, compiled reference",
}


class Core:
    """One way to attend: the function, its leaves, and the products it may use."""

    def __init__(self, key: str, shape: Shape, device: torch.device, *, compile: bool = True) -> None:
        self.key, self.tf32 = key, key != "sdpa-strict"
        heads, d = shape[1], shape[3]
        self.function: Callable[..., Sequence[Tensor]]
        if key.startswith("sdpa"):
            dtype = torch.bfloat16 if key == "sdpa-bf16" else torch.float32
            self.leaves = [torch.randn(shape, device=device, dtype=dtype).requires_grad_() for _ in range(3)]
            self.function = lambda *x: (F.scaled_dot_product_attention(*x),)
            return
        wanted = compile and device.type == "cuda"
        if key == "written-out":
            self.leaves = [torch.randn(shape, device=device).requires_grad_() for _ in range(3)]
            dots = compiled(written_out_attention) if wanted else written_out_attention
            self.function = lambda *x: (dots(*x),)
            return
        scale = torch.full((heads,), d**-0.5, device=device)
        self.leaves = [*points(shape, device, first=key == "polar"), scale.requires_grad_()]
        core: Callable[..., PolarPoint] = polar_attention
        if key == "reference":
            core = compiled(reference_attention) if wanted else reference_attention
        self.function = lambda *x: core(*(PolarPoint(*x[i : i + 2]) for i in (0, 2, 4)), x[6])

    def prepare(self) -> None:
        """Upstream gradients, and the products of this way of attending. Call before anything below is captured."""
        set_precision("tf32" if self.tf32 else "fp32")
        with torch.no_grad():
            self.upstream = [torch.randn_like(x) for x in self.function(*self.leaves)]

    def forward(self) -> Sequence[Tensor]:
        with torch.no_grad():
            return self.function(*self.leaves)

    def both(self) -> Sequence[Tensor]:
        return torch.autograd.grad(list(self.function(*self.leaves)), self.leaves, self.upstream)


def points(shape: Shape, device: torch.device, first: bool) -> list[Tensor]:
    """Radii and directions of query, key and value, radii from 1/2 to 2, as leaves.

    With `first` directions lie dimension first in memory, as the kernel before the core writes them.
    """
    leaves = []
    for _ in range(3):
        radius = 0.5 + 1.5 * torch.rand(shape[:-1], device=device)
        direction = F.normalize(torch.randn(shape, device=device), dim=-1)
        if first:
            direction = direction.mT.contiguous().mT
        leaves += [radius.requires_grad_(), direction.requires_grad_()]
    return leaves


def run(
    *,
    shapes: Sequence[Shape] = (),
    tokens: Sequence[int] = TOKENS,
    device: str | None = None,
    seconds: float = 40.0,
    reference: bool = True,
    out: Path | None = FOLDER,
) -> dict[str, Any]:
    """Times at every shape, extra memory at every number of tokens; print the tables, write and return the record."""
    here = device_of(device)
    cuda = here.type == "cuda"
    shapes = tuple(shapes) or (SHAPES if cuda else SMALL)
    torch.manual_seed(0)
    budget = Budget(seconds, len(shapes))
    results: list[dict[str, Any]] = []
    memory: list[dict[str, Any]] = []
    content = {"shapes": results, "extra_memory_mib": memory}
    for shape in shapes:
        rows = measure(shape, here, budget, reference)
        show(shape, rows, here)
        results.append({"shape": shape, "rows": rows})
        keep(out, "attention", here, content, judge(results, memory), "tf32")  # what is measured outlives an end here
    if cuda:
        memory += [memory_at((1, 12, n, 64), here, budget) for n in tokens]
    show_memory(memory)
    draw = partial(draw_attention, shapes=results, memory=memory)
    return leave(out, "attention", here, content, judge(results, memory), draw, "tf32")


def measure(shape: Shape, device: torch.device, budget: Budget, reference: bool = True) -> list[dict[str, Any]]:
    """One row for each way to attend, timed in turns."""
    b, h, n, _ = shape
    rows: list[dict[str, Any]] = []
    cases: dict[str, Timed] = {}
    for key, label in LABELS.items():
        if key == "reference" and (not reference or 4 * b * h * n * n > LARGEST_MATRIX):
            continue
        if key == "written-out" and n > MOST_WRITTEN_OUT:
            continue
        row: dict[str, Any] = {"key": key, "label": label}
        rows.append(row)
        try:
            torch._dynamo.reset()
            core = Core(key, shape, device)
            core.prepare()
            row["extra_mib"] = extra_memory(core.both, device)
            cases |= {f"{key}: {part}": captured([getattr(core, part)], device) for part in ("forward", "both")}
        except Exception as error:  # one that cannot run must not end the comparison
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
            cases = {name: timed for name, timed in cases.items() if not name.startswith(f"{key}:")}
    budget.say(f"attention {shape}: {len(rows)} ways ready")
    times = budget.times(cases, device)
    base = rows[0]
    for row in rows:
        if "failed" in row:
            continue
        for part in ("forward", "both"):
            row[part] = times.record(f"{row['key']}: {part}")
            if "failed" not in base:
                row[part]["ratio"] = times.ratio(f"{row['key']}: {part}", f"{base['key']}: {part}")
        row["backward"] = {"ms": row["both"]["ms"] - row["forward"]["ms"]}
        if "failed" not in base:
            row["backward"]["ratio"] = row["backward"]["ms"] / base["backward"]["ms"]
    return rows


def show(shape: Shape, rows: Sequence[dict[str, Any]], device: torch.device) -> None:
    cells = []
    for row in rows:
        parts = [row.get(part, {}) for part in ("both", "forward", "backward")]
        cells.append([
            f"{row['label']}: {row['failed'][:60]}" if "failed" in row else row["label"],
            *(cell(part.get("ratio")) for part in parts),
            *(cell(1e3 * part["ms"] if "ms" in part else None, ",.1f") for part in parts),
            cell(row.get("extra_mib"), ",.1f"),
        ])  # fmt: skip
    title = f"Attention core, (B, H, N, d) = {shape}, {machine_name(device)}"
    columns = ["", "fwd+bwd", "forward", "backward", "fwd+bwd us", "forward us", "backward us", "extra MiB"]
    console().print(table(title, columns, cells, caption="First three columns: ratio to the first row."))


def memory_at(shape: Shape, device: torch.device, budget: Budget) -> dict[str, Any]:
    """MiB beyond the inputs at the peak of forward and backward, for SDPA, the kernel and the reference if it fits."""
    b, h, n, _ = shape
    row: dict[str, Any] = {"tokens": n, "shape": shape}
    for key in ("sdpa", "polar", "reference"):
        if key == "reference" and 4 * b * h * n * n > LARGEST_MATRIX:
            continue
        try:
            core = Core(key, shape, device, compile=False)  # three compilations would cost minutes
            core.prepare()
            row[key] = extra_memory(core.both, device)
        except torch.OutOfMemoryError:
            row[key] = None
    budget.say(f"extra memory at {n} tokens: polar {cell(row['polar'], ',.0f')} MiB")
    return row


def show_memory(rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    cells = [[f"{row['tokens']:,}", *(cell(row.get(key), ",.0f") for key in ("polar", "sdpa", "reference"))]
             for row in rows]  # fmt: skip
    title = "Extra peak memory of forward and backward in MiB, 12 heads, d = 64"
    console().print(table(title, ["tokens", "polar", "SDPA float32", "reference, eager"], cells))


def judge(results: Sequence[dict[str, Any]], memory: Sequence[dict[str, Any]]) -> list[bars.Claim]:
    claims = []
    for result in results:
        bar = bars.ATTENTION.get(tuple(result["shape"]))
        polar = next(row for row in result["rows"] if row["key"] == "polar")
        if bar is not None:
            case = f"attention {tuple(result['shape'])}, forward+backward / float32 SDPA"
            claims.append(bars.Claim(case, polar.get("both", {}).get("ratio"), bar))
    extra = {row["tokens"]: row["polar"] for row in memory}
    for shape, bar in bars.ATTENTION_MEMORY.items():
        n = shape[2]
        if n in extra:
            claims.append(bars.Claim(f"extra memory of attention at N = {n:,}", extra[n], bar, " MiB"))
            half = extra.get(n // 2)
            growth = extra[n] / half if half and extra[n] else None
            claims.append(bars.Claim(f"its growth from N = {n // 2:,}: linear", growth, bars.ATTENTION_GROWTH, "x"))
    return claims
