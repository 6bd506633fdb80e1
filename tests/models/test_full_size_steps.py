"""Every registered model at its full size, as published with its own dropout and stochastic depth, learns."""

import math

import pytest
import torch
from models.full_size import CPU, CUDA, NAMES, full_images, full_model
from models.steps import clusters, train

from polarvit.models import calibrate
from polarvit.optim import RiemannianAdamW, param_groups

GENTLE = {"lorentz_vit_small": 1e-4, "lorentz_vit_base": 1e-4}
"""Rates of models that ten steps at 3e-4 first throw upward."""


@pytest.mark.parametrize("device", [CPU, CUDA])
@pytest.mark.parametrize("name", NAMES)
def test_ten_steps_drive_the_loss_down(name, device) -> None:
    """Further than knowing the five classes without the images would."""
    model = full_model(name, num_classes=5).to(device)
    model.set_grad_checkpointing(device == "cpu")  # or Polar-ViT-Base takes 17 GiB
    images, labels = (x.to(device) for x in clusters(model.config.image))
    if model.calibrated:
        calibrate(model, images)
    losses = train(model, RiemannianAdamW(param_groups(model, GENTLE.get(name, 3e-4), 0.05)), images, labels, 10)
    assert losses[-1] < losses[0] - 0.05, losses
    assert losses[-1] < math.log(5) - 0.05, losses


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("name", NAMES)
def test_two_hundred_steps_at_a_high_rate_stay_finite(name, device) -> None:
    model = full_model(name).to(device)
    images, labels = full_images(model, 8), torch.arange(8, device=device)
    losses = train(model, RiemannianAdamW(param_groups(model, 3e-3, 0.05)), images, labels, 200)
    assert len(losses) == 200
