"""Calibration brings every layer and head to the stated radius, and anchors follow."""

from __future__ import annotations

import math

import pytest
import torch

from polarvit.models import calibrate
from polarvit.models.calibrate import _stretch
from polarvit.nn import PolarAttention, PolarLinear


@pytest.mark.parametrize("rule", ["anchored", "anchored_0.1", "free_power", "affine_klein", "hard_bound", "lorentz"])
@pytest.mark.parametrize(("target", "k"), [(1.5, 1.0), (None, 1.0), (None, 2.3)])
@pytest.mark.parametrize("calibration", ["offset", "weights"])
def test_every_layer_starts_at_the_stated_radius(narrow, images, rule, target, k, calibration) -> None:
    model = narrow("polar_vit_tiny", rule=rule, target_radius=target, k=k, calibration=calibration)

    def wanted(n: int) -> float:
        return target if target is not None else math.sqrt(k) * math.asinh(math.sqrt(n / k))

    calibrate(model, images)
    for block in model.blocks:
        block.attention.one_by_one = True  # so that hooks see queries, keys and values
    reached: dict[str, float] = {}
    hooks = [
        module.register_forward_hook(lambda m, a, out, name=name: reached.update({name: out.radius.mean().item()}))
        for name, module in model.named_modules()
        if isinstance(module, PolarLinear)
    ]
    with torch.no_grad():
        model.eval()(images)
    for hook in hooks:
        hook.remove()
    for name, radius in reached.items():
        assert radius == pytest.approx(wanted(model.get_submodule(name).out_features), rel=1e-3), name
    assert len(reached) == 1 + 2 * 6
    again = calibrate(model, images)
    heads = [radius for name, radius in again.items() if name.endswith("_heads")]
    assert heads == pytest.approx([wanted(8)] * 6, rel=1e-3)


def test_anchors_follow_but_a_deviation_stays_one(narrow, images) -> None:
    model = narrow("polar_vit_tiny", rule="anchored_0.1", calibration="offset")
    before = {n: m.rule.phi0 - m.rule.phi0_anchor for n, m in model.named_modules() if isinstance(m, PolarLinear)}
    calibrate(model, images)
    for name, gap in before.items():
        rule = model.get_submodule(name).rule
        torch.testing.assert_close(rule.phi0 - rule.phi0_anchor, gap, atol=1e-5, rtol=0)
        assert rule.phi_anchor.eq(0).all()
    assert any(m.rule.phi0_anchor.abs() > 0.1 for m in model.modules() if isinstance(m, PolarLinear))


def test_by_default_weights_are_scaled_and_the_rule_stays_at_its_anchor(narrow, images) -> None:
    shifted, scaled = (narrow("polar_vit_tiny", depth=1, **each) for each in ({"calibration": "offset"}, {}))
    drawn = {name: p.clone() for name, p in scaled.named_parameters()}
    for model in (shifted, scaled):
        calibrate(model, images)
    for name, layer in scaled.named_modules():
        if isinstance(layer, PolarLinear):
            assert layer.rule.phi0.item() == layer.rule.phi0_anchor.item() == 0
            factor = (layer.weight / drawn[f"{name}.weight"]).mean()
            torch.testing.assert_close(layer.time_weight, factor * drawn[f"{name}.time_weight"], atol=0, rtol=1e-4)
            if "mlp" not in name:  # before the first activation both ways start the same
                offset = shifted.get_submodule(name).rule.phi0
                torch.testing.assert_close(factor.log(), offset, atol=3e-3, rtol=0)


def test_a_hard_bound_is_beyond_every_radius_that_a_calibrated_model_starts_with_on_noise(narrow, images) -> None:
    model, bound = narrow("polar_vit_tiny", rule="hard_bound", dim=192, mlp_dim=384, heads=12, depth=1), 5.0
    calibrate(model, images)
    model.blocks[0].attention.one_by_one = True
    largest: list[float] = []
    for module in model.modules():
        if isinstance(module, PolarLinear):
            module.register_forward_hook(lambda m, a, out: largest.append(out.radius.max().item()))
    model.eval()(images)
    assert len(largest) == 7
    assert max(largest) < bound
    reached = calibrate(narrow("polar_vit_tiny", rule="hard_bound", target_radius=9.0), images)
    assert all(r <= bound for name, r in reached.items() if not name.endswith("_heads"))


@pytest.mark.parametrize("calibration", ["weights", "offset"])
def test_a_rule_without_an_offset_is_calibrated_by_its_scale(narrow, images, calibration: str) -> None:
    model = narrow("polar_vit_tiny", rule="sigmoid", target_radius=2.7, calibration=calibration)
    layers = [module for module in model.modules() if isinstance(module, PolarLinear)]
    before = [layer.weight.clone() for layer in layers]
    reached = calibrate(model, images)
    assert all(r == pytest.approx(2.7, rel=1e-3) for r in reached.values())
    assert all(torch.equal(weight, layer.weight) for weight, layer in zip(before, layers, strict=True))
    assert calibrate(model, images) == pytest.approx(reached, rel=1e-3)


def test_it_leaves_the_mode_and_the_modules_as_they_were(narrow, images) -> None:
    model = narrow("polar_vit_tiny").train()
    calibrate(model, images)
    assert model.training
    for module in model.modules():
        assert not module._forward_hooks
        assert not isinstance(module, PolarAttention) or not (module.one_by_one or "to_heads" in module.__dict__)
    with pytest.raises(TypeError, match="only hyperbolic models"):
        calibrate(narrow("vit_tiny"), images)


def test_blocks_compiled_for_evaluation_are_calibrated_and_traced_as_plain_ones(narrow, images) -> None:
    plain, model = narrow("polar_vit_tiny"), narrow("polar_vit_tiny").eval()
    torch._dynamo.reset()
    model.compile_blocks(evaluation=True, backend="eager")
    model(images)
    assert calibrate(model, images) == calibrate(plain, images)
    assert model.trace(images).attention.equal(plain.trace(images).attention)
    assert model.compiled is not None
    assert model.compiled_ends is not None


def test_a_layer_that_starts_on_a_plateau_is_stretched_off_it() -> None:
    shut = 1 / (1 + math.exp(12.0))
    assert _stretch(lambda stretch: math.acosh(1.1 + math.exp(2.3 + stretch) * shut), 2.0) == pytest.approx(
        2.0, rel=1e-3
    )


def test_a_bounded_layer_is_stretched_to_its_end_and_no_further() -> None:
    tried: list[float] = []

    def radius(stretch: float) -> float:
        tried.append(stretch)
        return 3.0 * math.tanh(math.exp(stretch))

    assert _stretch(radius, 9.0) == pytest.approx(3.0, abs=3e-3)
    assert 0 < tried[-1] < 3
