"""The registered models at full size, on the devices there are.

On a CPU a test at full size takes up to minutes, so it runs only if asked for: `pytest tests/models --full-size`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from polarvit.models import VisionModel, create_model, list_models

NAMES = list_models(task="classification")
CPU = pytest.param("cpu", marks=[pytest.mark.slow, pytest.mark.full_size])
CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.slow,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ],
)


def full_model(name: str, num_classes: int = 10, **overrides: Any) -> VisionModel:
    """Of its published size, drawn from seed 0."""
    torch.manual_seed(0)
    return create_model(name, num_classes=num_classes, **overrides)


def full_images(model: VisionModel, count: int) -> Tensor:
    """Seeded images of the size in its config, on the device of the model and in its dtype."""
    images = torch.randn(count, 3, *model.config.image, generator=torch.Generator().manual_seed(1))
    return images.to(next(model.parameters()))
