"""A step of two processes over loopback gives both the gradient of the whole batch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from polarvit.models import create_model, list_models
from polarvit.parameters import walk

SMALL = {"num_classes": 5, "img_size": 8, "patch_size": 4, "depth": 2, "dim": 16, "mlp_dim": 32, "heads": 2}


def build(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return create_model(name, drop_path=0.0, **SMALL)


def batch() -> torch.Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


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
    names = list_models(task="classification")
    mp.start_processes(process, (str(tmp_path), names), nprocs=2, start_method="spawn")
    for name in names:
        model = build(name)
        model(batch()).square().mean().backward()
        shared = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        for parameter, gradient in zip(model.parameters(), shared, strict=True):
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-6)
