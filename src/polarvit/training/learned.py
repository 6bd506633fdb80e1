"""What became of a model's single numbers: rates, temperatures, gains, step sizes, slopes of radius rules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

MOST = 64
"""Numbers a parameter may have to be told of."""


def learned_numbers(model: nn.Module) -> dict[str, dict[str, float]]:
    """Mean, mean size, least and largest of small parameters, all blocks together (`blocks.*.residual1.alpha`, ...)."""
    found: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.numel() <= MOST:
            general = ".".join("*" if part.isdigit() else part for part in name.split("."))
            found.setdefault(general, []).append(parameter.detach().double().flatten().cpu())
    numbers = {name: torch.cat(parts) for name, parts in found.items()}
    return {name: _summary(x) for name, x in numbers.items()}


def _summary(x: Tensor) -> dict[str, float]:
    values = {"mean": x.mean(), "size": x.abs().mean(), "least": x.min(), "largest": x.max()}
    return {name: float(f"{value.item():.5g}") for name, value in values.items()}
