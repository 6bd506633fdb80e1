"""Scores depend on the offset between tokens alone: for each group, how exactly."""

from __future__ import annotations

import pytest
import torch

from polarvit.geometry import PolarPoint, pairwise_distance
from polarvit.nn import PositionalEncoding, grid_positions, positional_encoding
from polarvit.nn.position import sincos_table

EXTENT = torch.tensor([8.0, 8.0], dtype=torch.float64)


def encoding(name: str, rate: float = 2.0, d: int = 8) -> PositionalEncoding:
    return positional_encoding(name, 2, d, rate=rate).double()


def score(
    layer: PositionalEncoding, q: PolarPoint, key: PolarPoint, m: list[float], n: list[float], k: float
) -> torch.Tensor:
    """Distance of a query at grid position m and a key at n, [H]."""
    a = layer(q, torch.tensor([m], dtype=torch.float64), EXTENT, k=k)
    b = layer(key, torch.tensor([n], dtype=torch.float64), EXTENT, k=k)
    return pairwise_distance(a, b, k=k)[0, :, 0, 0]


def pair(d: int = 8, seed: int = 0) -> tuple[PolarPoint, PolarPoint]:
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(2, 1, 2, 1, d, dtype=torch.float64, generator=generator)
    u = u / u.norm(dim=-1, keepdim=True)
    r = 0.5 + torch.rand(2, 1, 2, 1, dtype=torch.float64, generator=generator)
    return PolarPoint(r[0], u[0]), PolarPoint(r[1], u[1])


@pytest.mark.parametrize("k", [1.0, 2.3])
@pytest.mark.parametrize("name", ["separate", "joint", "boost", "rotary"])
@pytest.mark.parametrize("axis", [0, 1])
def test_along_one_axis_only_the_offset_counts(name: str, axis: int, k: float) -> None:
    layer, (q, key) = encoding(name), pair()

    def at(x: float) -> list[float]:
        return [x, 0.0] if axis == 0 else [0.0, x]

    torch.testing.assert_close(
        score(layer, q, key, at(1), at(3), k), score(layer, q, key, at(5), at(7), k), rtol=1e-12, atol=0
    )
    assert not torch.allclose(score(layer, q, key, at(1), at(3), k), score(layer, q, key, at(1), at(4), k), rtol=1e-3)


@pytest.mark.parametrize("name", ["joint", "rotary"])
def test_commuting_shifts_are_exact_along_both_axes(name: str) -> None:
    layer, (q, key) = encoding(name), pair()
    near, far = score(layer, q, key, [0, 1], [2, 3], 1.0), score(layer, q, key, [4, 2], [6, 4], 1.0)
    torch.testing.assert_close(near, far, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["separate", "boost"])
def test_separate_ideal_points_are_relative_to_first_order(name: str) -> None:
    q, key = pair()
    errors = []
    for rate in (0.1, 0.05):
        layer = encoding(name, rate)
        gap = score(layer, q, key, [0, 1], [2, 3], 1.0) - score(layer, q, key, [4, 2], [6, 4], 1.0)
        errors.append(gap.abs().max().item())
    assert errors[0] > 1e-6
    assert errors[1] < 0.3 * errors[0]  # second order: a quarter


def test_rotations_keep_radii_and_no_shift_keeps_everything() -> None:
    q, _ = pair()
    positions, extent = torch.tensor([[3.0, 5.0]], dtype=torch.float64), EXTENT
    turned = encoding("rotary")(q, positions, extent)
    assert turned.radius.equal(q.radius)
    torch.testing.assert_close(turned.direction.norm(dim=-1), torch.ones_like(q.radius), rtol=1e-14, atol=0)
    assert encoding("none")(q, positions, extent) is q


def test_grids_may_be_oblong_and_a_class_token_stands_still() -> None:
    positions, extent = grid_positions((2, 3), class_token=True)
    assert positions.tolist() == [[0, 0], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert extent.tolist() == [2, 3]
    u = torch.randn(1, 2, 7, 8, dtype=torch.float64)
    p = PolarPoint(torch.ones(1, 2, 7, dtype=torch.float64), u / u.norm(dim=-1, keepdim=True))
    for name in ("separate", "joint", "boost", "rotary"):
        out = encoding(name)(p, positions.double(), extent.double())
        torch.testing.assert_close(out.direction[:, :, 0], p.direction[:, :, 0], rtol=1e-14, atol=1e-15)


def test_bfloat16_models_keep_their_positions_sharp() -> None:
    layer = positional_encoding("rotary", 2, 8).bfloat16()
    sharp = positional_encoding("rotary", 2, 8)
    u = torch.nn.functional.normalize(torch.randn(1, 2, 1, 8), dim=-1)
    p = PolarPoint(torch.ones(1, 2, 1), u)
    m = torch.tensor([[13.0, 11.0]])
    torch.testing.assert_close(layer(p, m.bfloat16(), m).direction, sharp(p, m, m).direction)


def test_sine_cosine_table_wants_quarters() -> None:
    assert sincos_table((2, 3), 8).shape == (6, 8)
    assert sincos_table((2, 2), 8)[0].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    with pytest.raises(ValueError, match="multiple of 4"):
        sincos_table((2, 2), 6)
    with pytest.raises(ValueError, match="unknown positional encoding"):
        positional_encoding("spiral", 2, 8)


@pytest.mark.parametrize("name", ["separate", "joint", "boost", "rotary"])
def test_rates_spread_in_even_ratios_one_axis_against_the_other(name: str) -> None:
    layer = positional_encoding(name, 3, 8, rate=2.0)
    layer.spread(4.0)
    expected = torch.tensor([[0.5, 8.0], [2.0, 2.0], [8.0, 0.5]])
    torch.testing.assert_close(layer.rate.detach(), expected)
    with pytest.raises(ValueError, match="factor above 0, got -1"):
        layer.spread(-1.0)


def test_a_spread_of_one_changes_nothing_and_no_rates_need_none() -> None:
    layer = positional_encoding("separate", 5, 8)
    layer.spread(1.0)
    assert torch.equal(layer.rate, torch.full((5, 2), 4.0))
    assert list(positional_encoding("boost", 1, 8).rate.flatten()) == [1.0, 1.0]
    positional_encoding("none", 2, 8).spread(3.0)
