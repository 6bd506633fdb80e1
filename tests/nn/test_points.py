"""The table of learned points: lookup, start, and training by role."""

from __future__ import annotations

import copy

import pytest
import torch

from polarvit.geometry import PolarPoint, distance, from_tangent0, gyroadd
from polarvit.nn import PolarEmbedding
from polarvit.optim import RiemannianAdamW, param_groups
from polarvit.parameters import MANIFOLD, walk


def test_points_are_looked_up_by_index_and_all_without_one() -> None:
    table = PolarEmbedding(7, 3)
    index = torch.tensor([[4, 0], [6, 4]])
    points, every = table(index), table()
    assert points.shape == (2, 2)
    assert every.shape == (7,)
    assert torch.equal(points.radius, every.radius[index])
    assert torch.equal(points.direction, every.direction[index])
    assert [item.role for item in walk(table)] == [MANIFOLD]


def test_it_starts_at_given_points() -> None:
    points = from_tangent0(torch.tensor([[12.0, 0.0], [0.0, 0.0], [-3.0, 4.0]], dtype=torch.float64))
    table = PolarEmbedding.starting_at(points)
    assert table.v.dtype == torch.float64
    torch.testing.assert_close(table().radius, points.radius, atol=1e-15, rtol=1e-15)
    torch.testing.assert_close(table().direction, points.direction, atol=1e-15, rtol=1e-15)


def test_points_in_half_precision_are_computed_with_in_float32() -> None:
    assert PolarEmbedding(3, 2).bfloat16()().radius.dtype == torch.float32


@pytest.mark.parametrize("k", [1.0, 2.3])
def test_points_train_from_the_origin_to_radius_twelve(k: float) -> None:
    torch.manual_seed(0)
    goal = from_tangent0(12 * torch.nn.functional.normalize(torch.randn(5, 4), dim=-1))
    table = PolarEmbedding(5, 4, std=0.0)
    copied = copy.deepcopy(table)
    for each in (table, copied):
        optimizer = RiemannianAdamW(param_groups(each, 0.3, 0.0, k=k))
        for step in range(300):
            optimizer.param_groups[0]["lr"] = 0.3 * (1 - step / 300)
            optimizer.zero_grad()
            distance(each(), goal, k=k).square().sum().backward()
            optimizer.step()
        assert distance(each(), goal, k=k).max() < 0.1
    assert torch.equal(table.v, copied.v)


def test_rows_that_are_not_looked_up_get_no_gradient() -> None:
    table = PolarEmbedding(4, 2)
    p = table(torch.tensor([1, 3]))
    gyroadd(p, PolarPoint(torch.ones(2), torch.eye(2))).radius.sum().backward()
    assert table.v.grad is not None
    assert table.v.grad.abs().sum(-1).bool().tolist() == [False, True, False, True]


def test_wrong_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="got 0, 3"):
        PolarEmbedding(0, 3)
    with pytest.raises(ValueError, match="std must be 0 or more, got -1"):
        PolarEmbedding(2, 3, std=-1)
    with pytest.raises(ValueError, match=r"expected points \[count\], got \[2, 2\]"):
        PolarEmbedding.starting_at(PolarPoint(torch.ones(2, 2), torch.ones(2, 2, 1)))
