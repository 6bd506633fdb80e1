"""Start compiling the kernels of a training step before it is taken."""

from __future__ import annotations

import copy
import subprocess

import torch
from torch import Tensor, nn

from polarvit.kernels.ahead import compile_ahead
from polarvit.kernels.images import sync
from polarvit.training.recipe import Precision
from polarvit.training.step import autocast


def compile_kernels_ahead(model: nn.Module, images: Tensor, precision: Precision) -> list[subprocess.Popen[str]]:
    """Hand the kernels that training `model` on such images takes to processes of their own, on a GPU; who they are.

    Give as many images as a step will take: kernels are chosen by their number. Not where several processes train
    together: a batch norm over images waits for all of them, and they need not come here together.
    """
    if not images.is_cuda or sync.count() > 1:
        return []
    return compile_ahead(lambda: void_step(model, images, precision))


def void_step(model: nn.Module, images: Tensor, precision: Precision) -> None:
    """Forward and backward of which nothing is left: model and random numbers stay as they were.

    It runs on a copy of the model, of whose blocks the first and the last are enough and take little memory.
    """
    shadow = copy.deepcopy(model).train()
    if isinstance(blocks := getattr(shadow, "blocks", None), nn.ModuleList):
        shadow.blocks = nn.ModuleList([blocks[0], blocks[-1]])
    weights = [weight for weight in shadow.parameters() if weight.requires_grad]
    with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []), torch.enable_grad():
        with autocast(precision, images.device):
            out = shadow(images)
        torch.autograd.grad(out.float().sum(), weights, allow_unused=True)
