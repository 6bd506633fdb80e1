"""Start compiling the kernels of a training step before it is taken."""

from __future__ import annotations

import copy
import subprocess

import torch
from torch import Tensor, nn

from polarvit.kernels.ahead import compile_ahead
from polarvit.training.recipe import Precision
from polarvit.training.step import autocast


def compile_kernels_ahead(model: nn.Module, images: Tensor, precision: Precision) -> list[subprocess.Popen[str]]:
    """Hand the kernels that training `model` on such images takes to processes of their own, on a GPU; who they are.

    Nothing comes of the pass that finds them: it runs on a copy of the model, and random numbers stay as they were.
    """
    if not images.is_cuda:
        return []

    def step() -> None:
        shadow = copy.deepcopy(model).train()
        weights = [weight for weight in shadow.parameters() if weight.requires_grad]
        with torch.random.fork_rng(devices=[images.device]), torch.enable_grad():
            with autocast(precision, images.device):
                out = shadow(images)
            torch.autograd.grad(out.float().sum(), weights, allow_unused=True)

    return compile_ahead(step)
