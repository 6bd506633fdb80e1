"""Images per second of the augmentation, beside a Pillow loader with four workers, for the HexFormer recipe.

    python benchmarks/augment_throughput.py --device cuda --seconds 10 --out results/augment_throughput.json
    python benchmarks/augment_throughput.py --device cuda --profile

Both make batches of 128 synthetic images of 32 x 32: flip, padded crop, AutoAugment (CIFAR-10), normalise,
random erasing, MixUp or CutMix. The loader does all but the mixing in its workers, as that recipe does; on a
GPU its batches are copied there and mixed there. Timed in turns, so that a busy machine slows both. Besides:

    host     drawing and starting kernels, per 1,000 images; nothing waits for the device
    device   kernels back to back, per 1,000 images (GPU only)
    beside   what a training step of about 6 ms, replayed as a CUDA graph, takes alone and with batches made
             beside it (GPU only)

`--profile` only says where the time goes: host functions, kernels, and how many are started.
"""

import argparse
import cProfile
import json
import os
import platform
import pstats
import random
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from pillow_loader import BATCH, CLASSES, RECIPE, SIZE, WORKERS, pillow_batches
from torch.utils._python_dispatch import TorchDispatchMode

from polarvit.data import Augmenter, BatchPlan, ResidentDataset, batches
from polarvit.data.augment.layout import TrainingRequest

LENGTH, TURNS, FOREVER = 50_000, 4, 2**40


class Ours:
    """The augmentation of one data set on one device, taken apart."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, device: torch.device) -> None:
        self.data = ResidentDataset("synthetic", images, labels, tuple(map(str, range(CLASSES))), device)
        self.device, self.plan = self.data.images.device, BatchPlan(LENGTH, BATCH)
        self.augmenter = Augmenter(RECIPE, CLASSES, SIZE)
        self.request = TrainingRequest(self.plan, 0, 1, RECIPE.mixer(SIZE, SIZE))
        self.at_once = self.augmenter.steps_at_once(self.data, BATCH, self.device)

    def called(self) -> Iterator[object]:
        """One call for each step."""
        for step in range(FOREVER):
            yield self.augmenter(self.data, self.plan, step, device=self.device)

    def ahead(self, threaded: bool | None = None) -> Iterator[object]:
        return batches(self.augmenter, self.data, self.plan, 0, FOREVER, device=self.device, threaded=threaded)

    def steps(self, chunk: int) -> range:
        return range(chunk * self.at_once, (chunk + 1) * self.at_once)

    def draw(self, chunk: int) -> Callable[[], object]:
        """The draws of a chunk of steps; what it returns starts the kernels."""
        steps = self.steps(chunk)
        drawn = self.augmenter.draw(self.data, self.request, steps)
        return lambda: self.augmenter.render(self.data, self.request, steps, drawn, self.device)

    def host(self, chunks: int) -> dict[str, float]:
        """Milliseconds of the host for 1,000 images."""
        draw, start = [], []
        for chunk in range(chunks):
            synchronize(self.device)
            begin = time.perf_counter()
            render = self.draw(chunk)
            middle = time.perf_counter()
            render()
            draw.append(middle - begin)
            start.append(time.perf_counter() - middle)
        thousands = self.at_once * BATCH / 1000
        return {
            "draw": round(1000 * float(np.median(draw)) / thousands, 3),
            "start kernels" if self.device.type == "cuda" else "pixels": round(
                1000 * float(np.median(start)) / thousands, 3
            ),
        }

    def on_device(self, chunks: int) -> float:
        """Milliseconds of the device for 1,000 images: kernels queue up behind a pause, then run back to back."""
        times = []
        for chunk in range(chunks):
            render = self.draw(chunk)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(100_000_000)
            begin.record()
            render()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        return round(float(np.median(times)) / (self.at_once * BATCH / 1000), 3)

    def profile(self, chunks: int) -> None:
        self.draw(0)()
        with Launches() as launches:
            self.draw(1)()
        total = sum(launches.counts.values())
        print(
            f"{total} kernels and copies for {self.at_once} steps, {1000 * total / self.at_once / BATCH:.1f} for 1,000"
        )
        print(", ".join(f"{name} {count}" for name, count in launches.counts.most_common(15)))
        with cProfile.Profile() as found:
            for chunk in range(chunks):
                self.draw(chunk)()
        synchronize(self.device)
        pstats.Stats(found, stream=sys.stdout).strip_dirs().sort_stats("tottime").print_stats(20)
        if self.device.type == "cuda":
            with torch.profiler.profile() as kernels:
                self.draw(chunks)()
                torch.cuda.synchronize()
            print(kernels.key_averages().table(sort_by="self_cuda_time_total", row_limit=20))


class Launches(TorchDispatchMode):
    """Counts operations that do more than look at memory in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        views = function.is_view or any(part in name for part in ("view", "empty", "split", "detach", "lift_fresh"))
        self.counts.update([] if views else [name])
        return function(*args, **(kwargs or {}))


def beside(ours: Ours, milliseconds: float = 6.0, steps: int = 640) -> dict[str, float]:
    """Milliseconds of a training step, a captured graph of matrix products, alone and with batches."""
    weights, product = torch.randn(2, 4096, 4096, device=ours.device).unbind(0)
    one = timed(lambda: torch.mm(weights, weights, out=product), 50)
    graph, inputs = torch.cuda.CUDAGraph(), torch.empty(BATCH, 3, SIZE, SIZE, device=ours.device)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(max(1, round(milliseconds / one))):
            torch.mm(weights, weights, out=product)

    def train(feed: Iterator[Any] | None) -> None:
        if feed is not None:
            inputs.copy_(next(feed)[0])
        graph.replay()

    found = {"alone": timed(partial(train, None), steps)}
    for name, feed in (("with a call for each step", ours.called()), ("with the thread", ours.ahead(threaded=True))):
        found[name] = timed(partial(train, feed), steps)
    return {name: round(value, 3) for name, value in found.items()}


def timed(action: Callable[[], object], count: int) -> float:
    """Milliseconds of an action that is repeated, with the first ones not counted."""
    for _ in range(count // 5):
        action()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        action()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start) / count


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def rate(feed: Iterator[object], seconds: float, device: torch.device, group: int, skip: int) -> float:
    """Images per second over about the given time, after `skip` batches that may lie in a queue."""
    for _ in range(skip):
        next(feed)
    synchronize(device)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(group):
            next(feed)
        synchronize(device)
        count += group
    return count * BATCH / (time.perf_counter() - start)


def machine(device: torch.device) -> dict[str, object]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pillow": PIL.__version__,
        "commit": commit or None,
    }


def compare(ours: Ours, pillow: Iterator[object], seconds: float) -> dict[str, list[int]]:
    """Images per second of each, several turns."""
    # On the CPU the two ways of ours are one.
    feeds = {"ours": ours.ahead(), "ours, one call for each step": ours.called()}
    rates: dict[str, list[int]] = {name: [] for name in (*feeds, "pillow")}
    for feed in feeds.values():
        rate(feed, 1.0, ours.device, ours.at_once, 0)
    for _ in range(TURNS):
        # Idle workers fill their queues: let them finish before we are timed, and drain those before they are.
        time.sleep(1.0)
        for name, feed in feeds.items():
            rates[name].append(round(rate(feed, seconds / TURNS, ours.device, ours.at_once, 3 * ours.at_once)))
        rates["pillow"].append(round(rate(pillow, seconds / TURNS, ours.device, 16, 2 * WORKERS + 1)))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each of them, in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", action="store_true", help="say where the time goes, and compare nothing")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")

    random.seed(arguments.seed)
    rng = np.random.default_rng(arguments.seed)
    images = rng.integers(0, 256, (LENGTH, SIZE, SIZE, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, LENGTH)
    device = torch.device(arguments.device)
    ours, chunks = Ours(images, labels, device), 30 if arguments.device == "cuda" else 5
    if arguments.profile:
        ours.profile(chunks)
        return

    turns = compare(ours, pillow_batches(images, labels, device), arguments.seconds)
    medians = {name: round(float(np.median(values))) for name, values in turns.items()}
    result = {
        "benchmark": "augment_throughput",
        "recipe": "HexFormer, CIFAR, 32 x 32, batch 128",
        "ratio": round(medians["ours"] / medians["pillow"], 2),
        "images_per_second": medians,
        "pillow_workers": WORKERS,
        "host_ms_per_1000_images": ours.host(chunks),
        "device_ms_per_1000_images": ours.on_device(chunks) if device.type == "cuda" else None,
        "training_step_ms": beside(ours) if device.type == "cuda" else None,
        "turns": turns,
        "seed": arguments.seed,
        "machine": machine(device),
    }
    print(f"ratio to Pillow with {WORKERS} workers: {result['ratio']:.2f}")
    for name in ("images_per_second", "host_ms_per_1000_images", "device_ms_per_1000_images", "training_step_ms"):
        print(f"{name.replace('_', ' ')}: {result[name]}")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
