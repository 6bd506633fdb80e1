"""sinh with the growth of a whole image taken out, where there is too much of it."""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry.scaled import sh

LARGEST = 40.0
"""Rescaled radius up to which sinh and sums of its squares are formed as they are."""


def scaled_sinh(a: Tensor, t: Tensor) -> Tensor:
    """sinh(a) e^-t for a - t <= `LARGEST`; where t = 0 it is sinh to the last digit."""
    return torch.where(t > 0, sh(a) * torch.exp((a - t).clamp_max(LARGEST)), torch.sinh(a.clamp_max(LARGEST)))
