"""The claim: float32 in polar coordinates works where float32 in ambient coordinates has stopped to."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from models.pushed import PushedTwin, pushed_logits

from polarvit.models import AmbientTwin, calibrate, create_model

CONFIGS = [
    {},
    {"position": "joint"},
    {"position": "boost"},
    {"position": "rotary"},
    {"head_gain": "after_shift"},
    {"position": "none", "residual": "exact_boost"},
    {"residual": "space", "readout": "class_token"},
    {"k": 2.3},
    {"k": 0.5, "head": "tangent", "time_init": "full", "position_table": "sincos"},
    {"rule": "sigmoid", "final_norm": False},
]


@pytest.mark.parametrize("overrides", CONFIGS, ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items()) or "default")
def test_in_float64_the_ambient_twin_agrees_to_rounding(narrow, images, overrides) -> None:
    model = narrow("polar_vit_tiny", **overrides).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01 * torch.randn_like(p))
        x = 0.1 * images.double()
        assert (model(x) - AmbientTwin(model)(x)).abs().max() < 1e-12


def test_in_float32_only_the_resolution_limit_grows_with_the_radius() -> None:
    torch.manual_seed(0)
    images = torch.randn(4, 3, 16, 16)
    model = create_model(
        "polar_vit_tiny",
        num_classes=10,
        img_size=16,
        patch_size=4,
        depth=2,
        dim=32,
        mlp_dim=64,
        heads=4,
        target_radius=1.0,
    ).eval()
    calibrate(model, images)
    sharp = copy.deepcopy(model).double()
    worst = {}
    for radius in (2.0, 6.0, 12.0):
        truth, mean = pushed_logits(sharp, images.double(), radius)
        assert mean == pytest.approx(radius, abs=0.6)
        polar, _ = pushed_logits(model, images, radius)
        worst[radius] = (polar - truth).abs().max().item()
        assert worst[radius] < 2 * 2**-25 * math.exp(mean) + 2e-6  # what any float32 network rounds, and the limit
        ambient = (PushedTwin(model, radius)(images) - truth).abs().max().item()
        print(f"radius {mean:5.2f}: polar float32 off by {worst[radius]:.1e}, ambient float32 by {ambient:.1e}")
    assert worst[12.0] < 0.1
    assert math.isnan(ambient) or ambient > 1


def test_the_twin_is_for_polar_models() -> None:
    with pytest.raises(TypeError, match="expected a PolarViT, got Linear"):
        AmbientTwin(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
