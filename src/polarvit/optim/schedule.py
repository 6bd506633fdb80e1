"""Learning-rate schedules: pure functions of the optimizer step."""

from __future__ import annotations

import math


def cosine(step: int, *, steps: int, lr: float, warmup: int = 0, start: float = 1e-6, floor: float = 1e-6) -> float:
    """Linear warm-up from `start` to `lr` over `warmup` steps, then a cosine down to `floor` at the last step."""
    if step < warmup:
        return start + (lr - start) * step / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + 0.5 * (lr - floor) * (1 + math.cos(math.pi * progress))
