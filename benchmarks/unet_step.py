"""Training steps of the U-Nets side by side: time and memory, each as a ratio to the Euclidean one.

    python benchmarks/unet_step.py --out results/bench/unet-step.json
    python benchmarks/unet_step.py --models unet unet_polar unet_lorentz unet_poincare --uncompiled
    python benchmarks/unet_step.py --precision fp32

A step is forward, Dice and cross entropy, backward, optimizer. On a GPU it is one CUDA graph and the models take turns,
compiled or, with --uncompiled, as the recipes of the polar and the Euclidean net run; how long the first step took,
which compiles, is printed too. The bar is held against both. Without a GPU, narrow models on small images run
uncompiled, and the table says so: that is no result.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path
from typing import Any

import torch

from polarvit.experiments.bench.report import machine_name
from polarvit.experiments.bench.timing import Timed, interleaved
from polarvit.models import create_model
from polarvit.optim import RiemannianAdamW, param_groups
from polarvit.provenance import provenance, write_json
from polarvit.training.distributed import Place
from polarvit.training.segmentation import dice_cross_entropy
from polarvit.training.step import WARM_UP, TrainingStep, set_precision

BAR = 3.0
"""The polar net may cost this many times the Euclidean one, in time and in memory."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CUDA = DEVICE.type == "cuda"


def prepare(name: str, batch: int, size: int, precision: Any, compiles: bool) -> tuple[dict[str, Any], Timed]:
    """A model whose step is ready to be replayed, with its peak memory beyond what was there before."""
    gc.collect()
    torch._dynamo.reset()
    before = torch.cuda.memory_allocated(DEVICE) if CUDA else 0
    torch.manual_seed(0)
    model = create_model(name, img_size=size, **({} if CUDA else {"levels": 2})).to(DEVICE)
    parameters = model.count()
    images = torch.rand(batch, 3, size, size, device=DEVICE)
    masks = (images.mean(1) > 0.5).byte()
    if compiles:
        model.compile_blocks()
    optimizer = RiemannianAdamW(param_groups(model, 1e-3, 0.05), capturable=CUDA, compile=None if compiles else False)
    here = Place(0, 1, DEVICE)
    step = TrainingStep(model, optimizer, here, loss=dice_cross_entropy, precision=precision, graph=CUDA)

    def run() -> None:
        step(images, masks, 1e-3)

    began = time.perf_counter()
    run()
    if CUDA:
        torch.cuda.synchronize(DEVICE)
    first = time.perf_counter() - began
    facts: dict[str, Any] = {"model": name, "parameters": parameters, "first_step_s": first, "peak_mib": None}
    if CUDA:
        torch.cuda.reset_peak_memory_stats(DEVICE)  # what compilation tried out does not count
        for _ in range(WARM_UP):
            run()  # the last of these captures
        torch.cuda.synchronize(DEVICE)
        facts["peak_mib"] = (torch.cuda.max_memory_allocated(DEVICE) - before) / 2**20
    return facts, Timed(run, keeps=(model, step))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["unet", "unet_polar"], help="the first is the base of ratios")
    parser.add_argument("--batch", type=int, default=8 if CUDA else 2)
    parser.add_argument("--size", type=int, default=256 if CUDA else 32, help="side of the images")
    parser.add_argument("--precision", choices=["tf32", "fp32", "bf16"], default="tf32")
    parser.add_argument("--uncompiled", action="store_true", help="no compilation, as unet and unet_polar are trained")
    parser.add_argument("--seconds", type=float, default=30.0, help="time to spend on timing")
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    arguments = parser.parse_args()
    set_precision(arguments.precision)
    rows, cases = [], {}
    compiles = CUDA and not arguments.uncompiled
    for name in arguments.models:
        facts, cases[name] = prepare(name, arguments.batch, arguments.size, arguments.precision, compiles)
        rows.append(facts)
        print(f"{name}: ready, {facts['first_step_s']:.0f} s for the first step", flush=True)
    times = interleaved(cases, DEVICE, arguments.seconds)
    base = arguments.models[0]
    where = machine_name(DEVICE) if CUDA else "CPU, narrow: not a result"
    where += "" if compiles else ", uncompiled"
    print(f"training step, {arguments.size} px, batch {arguments.batch}, {arguments.precision}, {where}")
    for row in rows:
        row |= {"ms": times.median(row["model"]), "time_ratio": times.ratio(row["model"], base), "memory_ratio": None}
        memory = ""
        if row["peak_mib"]:
            row["memory_ratio"] = row["peak_mib"] / rows[0]["peak_mib"]
            memory = f"  {row['peak_mib']:8,.0f} MiB  {row['memory_ratio']:5.2f} x"
        print(f"{row['model']:14} {row['parameters']:8,}  {row['ms']:8.2f} ms  {row['time_ratio']:5.2f} x{memory}")
        if CUDA and row["model"] == "unet_polar":
            held = row["time_ratio"] <= BAR and row["memory_ratio"] <= BAR
            print(f"               bar: {BAR:g} x each, {'held' if held else 'MISSED'}")
    if arguments.out:
        setting = {key: value for key, value in vars(arguments).items() if key != "out"}
        facts = provenance(seed=0, quick=not CUDA, product_precision=arguments.precision)
        write_json(arguments.out, {**facts, "setting": setting, "rows": rows})


if __name__ == "__main__":
    main()
