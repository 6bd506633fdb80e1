"""How long something takes, and how much memory: the one routine all benchmarks use.

On a GPU a function is captured in a CUDA graph, several times over if it is short, and replays are timed by events. All
contestants take turns, one sample each in a round, so whatever the machine does meanwhile it does to all of them. Times
are medians over rounds; a ratio is the median of the ratios within the rounds. On a CPU the function is called and the
clock is read.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

SAMPLE = 10.0
"""Milliseconds a sample should last at least: many replays of what is short."""
GRAPH = 5.0
"""Milliseconds of work to put into one graph, at most 20 calls."""
ROUNDS = {"cuda": 40, "cpu": 5}
"""Most rounds that are taken, even if there is time for more."""


@dataclass(frozen=True)
class Timed:
    """Something ready to be timed: `call` starts it `times` times. `keeps` owns the memory that a graph uses."""

    call: Callable[[], Any]
    times: int = 1
    keeps: Any = None


def captured(functions: Sequence[Callable[[], Any]], device: torch.device, pool: Any = None) -> Timed:
    """Functions (the same one on several inputs, or just one) as one CUDA graph; on a CPU they are called in turn.

    `pool` is the memory pool of another graph whose memory this one may use, which then must not run at the same time.
    """
    if device.type != "cuda":
        return Timed(lambda: [function() for function in functions], len(functions))
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        for _ in range(3):  # compilation and lazy initialisation must be over before the capture
            functions[0]()
        before.record()
        for function in functions:
            function()
        after.record()
    torch.cuda.synchronize(device)
    turns = max(1, min(20 // len(functions), int(GRAPH / max(before.elapsed_time(after), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        for _ in range(turns):
            for function in functions:
                function()
    return Timed(graph.replay, turns * len(functions), keeps=functions)


def sample(timed: Timed, device: torch.device, repeats: int) -> float:
    """Milliseconds of one call, over `repeats` starts without a pause."""
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(repeats):
            timed.call()
        return 1e3 * (time.perf_counter() - began) / (repeats * timed.times)
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    for _ in range(repeats):
        timed.call()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / (repeats * timed.times)


@dataclass(frozen=True)
class Times:
    """Milliseconds in each round, by name."""

    rounds: Mapping[str, Sequence[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, base: str) -> float:
        """Median over rounds of time(name)/time(base) within the round."""
        pairs = zip(self.rounds[name], self.rounds[base], strict=True)
        return statistics.median(x / y for x, y in pairs)

    def record(self, name: str) -> dict[str, Any]:
        """Median, fastest and slowest round."""
        rounds = self.rounds[name]
        return {"ms": self.median(name), "fastest_ms": min(rounds), "slowest_ms": max(rounds), "rounds": len(rounds)}


def interleaved(
    cases: Mapping[str, Timed], device: torch.device, seconds: float, *, least: int = 3, most: int | None = None
) -> Times:
    """Time the cases in turns: as many rounds as fit into `seconds`, between `least` and `most` of them."""
    most = most or ROUNDS[device.type]
    repeats = {}
    for name, timed in cases.items():
        sample(timed, device, 1)  # the first replay of a graph uploads it
        once = sample(timed, device, 1) * timed.times
        repeats[name] = max(1, int(SAMPLE / max(once, 1e-3))) if device.type == "cuda" else 1
    rounds: dict[str, list[float]] = {name: [] for name in cases}
    began = time.perf_counter()
    for index in range(most):
        if index >= least and (time.perf_counter() - began) * (index + 1) / index > seconds:
            break
        for name, timed in cases.items():
            rounds[name].append(sample(timed, device, repeats[name]))
    return Times(rounds)


def extra_memory(function: Callable[[], Any], device: torch.device) -> float | None:
    """MiB that a call needs at its peak beyond what is allocated before it; None on a CPU."""
    if device.type != "cuda":
        return None
    function()
    torch.cuda.synchronize(device)
    gc.collect()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    function()
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


class Budget:
    """Seconds of timing to spend, shared evenly among the parts still to come; says what is going on."""

    def __init__(self, seconds: float, parts: int) -> None:
        self.left, self.parts, self.began = seconds, max(parts, 1), time.perf_counter()

    def times(self, cases: Mapping[str, Timed], device: torch.device, **options: Any) -> Times:
        """`interleaved` with this part's share of the budget."""
        share, began = max(self.left, 0.0) / self.parts, time.perf_counter()
        measured = interleaved(cases, device, share, **options)
        self.left -= time.perf_counter() - began
        self.parts = max(self.parts - 1, 1)
        return measured

    def say(self, text: str) -> None:
        """A line of progress on standard error, with the seconds since the start."""
        print(f"[{time.perf_counter() - self.began:5.0f} s] {text}", file=sys.stderr, flush=True)
