"""Whether a fused kernel runs: Triton is there and the tensors are float32 on a GPU, matrix products maybe bfloat16."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

HAS_TRITON = importlib.util.find_spec("triton") is not None  # looked up once: compilers cannot trace the import system
_choice: Literal["auto", "plain", "interpreted"] = "auto"


def full(x: Tensor) -> Tensor:
    """At least float32."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def fused_runs(*tensors: Tensor, products: Sequence[Tensor] = ()) -> bool:
    """True if the Triton kernels can and may take these tensors; matrix products may be bfloat16 too."""
    if not HAS_TRITON or _choice == "plain":
        return False
    here = _choice == "interpreted" or all(x.is_cuda for x in (*tensors, *products))
    exact = all(x.dtype == torch.float32 for x in tensors)
    return here and exact and all(x.dtype in (torch.float32, torch.bfloat16) for x in products)


@contextmanager
def kernels(choice: Literal["auto", "plain", "interpreted"]) -> Iterator[None]:
    """Inside: `plain` PyTorch references only, or kernels on the CPU `interpreted` by Triton (TRITON_INTERPRET=1)."""
    global _choice
    before, _choice = _choice, choice
    try:
        yield
    finally:
        _choice = before
