"""Narrow models and images for them."""

from __future__ import annotations

import pytest
import torch
from models.narrow import narrow_images, narrow_model


@pytest.fixture
def narrow():
    """`narrow(name, **overrides)`: a two-block model of width 16 on 8 x 8 images, seeded."""
    return narrow_model


@pytest.fixture
def images() -> torch.Tensor:
    return narrow_images()
