"""Compile kernels side by side, before they are called.

Triton compiles a kernel when it is first called, on one core, and a training step of Polar-ViT calls some twenty of
them: half a minute on end, most of it for three. `compile_ahead` goes through a step without launching anything, hands
what it would have compiled to processes of their own and returns; they leave their results in Triton's cache on disk,
where the step finds them. A kernel that is called too early is compiled once more, as if nothing had been said.

It asks Triton for things that are not made for others to ask. Where it cannot have them, or anything else goes wrong, a
warning says so and kernels are compiled when they are called: no run ends for want of this.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from polarvit.kernels.pick import HAS_TRITON
from polarvit.processes import own_process


class Job(NamedTuple):
    """A kernel by its module and name, and how Triton is to compile it, in Triton's own words."""

    module: str
    name: str
    how: str


class Elsewhere:
    """What Triton asks of a driver while it compiles for a GPU that this process does not use."""

    def __init__(self, backend: str, arch: Any, warp_size: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget(backend, arch, warp_size)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def settle() -> None:
    """Import all kernels and let Triton name them, in one order.

    The name its cache knows a kernel by depends on what a process has named before: constants of a function that a
    kernel calls enter it only if that function was named already. Two processes agree if both begin like this.
    """
    from triton.runtime.jit import JITFunction

    package = importlib.import_module("polarvit.kernels")
    for found in sorted(pkgutil.walk_packages(package.__path__, "polarvit.kernels."), key=lambda each: each.name):
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, JITFunction):
                value.cache_key  # noqa: B018  (named when first asked for)


def wanted(step: Callable[[], object]) -> list[Job]:
    """What `step` would have compiled, in the order of its calls.

    No kernel runs, so tensors that kernels should have filled hold anything; use nothing of what `step` computes.
    """
    from triton import knobs

    found: dict[tuple[str, str, str], Job] = {}

    def stop(*, fn: Any, compile: dict[str, Any], **others: Any) -> bool:
        found.setdefault(
            (fn.module, fn.name, str(compile["key"])), Job(fn.module, fn.name, compile["specialization_data"])
        )
        return True

    before, knobs.runtime.jit_cache_hook = knobs.runtime.jit_cache_hook, stop
    try:
        step()
    finally:
        knobs.runtime.jit_cache_hook = before
    return list(found.values())


def compile_ahead(step: Callable[[], object], processes: int | None = None) -> list[subprocess.Popen[str]]:
    """Start compiling what `step` needs; the processes that do it, which nobody has to wait for and end with this one.

    By default up to four, and none on a machine with fewer than four cores or where kernels are interpreted.
    """
    cores = os.cpu_count() or 1
    processes = (min(4, cores // 2) if cores >= 4 else 0) if processes is None else processes
    if not HAS_TRITON or processes < 1 or os.environ.get("TRITON_INTERPRET") == "1":
        return []
    try:
        import triton

        settle()
        target = triton.runtime.driver.active.get_current_target()
        jobs = wanted(step)[::-1]  # backward first: a step that starts now calls it last, and it takes longest
        shares = [share for first in range(processes) if (share := jobs[first::processes])]
        return [_process(share, (target.backend, target.arch, target.warp_size)) for share in shares]
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        warnings.warn(f"kernels are not compiled ahead, the first step takes longer ({reason})", stacklevel=2)
        return []


def _process(jobs: Sequence[Job], target: tuple[str, Any, int]) -> subprocess.Popen[str]:
    words, environment = own_process("polarvit.kernels.ahead")
    with tempfile.TemporaryFile("w+") as told:  # not a pipe: nobody waits for the other to read or write
        json.dump({"target": target, "jobs": jobs}, told)
        told.seek(0)
        process = subprocess.Popen(
            words, stdin=told, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, text=True, env={**environment, "CUDA_VISIBLE_DEVICES": ""},
        )  # fmt: skip
    threading.Thread(target=process.wait, daemon=True).start()  # or it would stay on the list when it has ended
    atexit.register(process.kill)
    return process


def main() -> None:
    """A process of `compile_ahead`."""
    import triton

    settle()
    told = json.load(sys.stdin)
    triton.runtime.driver.set_active(Elsewhere(*told["target"]))
    for module, name, how in told["jobs"]:
        kernel = getattr(importlib.import_module(module), name).preload(how)
        with suppress(Exception):  # Triton 3.6 has the C compiler make a launcher for each kernel; later ones do not
            from triton.backends.nvidia.driver import CudaLauncher

            CudaLauncher(kernel.src, kernel.metadata)


if __name__ == "__main__":
    main()
