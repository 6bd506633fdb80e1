"""Processes: `torchrun` starts them, this tells each one which it is. One process is the ordinary case."""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where this process stands."""

    rank: int
    world: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Rank 0 writes files and talks."""
        return self.rank == 0

    def sum(self, x: Tensor) -> Tensor:
        """Sum over all processes (in place)."""
        if self.world > 1:
            dist.all_reduce(x)
        return x

    def told(self, thing: T) -> T:
        """What rank 0 has, on every process; what the others pass is not looked at."""
        if self.world == 1:
            return thing
        box = [thing if self.leads else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[return-value]

    def wait(self) -> None:
        """Until every process has come here."""
        if self.world > 1:
            dist.barrier()

    def any(self, flag: bool) -> bool:
        """Whether any process says so."""
        if self.world == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=self.device)).item() > 0)


_left: list[object] = []
"""Groups that were left, kept until the process is about to end.

`DistributedDataParallel`, if it were the last to hold one, would join the group's threads without giving up Python's
lock, which one of them may still want: PyTorch waits forever then.
"""


@atexit.register
def _let_go() -> None:
    """Let groups end while Python still runs: a thread that wants its lock later is killed, and the process with it.

    Here the last to hold them is Python itself, which gives up the lock while it joins their threads.
    """
    gc.collect()  # a model that still holds one
    _left.clear()


@contextmanager
def place(device: str | None = None) -> Iterator[Place]:
    """The place of this process; joins the group that `torchrun` describes in the environment and leaves it after."""
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    wanted = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if wanted.type == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError("--device cuda: this machine has no CUDA device; use --device cpu")
        if wanted.index is None:
            wanted = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(wanted)
    if world == 1:
        yield Place(0, 1, wanted)
        return
    dist.init_process_group("nccl" if wanted.type == "cuda" else "gloo")
    try:
        yield Place(rank, world, wanted)
        dist.barrier()  # leave together: one that goes while another still talks may be aborted
    finally:
        _left.append(dist.group.WORLD)
        dist.destroy_process_group()
