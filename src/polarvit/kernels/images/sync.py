"""Statistics of all processes. Alone, everything here is the identity."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

if dist.is_available():
    from torch.distributed import _functional_collectives as collectives  # which a compiler can see through


def count() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def added(x: Tensor) -> Tensor:
    """The sum over all processes, without gradient."""
    return x if count() == 1 else collectives.all_reduce(x.contiguous(), "sum", _everybody())


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return added(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return added(grad)


def summed(x: Tensor) -> Tensor:
    """The sum over all processes, with gradients to all.

    Gradients are those of the sum of every process's loss; the mean over processes that follows in data-parallel
    training makes them those of one loss that all of them computed.
    """
    return x if count() == 1 else _Sum.apply(x)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.rows = len(x)
        return collectives.all_gather_tensor(x.contiguous(), 0, _everybody())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return added(grad).narrow(0, dist.get_rank() * ctx.rows, ctx.rows)


def gather(x: Tensor) -> Tensor:
    """Rows [n, ...] of every process, [processes n, ...], with gradients to all; each must bring as many."""
    return x if count() == 1 else _Gather.apply(x)


def _everybody() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group
