"""The cost table (paper, appendix "Computational Cost") on the machine at hand, for every system of the Tiny size.

Forward and backward and the whole step of each, timed in turns with the Euclidean ViT (`polarvit.experiments.bench`),
with parameters, memory and floating-point operations. The paper's times are of an RTX A5000; what compares is the ratio
to the Euclidean ViT.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from polarvit.experiments.bench.contestants import Case, Contestant, Setting
from polarvit.experiments.bench.report import cell, device_of, machine_name
from polarvit.experiments.bench.step import Row, fill, made_ready
from polarvit.experiments.bench.timing import Budget, Timed
from polarvit.experiments.registry import Settings
from polarvit.kernels.pick import kernels
from polarvit.models import create_model
from polarvit.provenance import provenance, write_json
from polarvit.tables import console, table
from polarvit.training.recipe import Precision
from polarvit.training.settings import SettingsError

BASE = "vit_tiny"
PAPER = {"vit_tiny": 21.0, "lorentz_vit_tiny": 52.0, "polar_vit_tiny": 58.0}
"""Milliseconds of forward and backward in the paper."""
SYSTEMS = (
    Contestant("vit_tiny", "Euclidean ViT", model="vit_tiny"),
    Contestant("lorentz_vit_tiny", "Lorentz ViT, ambient", model="lorentz_vit_tiny"),
    Contestant("polar_vit_tiny", "Polar-ViT", fused=True, model="polar_vit_tiny"),
    Contestant("hexformer_tiny", "HexFormer", model="hexformer_tiny"),
    Contestant("hexformer_hybrid_tiny", "HexFormer-Hybrid", model="hexformer_hybrid_tiny"),
    Contestant("lvit_tiny", "LViT", model="lvit_tiny"),
    Contestant("hvt_tiny", "HVT", model="hvt_tiny"),
)


def run(settings: Settings) -> list[str]:
    """Time every system, print the table, write `cost.json` (`cost-cpu.json` without a GPU) after each system.

    With `only` the other systems stay as the file has them: each row says when and where it was measured, and its
    ratio is to the Euclidean ViT of the same minutes.
    """
    device = device_of(settings.device)
    cuda = device.type == "cuda" and not settings.quick
    systems = [one for one in SYSTEMS if not settings.only or one.key in settings.only or one.key == BASE]
    for key in settings.only:
        if key not in [one.key for one in SYSTEMS]:
            raise SettingsError(f"--only: no system '{key}'; there are {', '.join(one.key for one in SYSTEMS)}")
    setting, batch = Setting(narrow=not cuda), 128 if cuda else 4
    precisions: tuple[Precision, ...] = ("fp32", "tf32") if cuda else ("fp32",)
    budget = Budget(120.0 if cuda else 5.0, len(precisions) * len(systems))
    origin = provenance(seed=0, quick=not cuda, product_precision=",".join(precisions))
    path = settings.out / f"cost{'' if cuda else '-cpu'}.json"
    sizes = setting.__dict__ | {"batch": batch}
    rows: list[Row] = []
    for precision in precisions:
        found: list[Row] = []
        case = Case(setting, device, batch, precision, compiled=cuda)
        for row in measured(systems, case, budget):
            found.append(row | {"provenance": {"date": origin["date"], "machine": origin["machine"]}})
            write(path, joined(before(path, sizes), rows + found), sizes, origin)
        show(found, f"{case}, {machine_name(device)}")
        rows += found
    console().print(f"wrote {path}", soft_wrap=True)
    return [f"{row['label']}, {row['precision']}: {row['failed']}" for row in rows if "failed" in row]


def measured(systems: Sequence[Contestant], case: Case, budget: Budget) -> Iterator[Row]:
    """One row after another: the Euclidean ViT, then every other system in turns with it."""
    base: Row = {}
    base_ready: dict[str, Timed] = {}
    for one in systems:
        row, ready = made_ready(one, case, budget)
        if one.key == BASE:
            base, base_ready = row, ready
        fill([base] if one.key == BASE else [base, row], budget.times(base_ready | ready, case.device))
        yield row | against(base, row) | {"gflops": flops(one.key, case.setting)}


def before(path: Path, sizes: dict[str, Any]) -> list[Row]:
    """Rows that the file holds, if they are of these sizes."""
    if not path.is_file():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    found: list[Row] = record["rows"] if record["setting"] == sizes else []
    return [row for row in found if "provenance" in row]


def joined(old: list[Row], new: list[Row]) -> list[Row]:
    """Old rows with new ones in their place, in the order of the systems."""
    rows = {(row["precision"], row["key"]): row for row in [*old, *new]}
    places = [one.key for one in SYSTEMS]
    return sorted(rows.values(), key=lambda row: (row["precision"], places.index(row["key"])))


def write(path: Path, rows: list[Row], sizes: dict[str, Any], origin: dict[str, Any]) -> None:
    """The JSON: every row, and a line for each system with the day and the machine it was measured on."""
    summary = {}
    for one in SYSTEMS:
        if value := stated(rows, one.key):
            newest = max((row["provenance"] for row in rows if row["key"] == one.key), key=lambda known: known["date"])
            summary[one.key] = {"value": value, "provenance": newest}
    record = {"experiment": "cost", "command": "polarvit reproduce cost", "provenance": origin, "setting": sizes}
    write_json(path, record | {"paper_ms": PAPER, "rows": rows, "summary": summary})


def against(base: Row, row: Row) -> dict[str, Any]:
    """Ratios of forward and backward, of the whole step and of memory to the Euclidean ViT, and the paper's."""
    paper = PAPER[row["key"]] / PAPER[BASE] if row["key"] in PAPER else None
    if "failed" in row or "failed" in base:
        return {"paper_ratio": paper}
    peak = row["peak_mib"] / base["peak_mib"] if row.get("peak_mib") and base.get("peak_mib") else None
    return {
        "both_ratio": row["forward_backward"]["ms"] / base["forward_backward"]["ms"],
        "step_ratio": row["step"]["ms"] / base["step"]["ms"],
        "memory_ratio": peak,
        "paper_ratio": paper,
    }


def flops(name: str, setting: Setting) -> float:
    """Billions of floating-point operations of the matrix products in forward and backward of one image.

    Counted on the CPU in plain code, where products are products; elementwise geometry and chords are not counted.
    """
    torch.manual_seed(0)
    model = create_model(name, **setting.options)
    image = torch.randn(1, 3, setting.image, setting.image)
    with kernels("plain"), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(image).sum().backward()
    return counter.get_total_flops() / 1e9


def stated(rows: list[Row], key: str) -> str:
    """One system in a line: milliseconds of forward and backward in each precision, each with its ratio, if any."""
    own = [row for row in rows if row["key"] == key and "failed" not in row]
    ratios = [f" ({row['both_ratio']:.2f}x)" if "both_ratio" in row else "" for row in own]
    times = [f"{row['forward_backward']['ms']:.1f} ms {row['precision']}" for row in own]
    return ", ".join(time + ratio for time, ratio in zip(times, ratios, strict=True))


def show(rows: list[Row], title: str) -> None:
    """The table, ratios first."""
    cells = [
        [
            f"{row['label']}: {row['failed'][:50]}" if "failed" in row else row["label"],
            cell(row.get("paper_ratio")),
            cell(row.get("both_ratio")),
            cell(row.get("step_ratio")),
            cell(row.get("forward_backward", {}).get("ms")),
            cell(row.get("step", {}).get("ms")),
            cell(row.get("peak_mib"), ",.0f"),
            cell(row.get("parameters"), ",d"),
            cell(row.get("gflops")),
        ]
        for row in rows
    ]
    columns = ["system", "paper", "fwd+bwd", "step", "fwd+bwd ms", "step ms", "peak MiB", "parameters", "GFLOP/image"]
    caption = "The first three columns are ratios to the Euclidean ViT; the paper's is of forward and backward."
    console().print(table(f"Cost of a training step: {title}", columns, cells, caption=caption))
