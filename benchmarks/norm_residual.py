"""Time the gyro layer norm and the boost residual: kernel, compiled reference and Euclidean counterpart, side by side.

    python benchmarks/norm_residual.py --out norm_residual.json

Medians of CUDA-graph replays on a GPU. Without one it runs a tiny size through the plain reference and says so.
Ratios are taken against the Euclidean operation (layer norm, addition) of the same shape in the same run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timing import machine, milliseconds
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="only the first so many shapes")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    report: dict[str, Any] = {"machine": machine()}
    print(report["machine"])
    shapes = (SHAPES if CUDA else TINY)[: arguments.shapes]
    report["results"] = compare(shapes)
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
