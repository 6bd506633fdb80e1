"""Values of all processes, with gradients to all."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

if dist.is_available():
    from torch.distributed import _functional_collectives as collectives  # which a compiler can see through


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.rows = len(x)
        return collectives.all_gather_tensor(x.contiguous(), 0, _everybody())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        whole = collectives.all_reduce(grad.contiguous(), "sum", _everybody())
        return whole.narrow(0, dist.get_rank() * ctx.rows, ctx.rows)


def _everybody() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def gather(x: Tensor) -> Tensor:
    """Rows [n, ...] of every process, [processes n, ...]; each must bring as many. Alone, `x` itself."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return x
    return _Gather.apply(x)
