"""Polar attention against its definition, one pair at a time."""

from __future__ import annotations

import pytest
import torch

from polarvit.geometry import PolarPoint, ambient, concat, from_ambient, from_tangent0, split_heads, to_ambient
from polarvit.nn import HoroShift, PolarAttention, grid_positions


def tokens(b: int, n: int, dim: int, radius: float = 1.0) -> PolarPoint:
    u = torch.randn(b, n, dim, dtype=torch.float64)
    return PolarPoint(radius * (0.5 + torch.rand(b, n, dtype=torch.float64)), u / u.norm(dim=-1, keepdim=True))


@pytest.fixture
def attention() -> PolarAttention:
    torch.manual_seed(0)
    layer = PolarAttention(12, 3, HoroShift(3, 4)).double()
    with torch.no_grad():
        layer.log_gain.normal_(std=0.3)
        layer.log_temperature.normal_(std=0.3)
        layer.position.rate.normal_()
    return layer.eval()


def gain(layer: PolarAttention, index: int, when: str) -> torch.Tensor:
    """The gains [H] of queries, keys or values if they act then, else ones."""
    own = layer.log_gain[index].exp()
    return own if layer.gain == when else torch.ones_like(own)


def brute_force(layer: PolarAttention, x: PolarPoint, grid: tuple[int, int], k: float, mask=None) -> PolarPoint:
    """Every head, query and key in turn, in ambient coordinates."""
    positions, extent = (t.double() for t in grid_positions(grid))
    heads = []
    for index, linear in enumerate((layer.query, layer.key, layer.value)):
        split = split_heads(linear(x, k=k), layer.heads, k=k)
        heads.append(to_ambient(PolarPoint(split.radius * gain(layer, index, "before_shift"), split.direction), k=k))
    rows = []
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            joined = []
            for h in range(layer.heads):
                moved = []
                for which in (0, 1):
                    y = heads[which][b, :, h]
                    for axis in (0, 1):
                        t = layer.position.rate[h, axis] * positions[:, axis] / extent[axis]
                        y = ambient.horoshift(y, t, axes=(2 * axis, 2 * axis + 1), k=k)
                    moved.append(ambient.gyroscale(y, gain(layer, which, "after_shift")[h], k=k))
                keys = [j for j in range(x.shape[1]) if mask is None or mask[b, j]]
                d = torch.stack([ambient.distance(moved[0][i], moved[1][j], k=k) for j in keys])
                w = torch.softmax(-(4**-0.5) / layer.log_temperature[h].exp() * d.square(), 0)
                v = ambient.gyroscale(heads[2][b, keys, h], gain(layer, 2, "after_shift")[h], k=k)
                joined.append(from_ambient(ambient.centroid(v, w, k=k), k=k))
            rows.append(concat(joined, k=k))
    r, u = torch.stack([p.radius for p in rows]), torch.stack([p.direction for p in rows])
    return layer.out(PolarPoint(r, u).reshape(*x.shape), k=k)


@pytest.mark.parametrize("k", [1.0, 2.3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("when", ["before_shift", "after_shift"])
def test_it_is_its_definition(attention: PolarAttention, k: float, masked: bool, when: str) -> None:
    attention.gain = when
    x = tokens(2, 6, 12)
    mask = torch.tensor([[1, 1, 0, 1, 0, 1], [0, 1, 1, 1, 1, 1]], dtype=torch.bool) if masked else None
    positions, extent = (t.double() for t in grid_positions((2, 3)))
    with torch.no_grad():
        out = attention(x, positions, extent, k=k, mask=mask)
        expected = brute_force(attention, x, (2, 3), k, mask)
    torch.testing.assert_close(out.radius, expected.radius, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(out.direction, expected.direction, rtol=1e-8, atol=1e-9)


def test_a_row_with_nothing_to_attend_to_is_the_image_of_the_origin(attention: PolarAttention) -> None:
    x = tokens(2, 6, 12)
    mask = torch.tensor([[True] * 6, [False] * 6])
    positions, extent = (t.double() for t in grid_positions((2, 3)))
    out = attention(x, positions, extent, mask=mask)
    origin = attention.out(
        attention.merge(PolarPoint(torch.zeros(1, 3, 1).double(), torch.eye(4).double()[0].expand(1, 3, 1, 4)))
    )
    torch.testing.assert_close(out.radius[1], origin.radius.expand(1, 6)[0])
    q, key, _ = attention.project(x, positions, extent, k=1.0)
    weights = attention.weights(q, key, mask=mask)
    assert weights[1].eq(0).all()
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(3, 6, dtype=torch.float64))
    out.radius.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in attention.parameters() if p.grad is not None)


def test_masked_tokens_move_nothing_with_dropout_or_without(attention: PolarAttention) -> None:
    v = torch.randn(2, 6, 12, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, True, False, True, True], [False] * 6])
    positions, extent = (t.double() for t in grid_positions((2, 3)))
    for attention.dropout in (0.0, 0.3):
        out = attention.train()(from_tangent0(v), positions, extent, mask=mask)
        others = [0, 1, 2, 4, 5]
        (gradient,) = torch.autograd.grad(out.radius[0, others].sum() + out.radius[1].sum(), v)
        assert torch.isfinite(gradient).all()
        assert not gradient[0, 3].any()
        assert not gradient[1].any()
        assert gradient[0, others].any(-1).all()


def test_dropout_acts_on_weights_while_training_only() -> None:
    torch.manual_seed(0)
    layer = PolarAttention(8, 2, dropout=0.5)
    x = tokens(2, 8, 8).map(torch.Tensor.float)
    torch.testing.assert_close(layer.eval()(x).radius, layer(x).radius)
    still = layer(x).radius
    moving = layer.train()(x).radius
    assert not torch.allclose(still, moving)
    assert not torch.allclose(moving, layer(x).radius)
    layer(x).radius.sum().backward()
    assert torch.isfinite(layer.query.weight.grad).all()


def test_it_names_bad_arguments() -> None:
    with pytest.raises(ValueError, match="dim 190 is not divisible by 12 heads"):
        PolarAttention(190, 12)
    with pytest.raises(ValueError, match="needs positions"):
        PolarAttention(8, 2, HoroShift(2, 4))(tokens(1, 4, 8).map(torch.Tensor.float))
    with pytest.raises(ValueError, match="head dimension >= 4, got 3"):
        HoroShift(2, 3)
    x = tokens(2, 4, 8).map(torch.Tensor.float)
    for dropout in (0.0, 0.5):
        for mask in (torch.ones(1, 4, dtype=torch.bool), torch.ones(2, 4), torch.ones(2, 4, 4, dtype=torch.bool)):
            with pytest.raises(ValueError, match=r"mask must be torch\.bool \[2, 4\], got"):
                PolarAttention(8, 2, dropout=dropout)(x, mask=mask)


@pytest.mark.parametrize(
    ("rule", "fused"), [("anchored", True), ("lorentz", True), ("free_power", True), ("hard_bound", False)]
)
def test_queries_keys_and_values_at_once_are_those_made_one_by_one(rule: str, fused: bool) -> None:
    torch.manual_seed(0)
    layer = PolarAttention(12, 3, HoroShift(3, 4), rule=rule).double()
    for linear in (layer.query, layer.key, layer.value):
        if fused:
            linear.rule.shift(0.2)
    positions, extent = (t.double() for t in grid_positions((2, 3)))
    x = tokens(2, 6, 12)
    assert layer.together() is fused
    at_once = layer(x, positions, extent)
    layer.one_by_one = True
    one_by_one = layer(x, positions, extent)
    for found, expected in zip(at_once, one_by_one, strict=True):
        torch.testing.assert_close(found, expected)
