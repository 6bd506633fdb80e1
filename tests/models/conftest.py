"""Narrow versions of every registered model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from polarvit.models import VisionModel, create_model

NARROW: dict[str, Any] = {
    "num_classes": 5,
    "img_size": 8,
    "patch_size": 4,
    "depth": 2,
    "dim": 16,
    "mlp_dim": 32,
    "heads": 2,
    "drop_path": 0.0,
}


@pytest.fixture
def narrow():
    """`narrow(name, **overrides)`: a two-block model of width 16 on 8 x 8 images, seeded."""

    def make(name: str, **overrides: Any) -> VisionModel:
        torch.manual_seed(0)
        return create_model(name, **{**NARROW, **overrides})

    return make


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
