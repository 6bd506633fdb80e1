"""`torch.compile` as models and the optimizer use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

RECOMPILATIONS = 64
"""Shapes and options that one process may compile a function for; PyTorch would stop at eight."""


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`function` in one graph, for the shapes it meets; whatever else `torch.compile` takes may be given."""
    return torch.compile(function, fullgraph=True, dynamic=False, **options)
