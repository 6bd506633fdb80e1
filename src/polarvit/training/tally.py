"""What a run keeps count of between two lines of its log: the losses, and its best evaluation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from polarvit.training.distributed import Place


class Best:
    """The step with the highest validation score so far: top-1 accuracy, or Dice."""

    def __init__(self, step: int | None = None, score: float = float("-inf")) -> None:
        self.step, self.score = step, score

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> Best:
        """As a checkpoint has it; older ones say top1."""
        return cls(saved["step"], saved["score"] if "score" in saved else saved["top1"]) if saved else cls()

    def see(self, step: int, score: float) -> None:
        if score > self.score:
            self.step, self.score = step, score

    def to_dict(self) -> dict[str, Any]:
        return {} if self.step is None else {"step": self.step, "score": self.score}


class Losses:
    """The losses since the last line of the log, added up on the device; only reading them waits for it."""

    def __init__(self, here: Place) -> None:
        self.place, self.steps = here, 0
        self.local = torch.zeros((), dtype=torch.float64, device=here.device)
        self.total = 0.0

    def add(self, loss: Tensor) -> None:
        self.local += loss
        self.steps += 1

    def mean(self, done: int) -> float:
        """Mean over steps and processes; raises if it is not a number."""
        self.total += self.place.sum(self.local).item() / self.place.world
        self.local.zero_()
        if not math.isfinite(self.total):
            first = done - self.steps + 1
            raise FloatingPointError(
                f"the loss became {self.total} between steps {first} and {done}; the last checkpoint is from before. "
                "Try a lower optim.lr, a longer optim.warmup or optim.clip=1"
            )
        return self.total / max(self.steps, 1)

    def reset(self) -> None:
        self.total, self.steps = 0.0, 0

    def to_dict(self) -> dict[str, Any]:
        return {"total": self.total, "steps": self.steps}

    def restore(self, total: float, steps: int) -> None:
        self.total, self.steps = total, steps
