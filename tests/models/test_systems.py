"""The systems of other papers: each against an independent statement of its formulas, and their published sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import restated
import torch
from models.narrow import NARROW

from polarvit.experiments import ablation, position, radius_rule
from polarvit.geometry import PolarPoint, ambient, from_ball, gyroadd, to_ambient, to_ball, to_tangent0
from polarvit.models import calibrate, create_model, export_program, list_models
from polarvit.nn import residual
from polarvit.nn.baselines import ball
from polarvit.nn.baselines.lorentz import TangentPoint, soft_radius_cap
from polarvit.optim import RiemannianAdamW, param_groups
from polarvit.parameters import Role, walk
from polarvit.training import load
from polarvit.training.distributed import Place
from polarvit.training.step import TrainingStep

STATED = {
    "lorentz_vit_tiny": restated.lorentz_vit,
    "hexformer_tiny": restated.hexformer,
    "hexformer_hybrid_tiny": restated.hexformer,
    "lvit_tiny": restated.lvit,
    "hvt_tiny": restated.hvt,
}


@pytest.mark.parametrize("name", STATED)
def test_a_system_is_what_its_formulas_say(narrow, name) -> None:
    generator = torch.Generator().manual_seed(3)
    model = narrow(name).double().eval()
    for parameter in model.parameters():  # away from ones, zeros and the origin, where mistakes hide
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    for key, parameter in model.named_parameters():
        if key.endswith(("token.vector", "bias.vector", "table.vector")) and not name.startswith("hvt"):
            parameter.data[..., 0] = 0  # a tangent vector at the origin has no time component
    images = torch.randn(2, 3, 8, 8, generator=generator, dtype=torch.float64)
    state = restated.State({key: tensor.numpy() for key, tensor in model.state_dict().items()})
    expected = np.stack([STATED[name](state, image.numpy(), model.config) for image in images])
    np.testing.assert_allclose(model(images).detach().numpy(), expected, rtol=1e-8, atol=1e-9)


def test_hexformers_have_the_published_number_of_parameters() -> None:
    sizes = {}
    for name in ("hexformer_tiny", "hexformer_base", "hexformer_hybrid_tiny"):
        with torch.device("meta"):
            sizes[name] = create_model(name, num_classes=100, img_size=32, patch_size=4).count()
    assert sizes == {"hexformer_tiny": 2_723_746, "hexformer_base": 85_285_369, "hexformer_hybrid_tiny": 2_723_744}


def test_lvit_and_hvt_have_the_sizes_their_layers_add_up_to() -> None:
    with torch.device("meta"):
        lvit, hvt = (
            create_model(f"{name}_base", num_classes=1000, img_size=224, patch_size=16) for name in ("lvit", "hvt")
        )
    n, heads = 780, 12  # ambient width, 12 heads of 65
    block = 3 * (n * 768 + 768) + n * 779 + 779 + 2 + n * 3120 + 3120 + 3121 * 779 + 779 + 4 * 779 + 2
    assert lvit.count() == 12 * block + 769 * 779 + 779 + 196 * n + 1 + 1000 * 779 + 1000
    d = 768
    block = 4 * (d * d + d) + heads + 2 * 4 * d * d + 5 * d + 1 + 4 * d + 2
    assert hvt.count() == 12 * block + d * d + d + 196 * d + 1 + 2 * d + 1000 * d + 1000
    assert round(hvt.count() / 1e6) == 87  # the README of the original says 86 M


def test_the_key_clamp_is_off_unless_asked_for(narrow, images) -> None:
    for clamped in (False, True):
        model = narrow("hexformer_tiny", clamped_keys=clamped)
        model.after_step()
        key, query = (getattr(model.blocks[0].attention, which).weight for which in ("key", "query"))
        assert (key.min().item() >= 0.05 - 1e-7) is clamped
        assert query.min() < 0
        assert (key == 0.05).float().mean().item() > 0.5 if clamped else True


def test_training_steps_clamp_the_keys_where_asked(narrow, images) -> None:
    targets = torch.eye(5)[:3]
    for clamped in (False, True):
        model = narrow("hexformer_tiny", clamped_keys=clamped)
        optimizer = RiemannianAdamW(param_groups(model, 1e-2, 0.05))
        step = TrainingStep(model, optimizer, Place(0, 1, torch.device("cpu")))
        step(images, targets, 1e-2)
        keys = torch.stack([block.attention.key.weight for block in model.blocks])
        assert bool((keys.min() >= 0.05 - 1e-7).item()) is clamped


def test_the_published_final_norm_of_hexformer_mixes_the_batch_and_ours_does_not(narrow, images) -> None:
    for final_norm, mixes in (("tokens", False), ("batch", True)):
        model = narrow("hexformer_tiny", final_norm=final_norm).eval()
        alone = model(images[:2])[0]
        assert (not torch.allclose(model(images)[0], alone, atol=1e-5)) is mixes
        if mixes:  # every pooled point is at distance gamma of the bias, the origin here
            radius = model.forward_head(model.forward_features(images), pre_logits=True).norm(dim=-1)
            torch.testing.assert_close(radius, torch.ones(3), rtol=1e-3, atol=1e-3)


def test_the_ball_is_the_same_space() -> None:
    torch.manual_seed(0)
    x, y = (
        PolarPoint(2 * torch.rand(50).double(), torch.nn.functional.normalize(torch.randn(50, 5).double(), dim=-1))
        for _ in range(2)
    )
    torch.testing.assert_close(ball.mobius_add(to_ball(x), to_ball(y)), to_ball(gyroadd(x, y)))
    torch.testing.assert_close(2 * ball.log0(to_ball(x)), to_tangent0(x))
    torch.testing.assert_close(ball.exp0(0.5 * to_tangent0(x)), to_ball(x))
    far = ball.exp0(torch.full((1, 5), 1e4))
    assert from_ball(far).radius.item() == pytest.approx(2 * math.atanh(0.996), rel=1e-4)
    for function in (ball.exp0, ball.log0):
        zero = torch.zeros(3, requires_grad=True)
        function(zero).sum().backward()
        torch.testing.assert_close(zero.grad, torch.ones(3))


@pytest.mark.parametrize("r", [0.5, 3.0, 6.38, 12.0])
def test_the_soft_cap_is_the_stated_one(r: float) -> None:
    point = to_ambient(PolarPoint(torch.tensor([r]).double(), torch.tensor([[0.6, 0.8]]).double()))
    capped = math.acosh(soft_radius_cap(point)[0, 0].item())
    assert capped == pytest.approx(
        math.acosh(2000) * math.tanh(math.atanh(0.99) / (2 * math.acosh(2000)) * r), rel=1e-6
    )
    assert (capped > r) is (r < 6.38)


def test_a_point_kept_as_tangent_vector_leaves_the_origin_and_keeps_no_time() -> None:
    point = TangentPoint(torch.zeros(4))
    optimizer = RiemannianAdamW(param_groups(point, 0.1, 0.05))
    goal = ambient.from_space(torch.tensor([1.0, -2.0, 0.5, 0.0]))
    for _ in range(100):
        optimizer.zero_grad()
        (-ambient.inner(point(), goal)).backward()
        optimizer.step()
    assert abs(point.vector[0].item()) < 1e-6
    torch.testing.assert_close(point(), goal, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", ["lorentz_vit_tiny", "hexformer_tiny", "lvit_tiny", "hvt_tiny"])
def test_calibration_brings_layers_to_the_target(narrow, images, name) -> None:
    reached = calibrate(narrow(name, target_radius=2.5), images)
    layers = [radius for layer, radius in reached.items()]
    assert len(layers) >= 13
    assert layers == pytest.approx([2.5] * len(layers), rel=1e-3)


@pytest.mark.parametrize("name", [name for name in list_models() if name.startswith(("lorentz", "hex", "lvit", "hvt"))])
def test_points_and_gains_have_their_roles(narrow, name) -> None:
    roles = {tagged.name: tagged.role for tagged in walk(narrow(name))}
    assert any(role is Role.MANIFOLD for role in roles.values())
    for key, role in roles.items():
        if key.endswith(".vector"):
            assert role is Role.MANIFOLD, key
        elif key.endswith((".gain", "temperature", ".slope", ".scale", "log_temperature", "offset")) or "norm1" in key:
            assert role is Role.NO_DECAY, key


@pytest.mark.parametrize("alpha", [0.1, -0.7])
def test_the_ambient_boost_residual_is_the_exact_one_in_other_coordinates(alpha: float) -> None:
    torch.manual_seed(0)
    x, step = (
        PolarPoint(3 * torch.rand(2, 7).double(), torch.nn.functional.normalize(torch.randn(2, 7, 5).double(), dim=-1))
        for _ in range(2)
    )
    found, expected = (residual(name, alpha).double()(x, step, k=2.3) for name in ("ambient_boost", "exact_boost"))
    torch.testing.assert_close(to_ambient(found, k=2.3), to_ambient(expected, k=2.3))


ROWS = {
    f"{row.recipe}, {' '.join(row.overrides) or 'as it is'}": load(row.recipe, list(row.overrides)).model
    for row in (*ablation.ROWS, *position.ROWS, *radius_rule.ROWS)
}
"""Every model of the paper's ablations, by recipe and overrides: those of several tables are here once."""


@pytest.mark.parametrize("row", [row for row, model in ROWS.items() if model.name == "polar_vit_tiny"])
def test_a_row_of_the_ablations_is_what_its_formulas_say(narrow, row) -> None:
    generator = torch.Generator().manual_seed(5)
    own = {key: value for key, value in ROWS[row].options.items() if key not in NARROW}
    model = narrow("polar_vit_tiny", **own).double().eval()
    for parameter in model.parameters():  # away from ones, zeros and the origin, where mistakes hide
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    for name, buffer in model.named_buffers():
        if name.endswith("rule.offset"):  # calibration may leave one
            buffer += 0.1 * torch.randn(buffer.shape, generator=generator, dtype=torch.float64)
    images = torch.randn(2, 3, 8, 8, generator=generator, dtype=torch.float64)
    state = restated.State({key: tensor.numpy() for key, tensor in model.state_dict().items()})
    expected = np.stack([restated.polar_vit(state, image.numpy(), model.config) for image in images])
    np.testing.assert_allclose(model(images).detach().numpy(), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", [*STATED, "polar_vit_tiny"])
def test_every_part_with_parameters_is_compiled_in_training(narrow, images, name, monkeypatch) -> None:
    model = narrow(name, **({"final_norm": True} if name == "polar_vit_tiny" else {})).train()
    parts = []
    for way in ("run", "run_end"):
        monkeypatch.setattr(model, way, lambda part, *x, **more: parts.append(part) or part(*x, **more))
    model(images)
    known = {id(p) for part in parts for p in part.parameters()}
    rest = [key for key, p in model.named_parameters() if p.requires_grad and id(p) not in known]
    assert [key for key in rest if not key.startswith("head.")] == [], "runs outside the compiled parts"


@pytest.mark.parametrize("name", STATED)
def test_weights_come_back_and_fit_larger_images(narrow, images, tmp_path, name) -> None:
    model = narrow(name).eval()
    model.save_pretrained(tmp_path)
    assert create_model(str(tmp_path), pretrained=True)(images).equal(model(images))
    larger = create_model(str(tmp_path), pretrained=True, img_size=16)
    assert torch.isfinite(larger(torch.nn.functional.interpolate(images, size=16))).all()
    assert larger.trace(torch.nn.functional.interpolate(images, size=16)).attention.isfinite().all()


@pytest.mark.slow
def test_a_system_exports_with_any_batch(narrow, images) -> None:
    model = narrow("hexformer_tiny", depth=1).eval()
    torch.testing.assert_close(export_program(model).module()(images), model(images), rtol=1e-5, atol=1e-6)
