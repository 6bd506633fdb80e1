"""Try launch parameters of the polar attention kernels; `attention_core.py --tune` calls it.

Candidates are compiled by several processes at once (the cache on disk hands the result over), then timed one after
the other. Each row says what a candidate costs and how far its output and gradients are from the float64 reference.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
from attention_core import inputs, milliseconds

from polarvit.geometry import PolarPoint, distance
from polarvit.kernels.attention import operator, reference_attention

SHAPES = [(128, 12, 64, 16), (64, 6, 196, 64)]
EPS = 2.0**-24
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def candidates(direction: str) -> list[operator.Launch]:
    sharp = operator.sharp_products()
    if direction == "forward":
        blocks = [(64, 32, 4), (64, 64, 4), (64, 16, 4), (32, 32, 2), (32, 32, 4), (128, 32, 8)]
    else:
        blocks = [(64, 32, 4), (64, 16, 4), (64, 64, 4), (32, 32, 4), (32, 32, 2), (32, 64, 4)]
    plain = [operator.Launch(*block, unroll=4, precision=sharp) for block in blocks]
    varied = [operator.Launch(*blocks[0], unroll=u, precision=p) for u, p in ((1, sharp), (8, sharp), (4, "tf32x3"))]
    return plain + varied


def install(direction: str, launch: operator.Launch) -> Any:
    """Make the operator use `launch`; returns what it used before."""
    name = f"{direction}_launch"
    before = getattr(operator, name)
    setattr(operator, name, lambda width, n, m: launch)
    return before


def step(shape: tuple[int, ...]) -> Any:
    """A closure that runs forward, and one that runs backward alone, on the operator itself."""
    leaves = [x.detach() for x in inputs(shape, DEVICE, dimension_first=True)]
    points = [x.mT if x.ndim == 4 else x for x in leaves]
    scale = torch.full((shape[1],), shape[-1] ** -0.5, device=DEVICE)
    radius, direction, stats = operator.attention_forward(*points, scale, None)
    upstream = torch.randn_like(radius), torch.randn_like(direction)

    def forward() -> Any:
        return operator.attention_forward(*points, scale, None)

    def backward() -> Any:
        return operator.attention_backward(*upstream, *points, scale, None, direction, stats)

    return forward, backward, (leaves, scale, upstream)


def warm(task: tuple[str, tuple[int, ...], operator.Launch]) -> str | None:
    """Compile one candidate in a process of its own; the batch is no part of the cache key."""
    direction, shape, launch = task
    try:
        install(direction, launch)
        step((2, *shape[1:]))[0 if direction == "forward" else 1]()
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return None


def errors(shape: tuple[int, ...]) -> tuple[float, float]:
    """Largest output error in units of the resolution limit at radius 2, largest relative RMS of a gradient."""
    forward, backward, (leaves, scale, upstream) = step((2, *shape[1:]))
    radius, direction, _ = forward()
    ours = backward()
    exact = [x.double().requires_grad_() for x in leaves]
    weight = scale.double().requires_grad_()
    out = reference_attention(*(PolarPoint(*exact[i : i + 2]) for i in (0, 2, 4)), weight)
    theirs = torch.autograd.grad(tuple(out), [*exact, weight], [upstream[0].double(), upstream[1].mT.double()])
    limit = EPS * 3 + torch.sinh(torch.tensor(2.0)).item() * EPS
    off = distance(PolarPoint(radius.double(), direction.mT.double()), out).max().item() / limit
    ours = [*(g.mT if g.ndim == 4 else g for g in ours[:6]), ours[6].sum((0, 2))]
    gradients = [
        ((g.double() - t).square().mean().sqrt() / t.square().mean().sqrt()).item()
        for g, t in zip(ours, theirs, strict=True)
    ]
    return off, max(gradients)


def tune() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        raise SystemExit("--tune needs a CUDA device: launch parameters mean nothing to the interpreter")
    tasks = [
        (direction, shape, launch)
        for shape, direction in itertools.product(SHAPES, ("forward", "backward"))
        for launch in candidates(direction)
    ]
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        troubles = list(pool.map(warm, tasks))
    rows = []
    for (direction, shape, launch), trouble in zip(tasks, troubles, strict=True):
        row: dict[str, Any] = {"direction": direction, "shape": shape, **launch.__dict__, "trouble": trouble}
        if trouble is None:
            before = install(direction, launch)
            forward, backward, _ = step(shape)
            row["us"] = 1e3 * milliseconds(forward if direction == "forward" else backward)
            row["output_limits"], row["gradient_rms"] = errors(shape)
            setattr(operator, f"{direction}_launch", before)
        rows.append(row)
    print(f"{'us':>8} {'out/L':>6} {'grad':>8}  rows cols warps unroll products")
    last = None
    for row in sorted(rows, key=lambda r: (r["shape"], r["direction"], r.get("us", 1e9))):
        if (row["shape"], row["direction"]) != last:
            last = (row["shape"], row["direction"])
            print(f"-- {row['direction']} {row['shape']}")
        text = f"{row['rows']:4d} {row['columns']:4d} {row['warps']:5d} {row['unroll']:6d} {row['precision']}"
        if row["trouble"]:
            print(f"{'-':>8} {'-':>6} {'-':>8}  {text}: {row['trouble'][:90]}")
        else:
            print(f"{row['us']:8.1f} {row['output_limits']:6.2f} {row['gradient_rms']:8.1e}  {text}")
    return rows
