"""Exponential moving average of the weights."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Move `average` towards `model`, buffers and all; early steps average over what there is."""
    weight = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), weight)
    if buffers := list(model.buffers()):
        torch._foreach_copy_(list(average.buffers()), buffers)
