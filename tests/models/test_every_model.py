"""One walk over every registered model: what anybody may do to a module, and timm's surface."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from models.copies import check_copies
from models.narrow import DISTINCT, EVERY, MODELS
from models.steps import clusters, train

from polarvit.geometry import PolarPoint
from polarvit.models import PolarViT, create_model, list_models, model_rows


@pytest.mark.parametrize("name", EVERY)
def test_float64_autocast_and_bfloat16(narrow, images, name) -> None:
    model = narrow(name).eval()
    logits = model(images)
    assert model.double()(images.double()).dtype == torch.float64
    torch.testing.assert_close(model(images.double()).float(), logits, rtol=1e-4, atol=1e-5)
    model.float()
    with torch.autocast("cpu", torch.bfloat16):
        narrowed = model(images)
    assert torch.isfinite(narrowed).all()
    torch.testing.assert_close(narrowed.float(), logits, rtol=0.05, atol=0.05)
    assert torch.isfinite(model.bfloat16()(images.bfloat16())).all()


@pytest.mark.parametrize("name", EVERY)
def test_copies_pickles_state_dicts_and_functional_calls_agree(narrow, images, name) -> None:
    check_copies(narrow(name), images)


@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_drive_the_loss_down(narrow, name) -> None:
    model = narrow(name)
    losses = train(model, torch.optim.AdamW(model.parameters(), lr=1e-2), *clusters((8, 8)), 10)
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DISTINCT if name in MODELS])
def test_two_hundred_steps_at_a_high_rate_stay_finite(narrow, name) -> None:
    model = narrow(name, drop_path=0.1, dropout=0.1)
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 5
    losses = train(model, torch.optim.AdamW(model.parameters(), lr=3e-3), images, labels, 200)
    assert len(losses) == 200


@pytest.mark.parametrize("name", [name for name in DISTINCT if name in MODELS])
def test_checkpointing_gives_equal_gradients(narrow, images, name) -> None:
    gradients = []
    for enable in (False, True):
        model = narrow(name, drop_path=0.3, dropout=0.3).train()
        model.set_grad_checkpointing(enable)
        torch.manual_seed(3)
        model(images).sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.requires_grad])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("name", MODELS)
def test_timm_surface(narrow, images, name) -> None:
    model = narrow(name).eval()
    features = model.forward_features(images)
    assert model.forward_head(features).equal(model(images))
    pooled = model.forward_head(features, pre_logits=True)
    assert pooled.shape == (3, model.num_features)
    last, tokens = model.forward_intermediates(images, indices=1, norm=True)
    assert len(tokens) == 1
    pairs = zip(last, tokens[0], strict=True) if isinstance(last, PolarPoint) else [(last, tokens[0])]
    assert all(a.equal(b) for a, b in pairs)
    assert len(model.forward_intermediates(images, intermediates_only=True)) == 2
    whole = model.forward_intermediates(images, indices=[0], intermediates_only=True)
    first, early = model.forward_intermediates(images, indices=[0], stop_early=True)
    assert all(a.equal(b) for a, b in zip(whole[0], early[0], strict=True))
    assert not model.forward_head(first).equal(model(images))
    with pytest.raises(ValueError, match="output_fmt must be NLC or NCHW, got 'NHWC'"):
        model.forward_intermediates(images, output_fmt="NHWC")
    with pytest.raises(ValueError, match="block 7 does not exist"):
        model.forward_intermediates(images, indices=[7])
    assert model.get_classifier() is model.head
    model.reset_classifier(9)
    assert model(images).shape == (3, 9)
    assert model.default_cfg["num_classes"] == model.num_classes == 9
    assert model.default_cfg["architecture"] == name
    with pytest.raises(ValueError, match="global_pool 'avg'"):
        model.reset_classifier(0, "avg")
    model.reset_classifier(0)
    assert model(images).equal(model.forward_head(model.forward_features(images), pre_logits=True))
    assert model.pretrained_cfg["input_size"] == (3, 8, 8)
    names = {key for key, _ in model.named_parameters()}
    assert model.no_weight_decay() < names
    model.get_submodule(model.default_cfg["first_conv"])


@pytest.mark.parametrize("name", MODELS)
def test_intermediates_as_maps_lay_the_patches_on_their_grid(narrow, name) -> None:
    model = narrow(name, img_size=(8, 12)).eval()
    images = torch.randn(2, 3, 8, 12)
    tokens, maps = (
        model.forward_intermediates(images, indices=1, output_fmt=fmt, intermediates_only=True)[0]
        for fmt in ("NLC", "NCHW")
    )
    points = model.as_points(tokens)
    assert maps.shape == (2, points.dim, 2, 3)
    for row, column in ((0, 0), (0, 2), (1, 0)):
        token = points.shape[1] - 6 + 3 * row + column
        expected = points.radius[:, token, None] * points.direction[:, token]
        torch.testing.assert_close(maps[:, :, row, column], expected)


def test_a_class_token_is_shifted_to_its_position(narrow, images) -> None:
    still, moved = (
        narrow("polar_vit_tiny", readout="class_token", token_position=position).double().eval()
        for position in (0.0, 1.5)
    )
    assert still.positions[0].tolist() == [0, 0]
    assert moved.positions[0].tolist() == [1.5, 1.5]
    assert still.positions[1:].equal(moved.positions[1:])
    assert not torch.allclose(still(images.double()), moved(images.double()))
    with torch.no_grad():
        moved.positions[0] = 0
    assert moved(images.double()).equal(still(images.double()))


def layers_by_timm(matcher: dict[str, Any], names: list[str]) -> dict[str, tuple[float, ...]]:
    """What timm makes of a matcher: names sort by the number of their group and the numbers an expression captures."""
    found = {}
    for name in names:
        for number, spec in enumerate(matcher.values()):
            for expression, suffix in [(spec, None)] if isinstance(spec, str) else spec:
                if name not in found and (hit := re.match(expression, name)):
                    found[name] = (float(number), *map(float, hit.groups()), *map(float, suffix or ()))
    return {name: found.get(name, (math.inf,)) for name in names}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("coarse", [False, True])
def test_timm_sorts_parameters_into_layers(narrow, name, coarse) -> None:
    options = {"learn_k": True, "readout": "class_token"} if name.startswith("polar") else {}
    model = narrow(name, **options)
    learned = [key for key, p in model.named_parameters() if p.requires_grad]
    layers = layers_by_timm(model.group_matcher(coarse), learned)
    ends = ("head", "norm", "readout_norm", "pool")
    for key, layer in layers.items():
        if key.startswith("blocks."):
            assert layer == (1, float(key.split(".")[1])), key
        elif key.startswith(ends):
            assert layer > (1, 1), key
        else:
            assert layer == (0,), key


@pytest.mark.parametrize(
    "overrides",
    [{"readout": "class_token"}, {"head": "tangent"}, {"learn_k": True}, {"k": 2.3}, {"head_gain": "after_shift"}],
)
def test_ablations_are_configs(narrow, images, overrides) -> None:
    model = narrow("polar_vit_tiny", **overrides)
    model(images).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    assert torch.isfinite(model.bfloat16()(images.bfloat16())).all()


@pytest.mark.parametrize("name", [name for name in DISTINCT if name in MODELS])
def test_wrong_images_are_named_and_a_broken_one_spoils_no_other(narrow, images, name) -> None:
    model = narrow(name).eval()
    for wrong in (images[:, :1], images[..., :4], images[0]):
        with pytest.raises(
            ValueError, match=rf"expected images \[B, 3, 8, 8\], got {re.escape(str(list(wrong.shape)))}"
        ):
            model(wrong)
    with pytest.raises(ValueError, match=r"expected floating images.*got torch\.uint8"):
        model((255 * images).byte())
    if name in ("polar_vit_tiny", "vit_tiny"):  # the others compute in what they are given
        with pytest.raises(ValueError, match=r"images are float64, the model is torch\.float32: images\.float\(\)"):
            model(images.double())
    broken = images.clone()
    broken[1, 0, 0, 0] = math.nan
    assert model(broken).isfinite().all(-1).tolist() == [True, False, True]


def test_names_and_fields_are_checked() -> None:
    assert list_models("polar*") == ["polar_vit_base", "polar_vit_small", "polar_vit_tiny"]
    with pytest.raises(ValueError, match="did you mean 'polar_vit_tiny'"):
        create_model("polar_vit_tyni")
    with pytest.raises(ValueError, match=r"no weights 'polar_vit_tiny\.typo'"):
        create_model("polar_vit_tiny.typo")
    with pytest.raises(ValueError, match="unknown key 'class_num'"):
        create_model("polar_vit_tiny", class_num=3)
    with pytest.raises(ValueError, match="depth must be int, got '9'"):
        create_model("polar_vit_tiny", depth="9")
    with pytest.raises(ValueError, match="dim 190 is not divisible by 12"):
        create_model("polar_vit_tiny", dim=190)
    with pytest.raises(TypeError, match="takes a PolarViTConfig"):
        PolarViT(create_model("vit_tiny", dim=12).config)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("polar_vit_tiny", "heads", 0),
        ("polar_vit_tiny", "dim", 0),
        ("polar_vit_tiny", "dim", -192),
        ("polar_vit_tiny", "k", 0.0),
        ("polar_vit_tiny", "k", math.nan),
        ("polar_vit_tiny", "temperature", 0.0),
        ("polar_vit_tiny", "target_radius", -1.0),
        ("polar_vit_tiny", "alpha", math.inf),
        ("polar_vit_tiny", "norm_eps", -1e-5),
        ("polar_vit_tiny", "position_std", -1.0),
        ("vit_tiny", "heads", 0),
        ("vit_tiny", "num_classes", -1),
        ("lorentz_vit_tiny", "temperature", -1.0),
        ("hexformer_tiny", "k", -1.0),
        ("unet", "levels", 0),
        ("unet_polar", "k", 0.0),
        ("unet_poincare", "k", math.nan),
    ],
)
def test_a_number_out_of_range_is_named(name, field, value) -> None:
    with pytest.raises(ValueError, match=rf"Config: {field} must be .*, got {re.escape(str(value))}$"):
        create_model(name, **{field: value})


def test_sizes_are_the_published_ones() -> None:
    small = {row.name: row for row in model_rows()}
    assert small["polar_vit_tiny"].parameters == 2_723_749
    assert small["vit_tiny"].parameters == 2_709_805  # HexFormer's
    large = {row.name: row for row in model_rows(setting="imagenet")}
    assert round(large["polar_vit_tiny"].headless / 1e6, 1) == 2.9
    table = 196 * 384  # the paper counts a position table; the sine-cosine one has no parameters
    assert round((large["polar_vit_small"].headless + table) / 1e6, 1) == 21.7
    with pytest.raises(ValueError, match="setting must be one of"):
        model_rows(setting="mnist")


def test_a_trace_sees_every_block(narrow, images) -> None:
    for name in ("polar_vit_tiny", "vit_tiny"):
        model = narrow(name).train()
        seen = model.trace(images)
        n = seen.radius.shape[-1]
        assert seen.radius.shape == (3, 3, n)
        assert seen.direction.shape == (3, 3, n, 16)
        assert seen.attention.shape == (2, 3, 2, n, n)
        torch.testing.assert_close(seen.attention.sum(-1), torch.ones(2, 3, 2, n))
        assert seen.mean.shape == seen.std.shape == seen.minimum.shape == seen.maximum.shape == (3,)
        assert (seen.minimum <= seen.mean).all()
        assert (seen.mean <= seen.maximum).all()
        assert not seen.logits.requires_grad
        assert model.training
        assert seen.logits.equal(model.eval()(images))
        assert not any(m._forward_pre_hooks for m in model.modules())


def test_euclidean_maps_are_those_of_the_fused_attention(narrow) -> None:
    layer = narrow("vit_tiny").blocks[0].attention.double()
    torch.nn.init.constant_(layer.temperature, 1.7)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    value = layer.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)[2]
    expected = layer.out((layer.attention_map(x) @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x), expected)
