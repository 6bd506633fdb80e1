"""Pushing a model outward: all its layers and norms start at one mean radius."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from polarvit.models import PolarViT, VisionModel, calibrate
from polarvit.models.calibrate import stretch_layers
from polarvit.models.stream import StreamModel
from polarvit.nn import GyroLayerNorm


@torch.no_grad()
def push(model: VisionModel, images: Tensor, radius: float) -> dict[str, float]:
    """Bring every layer, head and norm to mean radius `radius` on a batch; returns the radii reached.

    A system in ambient coordinates or in the ball is stretched layer by layer in the order of the forward pass, as far
    as its own bounds allow (the ball ends at 6.2), and gates are kept open. A Euclidean model has no radii and stays as
    it is. Polar-ViT is moved by phi_0 of its radius rules: W scaled by e^8 would hardly turn any more at a learning
    rate made for its usual size, which is what the systems have to bear whose radius is nothing but the size of W.
    """
    if isinstance(model, PolarViT):
        model.config = replace(model.config, target_radius=radius, calibration="offset")
        for module in model.modules():
            if isinstance(module, GyroLayerNorm):
                module.log_gain.fill_(math.log(radius))
        return calibrate(model, images)
    if isinstance(model, StreamModel):
        model.config = replace(model.config, target_radius=radius)
        return stretch_layers(model, images, norms=True)
    return {}
