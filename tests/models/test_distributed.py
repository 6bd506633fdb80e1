"""A step of two processes over loopback gives both the gradient of the whole batch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from models.narrow import EVERY, narrow_model
from torch.nn.parallel import DistributedDataParallel

from polarvit.parameters import walk


def build(name: str) -> torch.nn.Module:
    """Narrow; with running statistics where there are batch norms, which otherwise see one half of the batch each."""
    model = narrow_model(name).double()
    return model if model.task == "classification" else model.eval()


def batch() -> torch.Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def process(rank: int, folder: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for name in names:
        model = DistributedDataParallel(build(name))
        roles = [(t.role, t.name) for t in walk(model)]
        assert roles == [(t.role, f"module.{t.name}") for t in walk(model.module)]
        model(batch()[2 * rank : 2 * rank + 2]).square().mean().backward()
        gradients = [p.grad for p in model.parameters()]
        if rank == 0:
            torch.save(gradients, Path(folder) / f"{name}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_agree_with_one(tmp_path) -> None:
    names = EVERY
    mp.start_processes(process, (str(tmp_path), names), nprocs=2, start_method="spawn")
    for name in names:
        model = build(name)
        model(batch()).square().mean().backward()
        shared = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        for (key, parameter), gradient in zip(model.named_parameters(), shared, strict=True):
            if parameter.requires_grad:
                assert torch.allclose(gradient, parameter.grad, rtol=1e-5, atol=1e-5), f"{name}: {key}"
