"""CUDA MPS for workers that share one GPU: their kernels then run at the same time instead of taking turns.

The daemon is started for these workers alone, with pipes and logs in a temporary folder of its own, and stopped at the
end. Where the environment names the pipes of a daemon that runs (`CUDA_MPS_PIPE_DIRECTORY`), workers join that one:
programs share a GPU only under one daemon. Where MPS is not installed, cannot start, or a program under it cannot reach
the GPU, workers run without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CONTROL = "nvidia-cuda-mps-control"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
SECONDS = 120
"""Longest wait for the daemon, and for a first program under it."""
PROBE = "import torch; torch.ones(1, device='cuda').add_(1).item()"


@contextmanager
def mps(say: Callable[[str], None]) -> Iterator[dict[str, str]]:
    """The environment that workers need to share the GPU; empty where MPS cannot be had, and `say` tells why."""
    joined = os.environ.get(PIPES)
    if joined and (Path(joined) / "control").exists():
        say(f"workers join the CUDA MPS daemon that {PIPES} names")
        yield {}
        return
    if shutil.which(CONTROL) is None:
        say(f"CUDA MPS is not installed ({CONTROL} is missing): workers take turns on the GPU")
        yield {}
        return
    folder = tempfile.mkdtemp(prefix="polarvit-mps-")  # short: a Unix socket's path has at most 107 characters
    own = {PIPES: f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
    for path in own.values():
        os.mkdir(path)
    started = False
    try:
        wrong = command([CONTROL, "-d"], own)
        started = not wrong
        wrong = wrong or command([sys.executable, "-P", "-c", PROBE], own)
        if wrong:
            say(f"CUDA MPS does not work here ({wrong}): workers take turns on the GPU")
        yield {} if wrong else own
    finally:
        if started:
            command([CONTROL], own, "quit\n")
        shutil.rmtree(folder, ignore_errors=True)


def command(words: list[str], own: dict[str, str], told: str = "") -> str:
    """Run a command under the daemon's environment; what went wrong in one line, or nothing."""
    with tempfile.TemporaryFile() as errors:  # not a pipe: a daemon would hold it open
        options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": errors, "timeout": SECONDS, "check": False}
        try:
            done = subprocess.run(words, env={**os.environ, **own}, input=told.encode(), **options)
        except (OSError, subprocess.TimeoutExpired) as error:
            return " ".join(str(error).split())
        if done.returncode == 0:
            return ""
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"{words[0]} ended with {done.returncode}"
