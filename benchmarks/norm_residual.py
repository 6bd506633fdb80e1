"""Time the gyro layer norm and the boost residual: kernel, compiled reference and Euclidean counterpart, side by side.

    python benchmarks/norm_residual.py --out norm_residual.json
    python benchmarks/norm_residual.py --tune

Medians of CUDA-graph replays on a GPU. Without one it runs a tiny size through the plain reference and says so.
Ratios are taken against the Euclidean operation (layer norm, addition) of the same shape in the same run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from attention_core import machine, milliseconds
from torch import Tensor

from polarvit.kernels.norm import gyro_layer_norm, reference_gyro_layer_norm
from polarvit.kernels.residual import boost_residual, reference_boost_residual

SHAPES = [(128, 64, 192), (64, 196, 384)]
TINY = [(2, 16, 8)]
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
EPS = 1e-5


def tokens(shape: tuple[int, ...]) -> list[Tensor]:
    """Radii from 1/2 to 2 and unit directions."""
    return [0.5 + 1.5 * torch.rand(shape[:-1], device=DEVICE), F.normalize(torch.randn(shape, device=DEVICE), dim=-1)]


def leaves(op: str, shape: tuple[int, ...]) -> list[Tensor]:
    if op == "norm":
        tail = [torch.tensor(3.0, device=DEVICE), 0.1 * torch.randn(shape[-1], device=DEVICE)]
    else:
        tail = [*tokens(shape), torch.tensor(0.1, device=DEVICE)]
    return [x.requires_grad_() for x in (*tokens(shape), *tail)]


def contestants(op: str, shape: tuple[int, ...]) -> Iterator[tuple[str, Callable[..., Any], list[Tensor]]]:
    plain = [torch.randn(shape, device=DEVICE, requires_grad=True) for _ in range(2)]
    affine = [torch.ones(shape[-1], device=DEVICE, requires_grad=True) for _ in range(2)]
    if op == "norm":
        yield "Euclidean", lambda x, w, b: (F.layer_norm(x, x.shape[-1:], w, b),), [plain[0], *affine]
        fused, reference = gyro_layer_norm, reference_gyro_layer_norm
    else:
        yield "Euclidean", lambda x, y: (x + y,), plain
        fused, reference = boost_residual, reference_boost_residual  # type: ignore[assignment]
    extra: list[Any] = [EPS] if op == "norm" else []
    if CUDA:
        yield "polar kernel", lambda *x: fused(*x, *extra, implementation="triton"), leaves(op, shape)
    compiled = torch.compile(reference) if CUDA else reference
    yield f"polar reference, {'compiled' if CUDA else 'eager'}", lambda *x: compiled(*x, *extra), leaves(op, shape)


def measure(function: Callable[..., Any], inputs: list[Tensor]) -> dict[str, float]:
    with torch.no_grad():
        upstream = [torch.randn_like(x) for x in function(*inputs)]

    def forward() -> Any:
        with torch.no_grad():
            return function(*inputs)

    return {
        "forward_us": 1e3 * milliseconds(forward),
        "forward_backward_us": 1e3 * milliseconds(lambda: torch.autograd.grad(function(*inputs), inputs, upstream)),
    }


def compare(shapes: list[tuple[int, ...]]) -> list[dict[str, Any]]:
    results = []
    for shape in shapes:
        for op in ("norm", "residual"):
            print(f"\n{op} (B, N, n) = {shape}\n{'f us':>9} {'f+b us':>9} {'ratio f':>8} {'f+b':>7}")
            rows: dict[str, Any] = {}
            for name, function, inputs in contestants(op, shape):
                try:
                    row = rows[name] = measure(function, inputs)
                except Exception as error:  # a contestant that cannot run must not end the comparison
                    rows[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
                    print(f"{'-':>9} {'-':>9} {'-':>8} {'-':>7}  {name}: {rows[name]['error'][:90]}")
                    continue
                for key in ("forward", "forward_backward"):
                    row[f"{key}_ratio"] = row[f"{key}_us"] / rows["Euclidean"][f"{key}_us"]
                print(
                    f"{row['forward_us']:9.1f} {row['forward_backward_us']:9.1f} {row['forward_ratio']:8.2f} "
                    f"{row['forward_backward_ratio']:7.2f}  {name}",
                    flush=True,
                )
            results.append({"op": op, "shape": shape, "rows": rows})
    return results


def operators(op: str) -> Any:
    if op == "norm":
        from polarvit.kernels.norm import operator
    else:
        from polarvit.kernels.residual import operator  # type: ignore[no-redef]
    return operator


def candidates(op: str, direction: str, shape: tuple[int, ...]) -> list[Any]:
    """What one might launch: columns and warps for the norm; rows, warps and split for the residual."""
    launch = operators(op).Launch
    if op == "norm":
        return [launch(columns, warps) for columns in (8, 16, 32, 64, 128) for warps in (4, 8, 16)]
    if direction == "forward":
        return [launch(r, w, s) for r in (4, 8, 16, 32) for w in (4, 8, 16) for s in (1, 2, 4)]
    return [launch(rows, warps) for rows in (1, 2, 4, 8, 16) for warps in (1, 2, 4, 8)]


def prepared(op: str, direction: str, shape: tuple[int, ...]) -> Callable[[], Any]:
    """A closure that calls the operator of one direction alone."""
    module, x = operators(op), [y.detach() for y in leaves(op, shape)]
    if op == "norm":
        radius, unit, *saved = module.norm_forward(*x, None, EPS)
        upstream = torch.randn_like(radius), torch.randn_like(unit)
        if direction == "forward":
            return lambda: module.norm_forward(*x, None, EPS)
        return lambda: module.norm_backward(*upstream, *x, None, *saved, EPS)
    radius, unit, *saved = module.residual_forward(*x)
    upstream = torch.randn_like(radius), torch.randn_like(unit)
    if direction == "forward":
        return lambda: module.residual_forward(*x)
    return lambda: module.residual_backward(*upstream, *x, *saved)


def install(op: str, direction: str, launch: Any) -> Any:
    """Make the operator use `launch`; returns what it used before."""
    module, name = operators(op), f"{direction}_launch"
    before = getattr(module, name)
    setattr(module, name, lambda count, width: launch)
    return before


def warm(task: tuple[str, str, tuple[int, ...], Any]) -> str | None:
    """Compile one candidate in a process of its own; the batch is no part of the cache key."""
    op, direction, shape, launch = task
    try:
        install(op, direction, launch)
        prepared(op, direction, (2, *shape[1:]))()
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return None


def spills(op: str, direction: str) -> tuple[int, int] | None:
    """Registers and spilled bytes of the kernel compiled last, where this Triton tells."""
    kernel = getattr(operators(op), f"{direction}_kernel")
    try:
        compiled = list(kernel.device_caches[torch.cuda.current_device()][0].values())[-1]
        return compiled.n_regs, compiled.n_spills
    except (AttributeError, IndexError, KeyError, TypeError):
        return None


def tune(shapes: list[tuple[int, ...]]) -> list[dict[str, Any]]:
    if not CUDA:
        raise SystemExit("--tune needs a CUDA device: launch parameters mean nothing to the interpreter")
    tasks = [
        (op, direction, shape, launch)
        for shape in shapes
        for op in ("norm", "residual")
        for direction in ("forward", "backward")
        for launch in candidates(op, direction, shape)
    ]
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        troubles = list(pool.map(warm, tasks))
    rows = []
    for (op, direction, shape, launch), trouble in zip(tasks, troubles, strict=True):
        row: dict[str, Any] = {"op": op, "direction": direction, "shape": shape, "launch": launch.__dict__}
        row["trouble"] = trouble
        if trouble is None:
            before = install(op, direction, launch)
            row["us"] = 1e3 * milliseconds(prepared(op, direction, shape))
            row["registers_spilled"] = spills(op, direction)
            setattr(operators(op), f"{direction}_launch", before)
        rows.append(row)
    last = None
    for row in sorted(rows, key=lambda r: (r["shape"], r["op"], r["direction"], r.get("us", 1e9))):
        group = (row["op"], row["direction"], row["shape"])
        if group != last:
            last = group
            print(f"-- {row['op']} {row['direction']} {row['shape']}: us, (registers, spilled), launch")
        time = "-" if row["trouble"] else f"{row['us']:.1f}"
        text = f"{time:>8} {row.get('registers_spilled')!s:>12} {row['launch']} {row['trouble'] or ''}"
        print(text[:150], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    parser.add_argument("--tune", action="store_true", help="try tile sizes and warps instead")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="only the first so many shapes")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    report: dict[str, Any] = {"machine": machine()}
    print(report["machine"])
    shapes = (SHAPES if CUDA else TINY)[: arguments.shapes]
    if arguments.tune:
        report["tune"] = tune(shapes)
    else:
        report["results"] = compare(shapes)
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
