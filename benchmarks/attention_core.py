"""Time the attention core: the polar kernel, its compiled reference and scaled dot product attention, side by side.

    python benchmarks/attention_core.py --out attention_core.json
    python benchmarks/attention_core.py --tune

Medians of CUDA-graph replays on a GPU. Without one it runs a tiny size through the plain reference and says so.
Ratios are taken against float32 SDPA with TF32 products (its default on the tensor cores) in the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polarvit.geometry import PolarPoint
from polarvit.kernels.attention import polar_attention, reference_attention

SHAPES = [(128, 12, 64, 16), (64, 6, 196, 64), *((1, 12, n, 64) for n in (256, 1024, 4096, 16384))]
TINY = [(2, 2, 16, 8)]
LARGEST_REFERENCE = 3_000_000_000  # bytes of one N x N matrix; beyond it the reference is left out


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


def contestants(shape: tuple[int, ...], device: str) -> dict[str, tuple[Callable[..., Any], list[Tensor], bool]]:
    """name -> (function, leaves, TF32 products allowed)."""
    b, h, n, d = shape
    cuda = device == "cuda"
    scale = torch.full((h,), d**-0.5, device=device, requires_grad=True)
    compiled = torch.compile(reference_attention) if cuda else reference_attention

    def polar(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *x: tuple(function(*(PolarPoint(*x[i : i + 2]) for i in (0, 2, 4)), x[6]))

    def product(*x: Tensor) -> tuple[Tensor]:
        return (F.scaled_dot_product_attention(*x),)

    plain = [torch.randn(shape, device=device, requires_grad=True) for _ in range(3)]
    narrow = [x.detach().bfloat16().requires_grad_() for x in plain]
    rows: dict[str, tuple[Callable[..., Any], list[Tensor], bool]] = {
        "SDPA float32 (TF32)": (product, plain, True),
        "SDPA float32 strict": (product, plain, False),
        "SDPA bfloat16": (product, narrow, True),
    }
    if cuda:
        rows["polar, dimension first"] = (polar(polar_attention), [*inputs(shape, device, True), scale], True)
        rows["polar, row major"] = (polar(polar_attention), [*inputs(shape, device), scale], True)
    if b * h * n * n * 4 <= LARGEST_REFERENCE:
        rows["polar reference, " + ("compiled" if cuda else "eager")] = (
            polar(compiled),
            [*inputs(shape, device), scale],
            False,
        )
    return rows


def milliseconds(step: Callable[[], Any], samples: int = 15) -> float:
    """Median time of one step: several steps in one CUDA graph, timed by events (host clock without a GPU)."""
    if not torch.cuda.is_available():
        times = []
        step()
        for _ in range(5):
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        end.record()
    torch.cuda.synchronize()
    repeats = max(1, min(20, int(5 / max(start.elapsed_time(end), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            step()
    graph.replay()
    times = []
    for _ in range(samples):
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / repeats)
    return statistics.median(times)


def measure(function: Callable[..., Any], leaves: list[Tensor], tf32: bool) -> dict[str, float]:
    torch.backends.cuda.matmul.allow_tf32 = tf32
    with torch.no_grad():
        result = function(*leaves)
    upstream = [torch.randn_like(x) for x in result]

    def forward() -> Any:
        with torch.no_grad():
            return function(*leaves)

    def both() -> Any:
        return torch.autograd.grad(function(*leaves), leaves, upstream)

    extra = 0.0
    if torch.cuda.is_available():
        both()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        both()
        extra = (torch.cuda.max_memory_allocated() - before) / 2**20
    return {"forward_ms": milliseconds(forward), "forward_backward_ms": milliseconds(both), "extra_mib": extra}


def machine() -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if cuda else f"CPU {platform.processor()}: tiny size, not a result",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def compare(shapes: list[tuple[int, ...]], device: str) -> list[dict[str, Any]]:
    results = []
    for shape in shapes:
        rows: dict[str, Any] = {}
        for name, (function, leaves, tf32) in contestants(shape, device).items():
            try:
                rows[name] = measure(function, leaves, tf32)
            except Exception as error:  # a contestant that cannot run must not end the comparison
                rows[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
                torch.cuda.empty_cache()
        base = rows["SDPA float32 (TF32)"]
        print(f"\n(B, H, N, d) = {shape}\n{'ratio f':>8} {'f+b':>6} {'f us':>10} {'f+b us':>10} {'MiB':>8}")
        for name, row in rows.items():
            if "error" in row:
                print(f"{'-':>8} {'-':>6} {'-':>10} {'-':>10} {'-':>8}  {name}: {row['error'][:90]}")
                continue
            for key in ("forward", "forward_backward"):
                row[f"{key}_ratio"] = row[f"{key}_ms"] / base[f"{key}_ms"]
            print(
                f"{row['forward_ratio']:8.2f} {row['forward_backward_ratio']:6.2f} {1e3 * row['forward_ms']:10.1f} "
                f"{1e3 * row['forward_backward_ms']:10.1f} {row['extra_mib']:8.1f}  {name}",
                flush=True,
            )
        results.append({"shape": shape, "rows": rows})
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    parser.add_argument("--tune", action="store_true", help="try block sizes, warps and products at the main shapes")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="only the first so many shapes")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    report: dict[str, Any] = {"machine": machine()}
    print(report["machine"])
    if arguments.tune:
        from attention_tune import tune

        report["tune"] = tune()
    else:
        report["shapes"] = compare((SHAPES if device == "cuda" else TINY)[: arguments.shapes], device)
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
