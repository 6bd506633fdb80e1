"""Find launch parameters for attention and for the kernels between its products.

    python benchmarks/attention_tune.py
    python benchmarks/attention_tune.py --shapes tiny

Candidates are compiled by several processes at once (the cache on disk hands the result over), then timed one after the
other. The best belong into `forward_tile`, `backward_tile`, `NEAR_FORWARD`, `NEAR_BACKWARD` of
`kernels/attention/launches.py` and into `tiles`, `long_tiles`, `TURNS` of `kernels/heads/operator.py`. Timing it
beside Euclidean attention is `polarvit bench attention`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
import torch.nn.functional as F
from timing import machine, milliseconds
from torch import Tensor

from polarvit.kernels.attention import launches
from polarvit.kernels.attention import operator as attention
from polarvit.kernels.heads import operator as heads

SHAPES = {"tiny": (128, 12, 64, 16), "small": (64, 6, 196, 64)}
Task = tuple[str, tuple[int, int, int, int], Any]
Steps = tuple[Callable[[], Any], Callable[[], Any]]
PLAIN_TILES, PLAIN_WARPS = heads.tiles, heads.warps


def points(b: int, h: int, n: int, d: int) -> list[Tensor]:
    """Radius and direction, dimension first, of query, key and value."""
    out = []
    for _ in range(3):
        u = F.normalize(torch.randn(b, h, n, d, device="cuda"), dim=-1)
        out += [0.5 + 2 * torch.rand(b, h, n, device="cuda"), u.mT.contiguous()]
    return out


def operator_steps(shape: tuple[int, int, int, int]) -> Steps:
    """Forward and backward of the operator as it is launched now."""
    inputs = [*points(*shape), torch.full((shape[1],), shape[-1] ** -0.5, device="cuda"), None]
    radius, direction, stats = attention.attention_forward(*inputs)
    upstream = torch.randn_like(radius), torch.randn_like(direction)
    return (
        lambda: attention.attention_forward(*inputs),
        lambda: attention.attention_backward(*upstream, *inputs, direction, stats),
    )


def attention_steps(shape: tuple[int, int, int, int], launch: tuple[Any, ...]) -> Steps:
    """Forward and backward of the operator with one tile for both: rows, columns, warps, unrolling, registers."""
    launches.forward_tile = launches.backward_tile = lambda n, width: launches.Tile(*launch)  # type: ignore[assignment]
    return operator_steps(shape)


def near_steps(shape: tuple[int, int, int, int], launch: tuple[Any, ...]) -> Steps:
    """Forward and backward of wide, near heads: tiles of both and programs of the backward."""
    forward, backward, launches.PROGRAMS = launch
    launches.NEAR_FORWARD, launches.NEAR_BACKWARD = launches.Tile(*forward), launches.Tile(*backward)
    launches.forward_tile = lambda n, width: launches.Tile(32, forward[1], 2)  # type: ignore[assignment]
    return operator_steps(shape)


def head_steps(shape: tuple[int, int, int, int], launch: tuple[int, int, int]) -> Steps:
    """Forward and backward of the projection: numbers of a tile, numbers of a thread, turns of the backward."""
    numbers, each, heads.TURNS = launch
    heads.tiles = lambda h, w, n=0: PLAIN_TILES(h, w, numbers)  # type: ignore[assignment]
    heads.warps = lambda size, n=0: PLAIN_WARPS(size, each)  # type: ignore[assignment]
    b, h, n, d = shape
    scalars = torch.tensor([[1.1, 0.2, -0.1]] * 3, device="cuda")
    inputs = [
        torch.randn(3 * h * d + 8, b * n, device="cuda") / 3,
        3 * torch.rand(b, n, device="cuda"),
        torch.randn(3, h * d, device="cuda") / 5,
        scalars,
        torch.randn(3, h, device="cuda") / 5,
        torch.randn(h, 2, device="cuda"),
        torch.rand(n, 2, device="cuda"),
    ]
    upstream = [torch.randn_like(x) for x in heads.project_op(*inputs, 1)]
    return lambda: heads.project_op(*inputs, 1), lambda: heads.project_backward_op(*inputs, *upstream, 1)


def merge_steps(shape: tuple[int, int, int, int], launch: tuple[int, int]) -> Steps:
    """Forward and backward of joining heads: numbers of a tile, numbers of a thread."""
    heads.long_tiles = lambda h, w: PLAIN_TILES(h, w, launch[0])  # type: ignore[assignment]
    heads.warps = lambda size, n=0: PLAIN_WARPS(size, launch[1])  # type: ignore[assignment]
    radius, u, *_ = points(*shape)
    upstream = [torch.randn_like(x) for x in heads.merge_op(radius, u)]
    return lambda: heads.merge_op(radius, u), lambda: heads.merge_backward_op(radius, u, *upstream)


STEPS: dict[str, Callable[..., Steps]] = {
    "attention": attention_steps,
    "near": near_steps,
    "heads": head_steps,
    "merge": merge_steps,
}
LAUNCHES: dict[str, list[Any]] = {
    "attention": [
        (32, 32, 2, 16),
        (32, 32, 2, 8),
        (64, 32, 4, 16),
        (64, 32, 4, 8),
        (32, 32, 2, 4),
        (32, 64, 4, 16),
        (32, 64, 2, 16),
    ],
    "near": [
        ((64, 32, 4, 16, None, 2), (16, 64, 4, 16, None, 2), 1536),
        ((64, 32, 4, 16, None, 1), (16, 64, 4, 16, None, 1), 1536),
        ((64, 32, 4, 16, None, 3), (16, 64, 4, 16, None, 3), 1536),
        ((64, 32, 4, 16, None, 2), (16, 64, 4, 16, None, 2), 768),
        ((64, 32, 4, 16, None, 2), (32, 64, 4, 16, None, 1), 1536),
        ((64, 16, 4, 16, None, 2), (16, 64, 4, 16, 200, 2), 1536),
        ((64, 16, 4, 16, 168, 2), (16, 64, 4, 16, 168, 1), 1536),
    ],
    "merge": [(n, each) for n in (2048, 4096, 8192, 16384) for each in (16, 32)],
    "heads": [(n, each, turns) for n in (2048, 4096, 8192) for each in (16,) for turns in (1, 2)] + [(4096, 32, 1)],
}


def compiled(task: Task) -> str | None:
    """Compile one candidate in a process of its own; the batch is no part of the cache key."""
    kind, shape, launch = task
    try:
        for step in STEPS[kind]((2, *shape[1:]), launch):
            step()
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:160]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--kinds", nargs="+", choices=list(STEPS), default=list(STEPS))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("attention_tune needs a CUDA device: launch parameters mean nothing to the interpreter")
    torch.manual_seed(0)
    tasks = [
        (k, SHAPES[s], launch)
        for k in arguments.kinds
        for s in arguments.shapes
        for launch in LAUNCHES[k]
        if (k, s) != ("near", "tiny")
    ]
    print(machine(), flush=True)
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        troubles = list(pool.map(compiled, tasks))
    for (kind, shape, launch), trouble in zip(tasks, troubles, strict=True):
        if trouble is None:
            forward, backward = (1e3 * milliseconds(step) for step in STEPS[kind](shape, launch))
            print(f"{kind} {shape} {launch}: {forward:.1f} us forward, {backward:.1f} backward", flush=True)
        else:
            print(f"{kind} {shape} {launch}: {trouble}", flush=True)


if __name__ == "__main__":
    main()
