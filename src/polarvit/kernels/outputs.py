"""Where the operators of all kernels get the tensors that kernels write."""

from __future__ import annotations

import torch
from torch import Tensor


def new_output(shape: tuple[int, ...], like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor on the device of `like`, unfilled. Tests put one full of NaN in its place, module by module."""
    return torch.empty(shape, dtype=dtype, device=like.device)
