"""How long the kernels of a model take to compile, for any NVIDIA GPU, with or without one.

    python benchmarks/compile_time.py
    python benchmarks/compile_time.py --model polar_vit_small --capability 80 --stages

A training step of one block runs on the CPU while Triton is told of another driver and every launch is stopped before
it compiles; what it would have compiled is then compiled here, one kernel after the other, into an empty cache. This is
what a first step waits for besides PyTorch's own compiler. Small sums and calibration share these kernels.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import tempfile
import time
from typing import Any

import torch
import triton
from triton import knobs

import polarvit.kernels
from polarvit.kernels.ahead import Elsewhere, wanted
from polarvit.kernels.pick import kernels
from polarvit.models import VisionModel, create_model


def training_step(model: VisionModel, batch: int) -> None:
    """Forward and backward, called like kernels on a GPU are."""
    os.environ["TRITON_INTERPRET"] = "1"  # lets kernels be called with tensors of a CPU
    try:
        with kernels("interpreted"):
            logits = model.train()(torch.randn(batch, 3, *model.config.image))
            logits.nan_to_num().sum().backward()  # nothing was computed: what was allocated may hold anything
    finally:
        del os.environ["TRITON_INTERPRET"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="polar_vit_tiny", help="registered name; tiny takes 32 px in patches of 4")
    parser.add_argument("--capability", type=int, default=90, help="of the GPU: 90 for H100 and H200, 80 for A100")
    parser.add_argument("--batch", type=int, default=16, help="images; multiples of 16 share their kernels")
    parser.add_argument("--stages", action="store_true", help="seconds of each stage too")
    told = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET"):
        parser.error("TRITON_INTERPRET is set: nothing would be compiled")

    triton.runtime.driver.set_active(Elsewhere("cuda", told.capability, 32))
    for found in pkgutil.walk_packages(polarvit.kernels.__path__, "polarvit.kernels."):
        importlib.import_module(found.name)  # all at once, or those imported below would be made for the interpreter
    size = {"img_size": 32, "patch_size": 4} if told.model.endswith("tiny") else {}
    model = create_model(told.model, depth=1, num_classes=100, implementation="triton", **size)
    jobs = wanted(lambda: training_step(model, told.batch))

    stages: list[str] = []

    def listen(*, times: Any, **others: Any) -> None:
        stages.append(", ".join(f"{name} {micros / 1e6:.2f}" for name, micros in times.lowering_stages))

    knobs.compilation.listener = listen
    total = 0.0
    with tempfile.TemporaryDirectory() as cache:
        knobs.cache.dir = cache
        for module, name, how in jobs:
            began = time.perf_counter()
            getattr(importlib.import_module(module), name).preload(how)
            seconds = time.perf_counter() - began
            total += seconds
            print(f"{seconds:6.2f} s  {name}" + (f"  ({stages[-1]})" if told.stages else ""), flush=True)
    print(f"{total:6.2f} s  {len(jobs)} kernels of {told.model} for sm_{told.capability}, Triton {triton.__version__}")


if __name__ == "__main__":
    main()
