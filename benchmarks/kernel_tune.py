"""Find launch parameters for the kernels between the matrix products: linear epilogue, gyro layer norm, boost residual.

    python benchmarks/kernel_tune.py --out kernel_tune.json
    python benchmarks/kernel_tune.py --cases tiny --ops linear norm

Every candidate is compiled first, many at a time in processes of their own; then one after the other is timed (median
of CUDA-graph replays, the sum of its partial gradients included). One that fails is listed and skipped. The best belong
into `forward_launch` and `backward_launch` of each folder's `operator.py`; `*` marks what stands there now.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from timing import machine, milliseconds
from torch import Tensor

DEVICE = "cuda"


class Case(NamedTuple):
    """An operation on samples x tokens x width; `activation` is the linear layer's."""

    op: str
    shape: tuple[int, int, int]
    activation: str | None = None

    def __str__(self) -> str:
        return f"{self.op} {' x '.join(map(str, self.shape))}{' ' + self.activation if self.activation else ''}"


CASES = {
    "tiny": [
        Case("linear", (128, 64, 192)),
        Case("linear", (128, 64, 384), "gelu"),
        Case("norm", (128, 64, 192)),
        Case("residual", (128, 64, 192)),
    ],
    "small": [
        Case("linear", (64, 196, 384)),
        Case("linear", (64, 196, 1536), "gelu"),
        Case("norm", (64, 196, 384)),
        Case("residual", (64, 196, 384)),
    ],
}


def operators(op: str) -> Any:
    if op == "linear":
        from polarvit.kernels.linear import operator
    elif op == "norm":
        from polarvit.kernels.norm import operator  # type: ignore[no-redef]
    else:
        from polarvit.kernels.residual import operator  # type: ignore[no-redef]
    return operator


def launch_arguments(case: Case) -> tuple[Any, ...]:
    """What the operator's launch functions are asked with."""
    _, count, width = case.shape
    if case.op == "linear":
        return width, operators("linear").ACTIVATIONS[case.activation]
    return count, width


def candidates(case: Case, direction: str) -> Iterator[Any]:
    """What one might launch, first what stands in the operator now."""
    module = operators(case.op)
    launch, (_, count, width) = module.Launch, case.shape
    current = getattr(module, f"{direction}_launch")(*launch_arguments(case))
    yield current
    rows = 1 << (count - 1).bit_length()
    wide = [lanes for lanes in (16, 32, 64, 128, 256, 512) if width / 12 <= lanes <= width / 1.5]
    if case.op == "linear" and direction == "forward":
        options = [launch(lanes, warps) for lanes in wide for warps in (2, 4, 8)]
    elif case.op == "linear":
        options = [launch(lanes, warps, p) for lanes in wide for warps in (4, 8) for p in (264, 528)]
    elif case.op == "norm" and current.held:
        options = [launch(lanes, rows, warps, True) for lanes in (16, 32, 64) for warps in (4, 8, 16)]
    elif case.op == "norm":
        sizes = [(lanes, 128 * warps // lanes, warps) for lanes in wide for warps in (2, 4, 8)]
        options = [launch(lanes, r, warps, False) for lanes, r, warps in sizes if r]
    elif direction == "forward" and rows * width <= module.LARGEST_HELD:
        options = [launch(lanes, rows, warps) for lanes in (16, 32, 64) for warps in (4, 8, 16)]
    elif direction == "forward":
        sizes = [(lanes, 128 * warps // lanes, warps) for lanes in wide for warps in (4, 8)]
        options = [launch(lanes, r, warps, split) for lanes, r, warps in sizes if r for split in (2, 4, 8)]
    else:
        sizes = [(lanes, 128 * warps // lanes, warps) for lanes in wide for warps in (1, 2, 4, 8)]
        options = [launch(lanes, r, warps) for lanes, r, warps in sizes if r]
    yield from (option for option in options if option != current)


def points(shape: tuple[int, ...]) -> list[Tensor]:
    """Radii from 1/2 to 2 and unit directions."""
    return [0.5 + 1.5 * torch.rand(shape[:-1], device=DEVICE), F.normalize(torch.randn(shape, device=DEVICE), dim=-1)]


def prepared(case: Case, direction: str) -> Callable[[], Any]:
    """A closure that calls the operator of one direction alone."""
    module, (samples, count, width) = operators(case.op), case.shape
    if case.op == "linear":
        a = 2 * torch.rand(samples * count, device=DEVICE)
        product = 0.1 * torch.randn(samples * count, width + 8, device=DEVICE)
        weight, scalars = 0.1 * torch.randn(width, device=DEVICE), torch.tensor([1.0, 0.1, 0.0], device=DEVICE)
        inputs = (product, a, weight, *scalars.unbind())
        last = (module.ACTIVATIONS[case.activation], 1.0)
        radius, unit, norm = module.linear_epilogue_op(*inputs, *last)
        upstream = torch.randn_like(radius), torch.randn_like(unit)
        if direction == "forward":
            return lambda: module.linear_epilogue_op(*inputs, *last)
        return lambda: module.linear_epilogue_backward_op(*inputs[:5], radius, norm, *upstream, *last)
    if case.op == "norm":
        x = (*points(case.shape), torch.tensor(3.0, device=DEVICE), 0.1 * torch.randn(width, device=DEVICE), None)
        radius, unit, *saved = module.norm_forward(*x, 1e-5)
        upstream = torch.randn_like(radius), torch.randn_like(unit)
        if direction == "forward":
            return lambda: module.norm_forward(*x, 1e-5)
        return lambda: module.norm_backward(*upstream, *x[:4], *saved)
    steps = (*points(case.shape), *points(case.shape), torch.tensor(0.1, device=DEVICE), torch.rand(samples).to(DEVICE))
    radius, unit, signed = module.residual_forward(*steps)
    upstream = torch.randn_like(radius), torch.randn_like(unit)
    if direction == "forward":
        return lambda: module.residual_forward(*steps)
    return lambda: module.residual_backward(*upstream, *steps, signed)


def install(case: Case, direction: str, launch: Any) -> Any:
    """Make the operator use `launch`; returns what it used before."""
    module, name = operators(case.op), f"{direction}_launch"
    before = getattr(module, name)
    setattr(module, name, lambda *_: launch)
    return before


def warm(task: tuple[Case, str, Any]) -> str | None:
    """Compile one candidate into Triton's cache on disk; says what went wrong."""
    case, direction, launch = task
    before = install(case, direction, launch)
    try:
        prepared(case, direction)()
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:160]
    finally:
        setattr(operators(case.op), f"{direction}_launch", before)
    return None


def compile_all(tasks: list[tuple[Case, str, Any]], workers: int) -> list[str | None]:
    troubles: list[str | None] = ["not compiled in time"] * len(tasks)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(warm, task): i for i, task in enumerate(tasks)}
        for future in as_completed(futures):
            try:
                troubles[futures[future]] = future.result()
            except Exception as error:  # a process that died takes its candidate along, not the run
                troubles[futures[future]] = f"{type(error).__name__}: {error}"[:160]
    return troubles


def usage(case: Case, direction: str, launch: Any) -> str:
    """Registers and spilled bytes of the kernel compiled last, where it is one kernel and this Triton tells."""
    if not getattr(launch, "held", True):
        return ""
    kernel = getattr(operators(case.op), f"{case.op}_{direction}_kernel")
    try:
        compiled = list(kernel.device_caches[torch.cuda.current_device()][0].values())[-1]
        return f"{compiled.n_regs} regs, {compiled.n_spills} spilled"
    except (AttributeError, IndexError, KeyError, TypeError):
        return ""


def measure(task: tuple[Case, str, Any]) -> tuple[float, str]:
    case, direction, launch = task
    before = install(case, direction, launch)
    try:
        return 1e3 * milliseconds(prepared(case, direction)), usage(case, direction, launch)
    finally:
        setattr(operators(case.op), f"{direction}_launch", before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument(
        "--ops", nargs="+", choices=["linear", "norm", "residual"], default=["linear", "norm", "residual"]
    )
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--shown", type=int, default=4, help="how many of the best to print")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("kernel_tune needs a CUDA device: launch parameters mean nothing to the interpreter")
    torch.manual_seed(0)
    cases = [case for name in arguments.cases for case in CASES[name] if case.op in arguments.ops]
    groups = [(case, direction) for case in cases for direction in ("forward", "backward")]
    tasks = [(*group, launch) for group in groups for launch in candidates(*group)]
    start = time.perf_counter()
    troubles = compile_all(tasks, arguments.workers)
    print(f"{machine()}\n{len(tasks)} candidates compiled in {time.perf_counter() - start:.0f} s", flush=True)
    rows: list[dict[str, Any]] = []
    for case, direction in groups:
        found: list[dict[str, Any]] = []
        for (owner, way, launch), trouble in zip(tasks, troubles, strict=True):
            if (owner, way) != (case, direction):
                continue
            row: dict[str, Any] = {"case": str(case), "direction": direction, "launch": asdict(launch)}
            row["current"] = not found
            try:
                row["trouble"] = trouble
                if trouble is None:
                    row["us"], row["usage"] = measure((case, direction, launch))
            except Exception as error:
                row["trouble"] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
            found.append(row)
        rows += found
        print(f"-- {case} {direction}: us, launch")
        good = sorted((row for row in found if "us" in row), key=lambda row: float(row["us"]))
        for row in good:
            if row["current"] or row in good[: arguments.shown]:
                print(f"{row['us']:8.1f} {'*' if row['current'] else ' '} {row['launch']} {row['usage']}", flush=True)
        for row in found:
            if row["trouble"]:
                print(f"       -   {row['launch']} {row['trouble']}"[:150], flush=True)
    print(f"{time.perf_counter() - start:.0f} s in all")
    if arguments.out:
        arguments.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
