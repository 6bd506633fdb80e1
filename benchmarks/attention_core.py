"""Tune the attention core: block sizes, warps and products of its kernels at the main shapes.

    python benchmarks/attention_core.py --tune --out attention_tune.json

Timing it beside scaled dot product attention is `polarvit bench attention`.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polarvit.experiments.bench.timing import captured, interleaved


def inputs(shape: tuple[int, ...], device: str, dimension_first: bool = False) -> list[Tensor]:
    """Radii and directions of query, key and value, radii up to 2, as leaves."""
    leaves = []
    for _ in range(3):
        radius = 0.5 + 1.5 * torch.rand(shape[:-1], device=device)
        direction = F.normalize(torch.randn(shape, device=device), dim=-1)
        if dimension_first:
            direction = direction.mT.contiguous().mT
        leaves += [radius.requires_grad_(), direction.requires_grad_()]
    return leaves


def milliseconds(step: Callable[[], Any], samples: int = 15) -> float:
    """Median time of one step: several steps in one CUDA graph, timed by events (host clock without a GPU)."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    times = interleaved({"step": captured([step], device)}, device, seconds=60.0, most=samples)
    return times.median("step")


def machine() -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if cuda else f"CPU {platform.processor()}: tiny size, not a result",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    parser.add_argument("--tune", action="store_true", required=True, help="try launch parameters at the main shapes")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    report: dict[str, Any] = {"machine": machine()}
    print(report["machine"])
    from attention_tune import tune

    report["tune"] = tune()
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
