"""Where the time of a training step goes: the kernels of one step, by part and one by one.

    python benchmarks/step_profile.py
    python benchmarks/step_profile.py --size small --model polar --precision tf32 --out results/bench/profile-small.json

A model of `polarvit bench step` is brought to its captured step, and some replays are profiled. Parts: the folders of
`polarvit.kernels` by the names of their kernels, matrix products, what PyTorch's compiler made, and the rest, which is
mostly the optimizer. Needs a GPU.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import polarvit.kernels
from polarvit.experiments.bench.contestants import Case, chosen
from polarvit.experiments.bench.report import machine_name
from polarvit.experiments.bench.start import start
from polarvit.experiments.bench.step import BATCH, setting_of
from polarvit.provenance import provenance, write_json

PRODUCTS = re.compile(r"gemm|cutlass|nvjet|xmma|wgmma|s\d+gemm|splitk", re.IGNORECASE)
WARM, REPLAYS = 15, 4


def own_kernels() -> dict[str, str]:
    """The folder of every Triton kernel of the library, by the kernel's name."""
    from triton.runtime.jit import KernelInterface

    found = {}
    for module in pkgutil.walk_packages(polarvit.kernels.__path__, "polarvit.kernels."):
        part = module.name.removeprefix("polarvit.kernels.").partition(".")[0]
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, KernelInterface) and value.fn.__module__ == module.name:
                found[name] = part
    return found


def part_of(name: str, own: dict[str, str]) -> str:
    """Where a kernel belongs, by its name."""
    if name in own:
        return own[name]
    if PRODUCTS.search(name):
        return "matrix products"
    return "compiler" if name.startswith("triton_") else "others"


def totals(events: Any, replays: int) -> dict[str, tuple[float, float]]:
    """(microseconds, launches) of a step, by the name of the kernel."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in events:
        if str(event.device_type).endswith("CUDA"):
            found[event.name][0] += event.device_time / replays
            found[event.name][1] += 1 / replays
    return {name: (time, count) for name, (time, count) in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["tiny", "small", "base"], default="tiny")
    parser.add_argument("--model", default="polar", help="as for `polarvit bench step --only`")
    parser.add_argument("--precision", choices=["tf32", "fp32", "bf16"], default="tf32")
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    told = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("a profile needs a GPU")
    device = torch.device("cuda")
    one = next(each for each in chosen([told.model]) if each.key == told.model)
    with one.kernels():
        setting = setting_of(told.size, None, None, 100, device)
        step = start(one, Case(setting, device, BATCH[told.size], told.precision, compiled=True))
        for _ in range(WARM):
            step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for _ in range(REPLAYS):
                step()
            torch.cuda.synchronize()
    found, own = totals(profiled.events(), REPLAYS), own_kernels()
    parts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for name, (time, count) in found.items():
        parts[part_of(name, own)][0] += time
        parts[part_of(name, own)][1] += count
    whole, launches = (sum(part[i] for part in parts.values()) for i in (0, 1))
    print(f"{one.label}, {setting}, {told.precision}, {machine_name(device)}")
    print(f"{whole / 1e3:8.3f} ms in {launches:,.0f} launches")
    for name, (time, count) in sorted(parts.items(), key=lambda pair: -pair[1][0]):
        print(f"{time / 1e3:8.3f} ms {count:6,.0f} x  {name}")
    for name, (time, count) in sorted(found.items(), key=lambda pair: -pair[1][0])[:40]:
        print(f"{time:10.1f} us {count:6.1f} x {time / count:8.1f} us each  {part_of(name, own)}: {name[:90]}")
    if told.out:
        facts = provenance(seed=0, quick=False, product_precision=told.precision)
        write_json(told.out, {**facts, "setting": str(setting), "model": one.label, "parts": parts, "kernels": found})


if __name__ == "__main__":
    main()
