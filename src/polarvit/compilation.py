"""`torch.compile` as models and the optimizer use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

RECOMPILATIONS = 64
"""Shapes and options that one process may compile a function for; PyTorch would stop at eight."""

SMALLER_KERNELS = (8, 2)
"""Loops in one kernel to try, one after the other, where a compiler fails. Left alone (64), and with 16, the block of
Polar-ViT in plain code has a kernel on which Triton 3.6 fails ("operand does not dominate this use", where it removes
layout conversions)."""


def compiled(
    function: Callable[..., Any], *, rows_at_once: bool = True, largest_kernel: int | None = None, **options: Any
) -> Callable[..., Any]:
    """`function` in one graph, for the shapes it meets; whatever else `torch.compile` takes may be given.

    By default no memory is padded: where the rows of a product are longer than 1,024 numbers and no multiple of 32, the
    compiler would write them farther apart, and copy them together again for the kernel that comes next. Nor are two to
    six variants of every small kernel compiled and timed: what they gain is less than what the first step waits.

    Args:
        rows_at_once: let kernels hold the rows they sum over whole. A long formula over many rows of a hundred numbers
            then fills the registers, and such a kernel takes the compiler a quarter of a minute.
        largest_kernel: how many loops one kernel may take in, by default as many as PyTorch lets it.
    """
    if not options.keys() & {"backend", "mode", "options"}:
        options["options"] = {
            "comprehensive_padding": False,
            "triton.autotune_pointwise": False,
            "triton.persistent_reductions": rows_at_once,
            **({} if largest_kernel is None else {"max_fusion_size": largest_kernel}),
        }
    return torch.compile(function, fullgraph=True, dynamic=False, **options)
