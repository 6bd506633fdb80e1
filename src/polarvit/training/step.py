"""One optimizer step, eagerly or as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from polarvit.training.distributed import Place
from polarvit.training.recipe import Precision

WARM_UP = 3
"""Steps that run eagerly before a graph is captured: lazy initialisation must be over by then."""


def set_precision(precision: Precision) -> None:
    """Matrix products and convolutions of float32 in TF32, or strictly in float32."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"  # on by default: convolutions would not be strict


def products(precision: Precision, device: torch.device) -> Precision:
    """What matrix products then are on a device: where there is no TF32, strict float32."""
    tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    return "fp32" if precision == "tf32" and not tf32 else precision


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """bf16 autocast if asked for."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seed every generator from (seed, step, rank): stochastic depth and dropout resume with the step."""
    x = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB) % 2**63
    x = ((x ^ (x >> 31)) * 0xD6E8FEB86659FD93) % 2**63
    torch.manual_seed(x)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy with soft targets [B, classes], in their precision."""
    return F.cross_entropy(logits.to(targets.dtype), targets)


class TrainingStep:
    """Forward, backward, clipping and update on one batch.

    With `graph` the whole step is captured after a few eager ones and replayed: same arithmetic, no launch cost. The
    learning rate is a tensor then, filled before every replay.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        place: Place,
        *,
        loss: Callable[[Tensor, Tensor], Tensor] = soft_cross_entropy,
        precision: Precision = "fp32",
        accumulate: int = 1,
        clip: float | None = None,
        graph: bool = False,
    ) -> None:
        if graph and (place.device.type != "cuda" or place.world > 1):
            raise ValueError("cuda_graph needs one process on a CUDA device; set train.cuda_graph=false")
        self.model, self.optimizer, self.place, self.criterion = model, optimizer, place, loss
        self.precision, self.accumulate, self.clip, self.graph_wanted = precision, accumulate, clip, graph
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.after_step = getattr(getattr(model, "module", model), "after_step", None)
        self.done = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.side: torch.cuda.Stream | None = None
        self.rate = torch.zeros((), device=place.device) if graph else None
        if self.rate is not None:
            for group in optimizer.param_groups:
                group["lr"] = self.rate

    def __call__(self, images: Tensor, targets: Tensor, lr: float) -> Tensor:
        """The mean loss of the batch, on the device; nothing waits for it."""
        if self.rate is None:
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            return self._run(images, targets)
        self.rate.fill_(lr)
        if self.done < WARM_UP:
            self.done += 1
            return self._aside(images, targets)
        if self.graph is None:
            self._capture(images, targets)
        if images.shape != self.images.shape:
            raise ValueError(f"the step was captured for images {list(self.images.shape)}, got {list(images.shape)}")
        self.images.copy_(images)
        self.targets.copy_(targets)
        self.graph.replay()  # type: ignore[union-attr]
        return self.loss

    def _run(self, images: Tensor, targets: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        parts = list(zip(images.chunk(self.accumulate), targets.chunk(self.accumulate), strict=True))
        for index, (x, y) in enumerate(parts):
            last = index == len(parts) - 1
            quiet = isinstance(self.model, DistributedDataParallel) and not last
            with self.model.no_sync() if quiet else nullcontext():  # type: ignore[operator]
                with autocast(self.precision, self.place.device):
                    logits = self.model(x)
                loss = self.criterion(logits, y) * (len(x) / len(images))
                loss.backward()
            losses.append(loss.detach())
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip, foreach=True)
        self.optimizer.step()
        if self.after_step is not None:
            self.after_step()
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _aside(self, images: Tensor, targets: Tensor) -> Tensor:
        """A warm-up step on a side stream, as capture wants it; one stream for all, as each keeps its workspaces."""
        self.side = self.side or torch.cuda.Stream()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            loss = self._run(images, targets)
        torch.cuda.current_stream().wait_stream(self.side)
        return loss

    def _capture(self, images: Tensor, targets: Tensor) -> None:
        self.images, self.targets = images.clone(), targets.clone()
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):  # a thread prepares batches meanwhile
            self.loss = self._run(self.images, self.targets)
