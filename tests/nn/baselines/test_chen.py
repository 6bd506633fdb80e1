"""Chen's layers against their formulas, spelled out coordinate by coordinate in plain Python."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from polarvit.geometry import PolarPoint, ambient, from_ambient, to_ambient
from polarvit.nn import PolarLinear
from polarvit.nn.baselines import LorentzBoundedLinear, LorentzLinear
from polarvit.nn.baselines.hexformer import HexLinear
from polarvit.parameters import NO_DECAY, ORDINARY, walk

F64 = torch.float64


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def points(*shape: int, k: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return ambient.from_space(torch.randn(*shape, dtype=F64, generator=generator), k=k)


def phi(value: float, activation: str | None) -> float:
    if activation == "relu":
        return max(value, 0.0)
    return value if activation is None else 0.5 * value * (1 + math.erf(value / math.sqrt(2)))


def product(layer: nn.Module, x: torch.Tensor) -> list[float]:
    rows = layer.weight.tolist()  # type: ignore[operator, union-attr]
    bias = layer.bias.tolist() if layer.bias is not None else [0.0] * len(rows)  # type: ignore[operator, union-attr]
    return [sum(w * c for w, c in zip(row, x.tolist(), strict=True)) + b for row, b in zip(rows, bias, strict=True)]


@pytest.mark.parametrize("k", [0.5, 1.0, 2.3])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_general_layer_is_its_formula(k: float, activation: str | None, bias: bool) -> None:
    layer = LorentzLinear(5, 4, activation, k, bias=bias).double()  # type: ignore[arg-type]
    if layer.bias is not None:
        nn.init.normal_(layer.bias)
    for x in points(6, 5, k=k):
        h = [phi(value, activation) for value in product(layer, x)]
        expected = [math.sqrt(k + sum(value**2 for value in h)), *h]
        torch.testing.assert_close(layer(x).tolist(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [0.5, 1.0, 2.3])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_bounded_layer_is_its_formula(k: float, activation: str | None, bias: bool) -> None:
    layer = LorentzBoundedLinear(5, 12, activation, k, bias=bias, margin=0.5).double()  # type: ignore[arg-type]
    if layer.bias is not None:
        nn.init.normal_(layer.bias)
    for x in points(6, 5, k=k):
        first, *rest = product(layer, x)
        time = math.sqrt(k) + 0.5 + math.exp(layer.scale.item()) / (1 + math.exp(-first))
        h = [phi(value, activation) for value in rest]
        length = math.sqrt(sum(value**2 for value in h))
        assert length > 0
        expected = [time, *(math.sqrt(time**2 - k) * value / length for value in h)]
        torch.testing.assert_close(layer(x).tolist(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [0.5, 1.0, 2.3])
@pytest.mark.parametrize("cls", [LorentzLinear, LorentzBoundedLinear])
def test_outputs_lie_on_the_hyperboloid_and_k_of_the_call_wins(k: float, cls: type[nn.Module]) -> None:
    layer = cls(5, 4, "gelu", 1.0).double()  # type: ignore[call-arg]
    x = points(3, 7, 5, k=k)
    y = layer(x, k=torch.tensor(k, dtype=F64))
    assert y.shape == (3, 7, 5)
    torch.testing.assert_close(ambient.inner(y, y), torch.full((3, 7), -k, dtype=F64))
    same = cls(5, 4, "gelu", k).double()  # type: ignore[call-arg]
    same.load_state_dict(layer.state_dict())
    assert torch.equal(same(x), y)


def test_the_general_layer_is_where_polar_fc_starts() -> None:
    k, polar = 2.3, PolarLinear(5, 4, "gelu").double()
    layer = LorentzLinear(5, 4, "gelu", k).double()
    with torch.no_grad():
        layer.weight.copy_(torch.cat([polar.time_weight.unsqueeze(-1), polar.weight], -1))
    x = points(9, 5, k=k)
    y: PolarPoint = polar(from_ambient(x, k=k), k=k)
    torch.testing.assert_close(layer(x), to_ambient(y, k=k))


def test_hexformers_bounds_of_the_radius() -> None:
    layer = LorentzBoundedLinear(5, 4, margin=0.5, learn_scale=False)
    assert layer.largest_radius() == pytest.approx(3.13, abs=0.005)
    assert math.acosh(1.5) == pytest.approx(0.96, abs=0.005)
    radii = torch.acosh(layer(100 * points(64, 5, k=1.0).float())[..., 0])
    assert radii.min() >= math.acosh(1.5) - 1e-3
    assert radii.max() <= layer.largest_radius() + 1e-3
    assert [item.name for item in walk(layer) if item.parameter.requires_grad] == ["weight"]


@pytest.mark.parametrize("cls", [LorentzLinear, LorentzBoundedLinear])
def test_a_product_of_zeros_has_finite_values_and_gradients(cls: type[nn.Module]) -> None:
    layer = cls(5, 4, "relu").double()  # type: ignore[call-arg]
    nn.init.zeros_(layer.weight)  # type: ignore[arg-type]
    x = points(2, 5, k=1.0).requires_grad_()
    layer(x).sum().backward()
    assert layer(x).isfinite().all()
    assert layer.weight.grad.isfinite().all()  # type: ignore[union-attr]


def test_gradients_are_right() -> None:
    x = points(3, 3, k=1.0).requires_grad_()
    for layer in (LorentzLinear(3, 2, "gelu", bias=True), LorentzBoundedLinear(3, 2, "gelu", bias=True)):
        assert torch.autograd.gradcheck(layer.double(), (x,))


def test_roles_are_declared_and_survive_a_copy() -> None:
    layer = copy.deepcopy(LorentzBoundedLinear(5, 4, bias=True))
    assert {item.name: item.role for item in walk(layer)} == {
        "weight": ORDINARY,
        "bias": NO_DECAY,
        "scale": NO_DECAY,
    }
    assert sum(p.numel() for p in layer.parameters()) == 5 * 6 + 5 + 1
    assert sum(p.numel() for p in LorentzLinear(5, 4).parameters()) == 4 * 6


def test_under_autocast_only_the_product_is_bf16() -> None:
    x = points(3, 5, k=1.0).float()
    for layer in (LorentzLinear(5, 4), LorentzBoundedLinear(5, 4)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x)
        assert y.dtype == torch.float32
        torch.testing.assert_close(ambient.inner(y, y), -torch.ones(3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LorentzLinear(0, 3), "features must be positive, got 0 -> 3"),
        (lambda: LorentzLinear(3, 3, "tanh"), "activation must be None, 'relu' or 'gelu', got 'tanh'"),  # type: ignore[arg-type]
        (lambda: LorentzLinear(3, 3, k=0), "k must be positive"),
        (lambda: LorentzBoundedLinear(3, 3, margin=0), "margin must be positive, got 0"),
        (lambda: LorentzLinear(3, 3)(torch.ones(2, 3)), r"expected ambient points \[..., 4\]"),
    ],
)
def test_errors_say_what_is_wrong(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("heads", [1, 2])
def test_k_of_a_call_replaces_that_of_hexformers_layer(heads: int) -> None:
    """Points of a call lie on the hyperboloid of its k, where a learned one gets a gradient."""
    layer = HexLinear(5, 4, heads=heads).double()
    own = HexLinear(5, 4, k=2.3, heads=heads).double()
    own.load_state_dict(layer.state_dict())
    x, k = points(3, 6, 5, k=2.3), torch.tensor(2.3, dtype=F64, requires_grad=True)
    y = layer(x, k=k)
    torch.testing.assert_close(y, own(x))
    torch.testing.assert_close(layer(x, k=2.3), own(x))
    torch.testing.assert_close(ambient.inner(y, y), torch.full(y.shape[:-1], -2.3, dtype=F64))
    y[..., 0].sum().backward()
    assert k.grad is not None
    assert k.grad > 0
