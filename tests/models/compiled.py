"""Compiled blocks against plain ones, with float64 as the judge of both.

Two float32 runs of an ambient model differ by more than one would guess (LViT's gradients by 2e-4 of their length), so
what compiling may change is measured by what rounding does: the plain gradients' distance to those in float64.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polarvit.models import VisionModel


def gradients(model: VisionModel, images: Tensor) -> dict[str, Tensor]:
    """Gradients of a training step for every parameter that has one, in float64."""
    labels = torch.arange(len(images), device=images.device)
    F.cross_entropy(model.train()(images), labels).backward()
    return {key: p.grad.double() for key, p in model.named_parameters() if p.requires_grad}


def check_compiled_gradients(model: VisionModel, images: Tensor, **options: Any) -> None:
    """Compiled, the gradients are as near to float64 as plain: all together, and every matrix by itself.

    Measured on a CPU by inductor at full size: 0.5 to 1.1 times as far together, up to 1.7 times a single matrix.
    Numbers by themselves are left to the sum, since one of them is near the truth by chance. Nothing random may act.
    """
    plain = gradients(copy.deepcopy(model), images)
    sharp = gradients(copy.deepcopy(model).double(), images.double())
    model.compile_blocks(**options)
    compiled = gradients(model, images)
    size, noise, gap = (
        torch.stack([(one.get(key, 0) - two.get(key, 0)).norm() for key in sharp])
        for one, two in ((sharp, {}), (plain, sharp), (compiled, sharp))
    )
    assert noise.norm() < 1e-3 * size.norm(), "float32 itself is off"
    assert gap.norm() < 4 * noise.norm() + 1e-5 * size.norm(), "compiled gradients are off"
    for index, (key, gradient) in enumerate(sharp.items()):
        if gradient.ndim > 1:
            assert gap[index] < 4 * noise[index] + 2e-5 * size[index], f"compiled gradients are off: {key}"
