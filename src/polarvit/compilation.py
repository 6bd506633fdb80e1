"""`torch.compile` as models and the optimizer use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

RECOMPILATIONS = 64
"""Shapes and options that one process may compile a function for; PyTorch would stop at eight."""


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`function` in one graph, for the shapes it meets.

    Whatever `torch.compile` takes may be given. Without a backend, mode or options of the caller's, the kernels are
    compiled in this process: a block has some forty small ones, which takes less time than the pool of worker
    processes needs to start (it was 49 of the seconds before the first training step).
    """
    if not options.keys() & {"backend", "mode", "options"}:
        options["options"] = {"compile_threads": 1}
    return torch.compile(function, fullgraph=True, dynamic=False, **options)
