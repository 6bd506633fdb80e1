"""Training on a handful of images: the losses, step by step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from polarvit.models import VisionModel


def clusters(shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """32 images [32, 3, H, W] around five pictures of two by two colours, and which one each belongs to."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(32) % 5
    pictures = F.interpolate(torch.randn(5, 3, 2, 2, generator=generator), size=shape)
    return pictures[labels] + 0.3 * torch.randn(32, 3, *shape, generator=generator), labels


def train(model: VisionModel, optimizer: Optimizer, images: Tensor, labels: Tensor, steps: int) -> list[float]:
    """The losses of `steps` steps on one batch; each is finite, and so are the weights at the end."""
    losses = []
    for step in range(steps):
        loss = F.cross_entropy(model(images), labels)
        assert torch.isfinite(loss), f"step {step}: the loss is {loss.item()}"
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.after_step()
        losses.append(loss.item())
    for key, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all(), key
    return losses
