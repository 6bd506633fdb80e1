"""Layers say at the door what is wrong with what they are given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from polarvit.geometry import PolarPoint, from_tangent0
from polarvit.nn import BoostResidual, GyroLayerNorm, PolarAttention, PolarLinear, PolarMLR
from polarvit.optim import param_groups


def points(dim: int, tokens: int = 5) -> PolarPoint:
    return from_tangent0(torch.randn(2, tokens, dim, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: PolarLinear(3, 4)(torch.randn(5, 3)), "PolarLinear: expected a PolarPoint, got a Tensor; from_space"),  # type: ignore[arg-type]
        (lambda: PolarLinear(3, 4)(points(2)), "PolarLinear: expected points of dimension 3, got 2"),
        (lambda: PolarAttention(12, 3)(points(6)), "PolarAttention: expected points of dimension 12, got 6"),
        (lambda: PolarMLR(12, 3)(points(6)), "PolarMLR: expected points of dimension 12, got 6"),
        (lambda: GyroLayerNorm(4)(points(3)), r"GyroLayerNorm: expected tokens \[..., N\] of dimension 4"),
        (lambda: GyroLayerNorm(4, eps=-1.0), "GyroLayerNorm: eps must be 0 or more, got -1.0"),
        (lambda: BoostResidual()(points(3), points(4)), r"one shape, got \[2, 5, 3\] and \[2, 5, 4\]"),
        (lambda: BoostResidual()(points(3), points(3, 1)), r"one shape, got \[2, 5, 3\] and \[2, 1, 3\]"),
        (lambda: param_groups(nn.Linear(2, 2), -1, 0.0), "lr and weight_decay must be non-negative, got -1, 0.0"),
        (lambda: param_groups(nn.Linear(2, 2), 1.0, -2), "lr and weight_decay must be non-negative, got 1.0, -2"),
    ],
)
def test_what_does_not_fit_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        call()
