"""The Poincare ball of published models: what its edge does to gradients."""

from __future__ import annotations

import math

import pytest
import torch

from polarvit.nn.baselines.ball import LARGEST, exp0, log0, project


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [3, 192, 3072])
def test_points_on_the_edge_hand_their_gradient_on_whatever_rounding_says(dtype, dim) -> None:
    """|exp_0(s log_0 x)| has the slope artanh(L) (1 - L^2) in s at s = 1, for every x that was brought to |x| = L."""
    torch.manual_seed(0)
    x = project(torch.randn(500, dim, dtype=dtype) + 9)
    scale = torch.ones(500, 1, dtype=dtype, requires_grad=True)
    exp0(scale * log0(x)).norm(dim=-1).sum().backward()
    expected = torch.full_like(scale, math.atanh(LARGEST) * (1 - LARGEST**2))
    torch.testing.assert_close(scale.grad, expected, rtol=1e-3 if dtype == torch.float32 else 1e-10, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_outside_come_back_to_the_edge(dtype) -> None:
    x = torch.randn(500, 8, dtype=dtype)
    largest = project(4 * x / x.norm(dim=-1, keepdim=True)).norm(dim=-1)
    torch.testing.assert_close(largest, torch.full_like(largest, LARGEST))
    inside = 0.99 * x / x.norm(dim=-1, keepdim=True)
    assert project(inside).equal(inside)
