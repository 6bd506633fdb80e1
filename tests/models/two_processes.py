"""A step of two processes over loopback, beside the same step of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from polarvit.models import VisionModel
from polarvit.optim import RiemannianAdamW, param_groups
from polarvit.parameters import walk

Build = Callable[[str], tuple[VisionModel, Tensor]]
"""A seeded model in float64 and a batch of four, from a registered name; a function of a module, so that it travels."""


def process(rank: int, folder: str, build: Build, names: list[str]) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    built = {name: build(name) for name in names}  # alone: batch norms that see images here do not share them yet
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for name, (module, images) in built.items():
        model = DistributedDataParallel(module)
        roles = [(t.role, t.name) for t in walk(model)]
        assert roles == [(t.role, f"module.{t.name}") for t in walk(module)]
        model(images.chunk(2)[rank]).square().mean().backward()
        if rank == 0:
            torch.save([p.grad for p in model.parameters()], Path(folder) / f"{name}.pt")
        RiemannianAdamW(param_groups(model, 1e-3, 0.05)).step()
        for key, parameter in model.named_parameters():
            first = parameter.detach().clone()
            dist.broadcast(first, 0)
            assert parameter.equal(first), f"{name}: {key} differs between the processes after a step"
    del model  # it must not be the last to hold the group, see `polarvit.training.distributed`
    dist.destroy_process_group()


def check_two_processes(folder: Path, build: Build, names: list[str]) -> None:
    """Half of the batch each: the gradients are those of the whole batch, and after a step the weights are the same."""
    mp.start_processes(process, (str(folder), build, names), nprocs=2, start_method="spawn")
    for name in names:
        model, images = build(name)
        model(images).square().mean().backward()
        shared = torch.load(folder / f"{name}.pt", weights_only=True)
        for (key, parameter), gradient in zip(model.named_parameters(), shared, strict=True):
            if parameter.requires_grad:
                gap = (gradient - parameter.grad).norm()
                assert gap <= 1e-9 * parameter.grad.norm() + 1e-12, f"{name}: {key} is off by {gap}"
