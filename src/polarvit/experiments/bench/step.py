"""Time of a whole training step: forward, backward and optimizer of several models beside each other.

On a GPU the step is one CUDA graph and the figures are medians over replays, timed with events. On a CPU sizes are
small and the table says so: it shows that everything runs, not how fast the library is.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polarvit.kernels.pick import kernels
from polarvit.models import AmbientTwin, PolarViT, calibrate, create_model
from polarvit.optim import RiemannianAdamW, param_groups
from polarvit.provenance import provenance, write_json
from polarvit.tables import console, table
from polarvit.training.distributed import Place
from polarvit.training.recipe import Precision
from polarvit.training.step import WARM_UP, TrainingStep, set_precision


@dataclass(frozen=True)
class Contestant:
    """A model to time: its name in the table, how it is made, and which kernels it may use."""

    label: str
    model: str
    options: dict[str, Any]
    plain: bool = False
    """Plain PyTorch instead of the fused kernels."""
    ambient: bool = False
    """The same network in ambient arithmetic."""


def contestants(size: str) -> list[Contestant]:
    """Who runs: the twin (with as many tokens) is what ratios are taken against."""
    return [
        Contestant("Euclidean ViT", f"vit_{size}", {"readout": "mean"}),
        Contestant("Euclidean ViT, class token", f"vit_{size}", {}),
        Contestant("Polar-ViT", f"polar_vit_{size}", {}),
        Contestant("Polar-ViT, joint shift", f"polar_vit_{size}", {"position": "joint"}),
        Contestant("Polar-ViT, plain code", f"polar_vit_{size}", {"implementation": "reference"}, plain=True),
        Contestant("Lorentz ViT, ambient", f"polar_vit_{size}", {"implementation": "reference"}, ambient=True),
    ]


def run(
    *,
    size: str = "tiny",
    image: int = 32,
    patch: int = 4,
    classes: int = 100,
    batch: int = 128,
    precisions: Sequence[Precision] = ("tf32",),
    device: str | None = None,
    repeats: int = 60,
    compiled: bool = True,
    only: str | None = None,
    out: Path | None = None,
) -> list[dict[str, Any]]:
    """Time every contestant in every precision, print the table, write the JSON if `out` is given."""
    place = Place(0, 1, torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")))
    small = place.device.type == "cpu"
    narrow: dict[str, Any] = {"depth": 2, "dim": 24, "mlp_dim": 48, "heads": 2} if small else {}
    if small:
        batch, repeats, compiled = min(batch, 8), min(repeats, 3), False
    rows: list[dict[str, Any]] = []
    for precision in precisions:
        base: float | None = None
        for one in contestants(size):
            if only is not None and only not in one.label and one.label != "Euclidean ViT":
                continue
            options = {"img_size": image, "patch_size": patch, "num_classes": classes, **one.options, **narrow}
            row: dict[str, Any] = {"label": one.label, "precision": precision, "batch": batch}
            try:
                row |= measure(one, options, place, batch, precision, repeats, compiled)
            except torch.OutOfMemoryError:
                row["failed"] = "out of memory"
            base = base if base is not None else row.get("milliseconds")
            row["ratio"] = row["milliseconds"] / base if base and "milliseconds" in row else None
            rows.append(row)
    show(rows, f"ViT-{size.title()}, {image} px, patch {patch}" + (", NARROW (no GPU)" if small else ""), place)
    if out is not None:
        setting = {"size": size, "image": image, "patch": patch, "narrow": small, "compiled": compiled}
        write_json(out, {**provenance(seed=0, product_precision=",".join(precisions)), **setting, "rows": rows})
    return rows


def measure(
    one: Contestant,
    options: dict[str, Any],
    place: Place,
    batch: int,
    precision: Precision,
    repeats: int,
    compiled: bool,
) -> dict[str, Any]:
    """Median milliseconds of a step, seconds to the first one, peak MiB, parameters."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    set_precision(precision)
    cuda = place.device.type == "cuda"
    began = time.perf_counter()
    model = create_model(one.model, **options).to(place.device)
    images = torch.randn(batch, model.config.in_chans, *model.config.image, device=place.device)
    targets = torch.randn(batch, options["num_classes"], device=place.device).softmax(-1)
    if isinstance(model, PolarViT):
        calibrate(model, images)
    if compiled and not one.ambient:
        model.compile_blocks()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    trained: nn.Module = AmbientTwin(model) if one.ambient and isinstance(model, PolarViT) else model
    with kernels("plain" if one.plain or one.ambient else "auto"):
        optimizer = RiemannianAdamW(param_groups(model, 1e-3, 0.05), capturable=cuda)
        step = TrainingStep(trained, optimizer, place, precision=precision, graph=cuda)
        step(images, targets, 1e-3).item()
        first = time.perf_counter() - began
        for _ in range(WARM_UP + 1):
            step(images, targets, 1e-3)
        times = [_once(step, images, targets, cuda) for _ in range(repeats)]
    return {
        "milliseconds": statistics.median(times),
        "fastest": min(times),
        "first_step_seconds": first,
        "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else None,
        "parameters": model.count(),
    }


def _once(step: TrainingStep, images: Tensor, targets: Tensor, cuda: bool) -> float:
    if not cuda:
        began = time.perf_counter()
        step(images, targets, 1e-3)
        return 1e3 * (time.perf_counter() - began)
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    step(images, targets, 1e-3)
    after.record()
    after.synchronize()
    return before.elapsed_time(after)


def show(rows: list[dict[str, Any]], title: str, place: Place) -> None:
    """The table, ratios first."""
    device = torch.cuda.get_device_name(place.device) if place.device.type == "cuda" else "CPU"
    cells = [
        [
            f"{row['label']}, {row['precision']}",
            f"{row['ratio']:.2f}" if row["ratio"] else row.get("failed", "-"),
            f"{row['milliseconds']:.2f}" if "milliseconds" in row else "-",
            f"{row['peak_mib']:,.0f}" if row.get("peak_mib") else "-",
            f"{row['first_step_seconds']:.1f}" if "first_step_seconds" in row else "-",
        ]
        for row in rows
    ]
    heading = f"Whole training step: {title}, batch {rows[0]['batch']}, {device}"
    console().print(table(heading, ["model", "ratio", "ms", "peak MiB", "first step s"], cells))
