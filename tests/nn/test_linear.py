"""The polar fully connected layer and the rules for its radius."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from polarvit.geometry import PolarPoint, ambient, from_space, to_ambient
from polarvit.models.config import PolarViTConfig, literal_fields
from polarvit.nn import RADIUS_RULES, PolarLinear
from polarvit.nn.radius import AnchoredRadius, radius_of_log_sinh

CURVATURES = (0.5, 1.0, 2.3)


def points(count: int, n: int, radius: float = 1.0, seed: int = 0) -> PolarPoint:
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(count, n, dtype=torch.float64, generator=generator)
    r = radius * (0.5 + torch.rand(count, dtype=torch.float64, generator=generator))
    return PolarPoint(r, u / u.norm(dim=-1, keepdim=True))


@pytest.mark.parametrize("k", CURVATURES)
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_it_starts_as_the_general_lorentz_layer(k: float, activation: str | None) -> None:
    torch.manual_seed(0)
    layer = PolarLinear(6, 9, activation, time_init="full").double()
    x = points(40, 6, 1.5)
    h = F.linear(to_ambient(x, k=k), torch.cat([layer.time_weight[:, None], layer.weight], 1))
    h = {None: lambda y: y, "relu": torch.relu, "gelu": F.gelu}[activation](h)
    general = from_space(h, k=k)
    out = layer(x, k=k)
    torch.testing.assert_close(out.radius, general.radius, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(out.direction, general.direction, rtol=1e-12, atol=1e-13)
    assert to_ambient(out, k=k)[:, 0].ge(k**0.5).all()


@pytest.mark.parametrize(("n", "m"), [(6, 9), (192, 384), (48, 192)])
def test_it_has_out_times_in_plus_one_plus_in_plus_three_parameters(n: int, m: int) -> None:
    assert sum(p.numel() for p in PolarLinear(n, m).parameters()) == m * (n + 1) + n + 3


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_it_holds_far_beyond_overflow(activation: str | None) -> None:
    torch.manual_seed(0)
    layer = PolarLinear(8, 8, activation)
    x = PolarPoint(torch.tensor([12.0, 100.0, 1000.0], requires_grad=True), F.normalize(torch.randn(3, 8), dim=-1))
    out = layer(x)
    out.radius.sum().backward()
    assert torch.isfinite(out.radius).all()
    assert torch.isfinite(out.direction).all()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())
    # Far out the layer moves every radius by a constant that the direction decides: slope one.
    torch.testing.assert_close(x.radius.grad, torch.ones(3), atol=1e-4, rtol=0)


def test_a_zero_product_gives_the_origin() -> None:
    layer = PolarLinear(4, 4, time_init="zero")
    torch.nn.init.zeros_(layer.weight)
    out = layer(PolarPoint(torch.ones(2), F.normalize(torch.ones(2, 4), dim=-1)))
    assert out.radius.lt(1e-15).all()
    assert torch.isfinite(out.direction).all()


def test_it_says_which_dimension_was_expected() -> None:
    with pytest.raises(ValueError, match="dimension 4, got 5"):
        PolarLinear(4, 4)(points(2, 5).map(torch.Tensor.float))
    with pytest.raises(ValueError, match="activation must be"):
        PolarLinear(4, 4, "tanh")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown radius rule 'anchord'"):
        PolarLinear(4, 4, rule="anchord")


@pytest.mark.parametrize("rule", RADIUS_RULES)
def test_every_rule_gives_finite_radii_and_trains(rule: str) -> None:
    torch.manual_seed(0)
    layer = PolarLinear(6, 5, "gelu", rule=rule).double()
    x = points(30, 6, 3.0)
    out = layer(x, k=1.7)
    out.radius.sum().backward()
    assert out.radius.ge(0).all()
    for name, p in layer.named_parameters():
        if name.startswith("rule"):
            assert torch.isfinite(p.grad).all(), name
            assert p.grad.any(), name


def test_configs_know_every_rule_and_no_other() -> None:
    assert literal_fields(PolarViTConfig)["rule"] == tuple(RADIUS_RULES)
    with pytest.raises(ValueError, match="rule must be one of anchored"):
        PolarViTConfig(rule="free")  # type: ignore[arg-type]


def test_rules_say_what_they_say() -> None:
    torch.manual_seed(0)
    log_norm, a = torch.randn(7), torch.rand(7) + 0.5
    u = F.normalize(torch.randn(7, 3), dim=-1)
    klein = torch.tanh(a)[:, None] * u
    rules = {name: make(3) for name, make in RADIUS_RULES.items()}
    given = (log_norm, a, u, klein)

    torch.testing.assert_close(rules["anchored"](*given), torch.asinh(log_norm.exp()))
    torch.testing.assert_close(rules["lorentz"](*given), torch.asinh(log_norm.exp()))
    free = rules["free_power"]
    torch.testing.assert_close(free(*given), torch.asinh(torch.exp(free.beta * log_norm + free.phi0)))
    for name, x in (("affine_klein", klein), ("affine_direction", u)):
        rule = rules[name]
        torch.testing.assert_close(rule(*given), torch.asinh(torch.exp(rule.slope * a + x @ rule.phi + rule.phi0)))
    sigmoid = rules["sigmoid"]
    time = 1.1 + torch.exp(sigmoid.scale) * torch.sigmoid(klein @ sigmoid.weight + sigmoid.bias)
    torch.testing.assert_close(torch.cosh(sigmoid(*given)), time)
    torch.testing.assert_close(rules["hard_bound"](log_norm + 9, a, u, klein), torch.full((7,), 5.0))
    deviated = rules["anchored_0.2"]
    assert isinstance(deviated, AnchoredRadius)
    assert (deviated.phi - deviated.phi_anchor).std() > 0.02
    assert deviated.phi_anchor.eq(0).all()
    assert deviated.beta_anchor == 1


@pytest.mark.parametrize("rule", [name for name, make in RADIUS_RULES.items() if make(3).affine])
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_the_fused_layer_has_the_radius_of_the_rule(rule: str, activation: str | None) -> None:
    torch.manual_seed(0)
    layer, x = PolarLinear(6, 5, activation, rule=rule).double(), points(10, 6)  # type: ignore[arg-type]
    layer.rule.shift(0.3)
    h = torch.cosh(x.radius).unsqueeze(-1) * (
        layer.time_weight + torch.tanh(x.radius).unsqueeze(-1) * F.linear(x.direction, layer.weight)
    )
    h = F.gelu(h) if activation else h
    klein = torch.tanh(x.radius).unsqueeze(-1) * x.direction
    expected = layer.rule(torch.log(h.norm(dim=-1)), x.radius, x.direction, klein)
    torch.testing.assert_close(layer(x).radius, expected)


def test_asinh_of_an_exponential_is_exact_at_both_ends() -> None:
    l = torch.tensor([-80.0, -1.0, 0.0, 1.0, 80.0, 1000.0], dtype=torch.float64)
    expected = torch.cat([torch.asinh(l[:5].exp()), l[5:] + torch.log(torch.tensor(2.0, dtype=torch.float64))])
    torch.testing.assert_close(radius_of_log_sinh(l), expected, rtol=1e-15, atol=0)


def test_a_shift_of_the_log_radius_takes_the_anchor_along() -> None:
    rule = RADIUS_RULES["anchored_0.1"](4)
    gap = (rule.phi0 - rule.phi0_anchor).item()
    rule.shift(1.5)
    assert rule.phi0_anchor.item() == pytest.approx(1.5)
    assert (rule.phi0 - rule.phi0_anchor).item() == pytest.approx(gap, abs=1e-6)


def test_ambient_points_stay_on_the_sheet() -> None:
    out = to_ambient(PolarLinear(6, 4).double()(points(10, 6)))
    torch.testing.assert_close(ambient.inner(out, out), -torch.ones(10, dtype=torch.float64), rtol=1e-12, atol=0)


def test_models_that_differ_in_their_rule_have_the_same_matrices_with_one_seed():
    weights = []
    for rule in ("anchored", "anchored_0.1", "free_power", "affine_klein", "affine_direction", "sigmoid"):
        torch.manual_seed(0)
        first, second = (PolarLinear(6, 5, rule=rule) for _ in range(2))
        weights.append(torch.cat([first.weight, second.weight]).detach())
        drawn = [torch.cat([p.detach().flatten() for p in layer.rule.parameters()]) for layer in (first, second)]
        if rule != "anchored":
            assert not torch.equal(*drawn), f"{rule}: layers of one model start apart"
    assert all(torch.equal(weights[0], each) for each in weights)
