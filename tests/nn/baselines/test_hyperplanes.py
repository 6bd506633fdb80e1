"""FGG-LNN and the Poincare layer against their formulas in plain Python, and against what the formulas mean."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from polarvit.geometry import ambient
from polarvit.nn.baselines import FGGLinear, PoincareLinear
from polarvit.parameters import NO_DECAY, ORDINARY, walk

F64 = torch.float64


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def points(*shape: int, k: float) -> torch.Tensor:
    return ambient.from_space(torch.randn(*shape, dtype=F64), k=k)


def fgg(k: float = 1.0, activation: str | None = None) -> FGGLinear:
    layer = FGGLinear(5, 4, activation, k).double()  # type: ignore[arg-type]
    nn.init.normal_(layer.bias, std=0.3)
    return layer


def poincare(k: float = 1.0) -> PoincareLinear:
    layer = PoincareLinear(5, 4, k).double()
    nn.init.normal_(layer.weight, std=0.5)
    nn.init.normal_(layer.bias, std=0.3)
    return layer


def signed_distance(x: torch.Tensor, normal: torch.Tensor, offset: torch.Tensor, k: float) -> torch.Tensor:
    """From ambient points [N, n+1] to the hyperplane perpendicular to the unit vector [n], at `offset` from the origin.

    The origin's hyperplane, carried along the normal by the boost of rapidity offset/sqrt(k).
    """
    shift = offset / math.sqrt(k)
    carried = torch.cat([torch.sinh(shift).reshape(1), torch.cosh(shift) * normal])
    return math.sqrt(k) * torch.asinh(ambient.inner(x, carried) / math.sqrt(k))


@pytest.mark.parametrize("k", [0.5, 1.0, 2.3])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_fgg_is_its_formula(k: float, activation: str | None) -> None:
    layer, curvature = fgg(k, activation), 1 / k
    act = {None: lambda t: t, "relu": torch.relu, "gelu": nn.functional.gelu}[activation]
    for x in points(6, 5, k=k):
        space = []
        for u, b in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True):
            size = math.sqrt(sum(value**2 for value in u))
            shift = math.sqrt(curvature) * b / size
            v = [-size * math.sinh(shift), *(math.cosh(shift) * value for value in u)]
            space.append(sum(p * q for p, q in zip(x.tolist(), v, strict=True)))
        space = act(torch.tensor(space, dtype=F64)).tolist()
        expected = [math.sqrt(1 / curvature + sum(value**2 for value in space)), *space]
        torch.testing.assert_close(layer(x).tolist(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [0.5, 1.0, 2.3])
def test_fgg_measures_distances_to_hyperplanes(k: float) -> None:
    layer, x, root = fgg(k), points(7, 5, k=k), math.sqrt(k)
    y = layer(x)
    torch.testing.assert_close(ambient.inner(y, y), torch.full((7,), -k, dtype=F64))
    for j, (u, b) in enumerate(zip(layer.weight, layer.bias, strict=True)):
        size = u.norm()
        distance = signed_distance(x, u / size, b / size, k)
        torch.testing.assert_close(y[:, 1 + j], root * size * torch.sinh(distance / root))


@pytest.mark.parametrize("k", [0.5, 1.0, 100.0])
def test_the_poincare_layer_is_its_formula(k: float) -> None:
    layer, c = poincare(k), 1 / k
    for x in ambient.to_ball(points(6, 5, k=k), k=k).tolist():
        factor = 2 / (1 - c * sum(value**2 for value in x))
        w = []
        for z, r in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True):
            size = math.sqrt(sum(value**2 for value in z))
            along = sum(math.sqrt(c) * p * q / size for p, q in zip(x, z, strict=True))
            turn = 2 * math.sqrt(c) * r
            v = 2 * size / math.sqrt(c) * math.asinh(factor * along * math.cosh(turn) - (factor - 1) * math.sinh(turn))
            w.append(math.sinh(math.sqrt(c) * v) / math.sqrt(c))
        below = 1 + math.sqrt(1 + c * sum(value**2 for value in w))
        got = layer(torch.tensor(x, dtype=F64)).tolist()
        torch.testing.assert_close(got, [value / below for value in w], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [0.5, 1.0, 100.0])
def test_the_poincare_layer_carries_distances_to_hyperplanes(k: float) -> None:
    layer, x = poincare(k), points(7, 5, k=k)
    y = ambient.from_ball(layer(ambient.to_ball(x, k=k)), k=k)
    for j, (z, r) in enumerate(zip(layer.weight, layer.bias, strict=True)):
        size = z.norm()
        wanted = 2 * size * signed_distance(x, z / size, 2 * r, k)
        axis = torch.eye(4, dtype=F64)[j]
        torch.testing.assert_close(signed_distance(y, axis, torch.zeros((), dtype=F64), k), wanted)


def test_half_the_identity_starts_as_published() -> None:
    assert torch.equal(FGGLinear(3, 3, init="eye").weight, 0.5 * torch.eye(3))
    assert torch.equal(FGGLinear(3, 3).bias, torch.full((3,), 0.5))
    ball = ambient.to_ball(points(4, 3, k=1.0))
    torch.testing.assert_close(PoincareLinear(3, 3, init="eye").double()(ball), ball)


def test_points_beyond_the_edge_come_back_inside() -> None:
    for dtype, edge in ((torch.float32, 4e-3), (F64, 1e-10)):
        layer = PoincareLinear(3, 3, init="eye").to(dtype)
        with torch.no_grad():
            layer.weight.mul_(20)
        y = layer(ambient.to_ball(ambient.from_space(torch.ones(4, 3, dtype=dtype))))
        torch.testing.assert_close(y.norm(dim=-1), torch.full((4,), 1 - edge, dtype=dtype))


def test_gradients_are_right() -> None:
    x = points(3, 5, k=1.0).requires_grad_()
    assert torch.autograd.gradcheck(fgg(activation="gelu"), (x,))
    ball = ambient.to_ball(points(3, 5, k=1.0)).detach().requires_grad_()
    assert torch.autograd.gradcheck(poincare(), (ball,))


def test_roles_are_declared_and_survive_a_copy() -> None:
    for layer in (fgg(), poincare()):
        assert {t.name: t.role for t in walk(copy.deepcopy(layer))} == {"weight": ORDINARY, "bias": NO_DECAY}
        assert sum(p.numel() for p in layer.parameters()) == 4 * 6


def test_under_autocast_only_the_product_is_bf16() -> None:
    x = points(3, 5, k=1.0).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = FGGLinear(5, 4)(x)
        z = PoincareLinear(5, 4)(ambient.to_ball(x))
    assert y.dtype == z.dtype == torch.float32
    torch.testing.assert_close(ambient.inner(y, y), -torch.ones(3), rtol=1e-4, atol=1e-4)


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="init must be 'eye' or 'normal', got 'zeros'"):
        FGGLinear(3, 3, init="zeros")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"FGGLinear: expected ambient points \[..., 4\]"):
        FGGLinear(3, 3)(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"PoincareLinear: expected points of the ball \[..., 3\]"):
        PoincareLinear(3, 3)(torch.ones(2, 4))
