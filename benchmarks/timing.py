"""What the tuning scripts share: the median time of a step, and which machine it was taken on."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import torch

from polarvit.experiments.bench.timing import captured, interleaved


def milliseconds(step: Callable[[], Any], samples: int = 15) -> float:
    """Median time of one step: several steps in one CUDA graph, timed by events (host clock without a GPU)."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    times = interleaved({"step": captured([step], device)}, device, seconds=60.0, most=samples)
    return times.median("step")


def machine() -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if cuda else f"CPU {platform.processor()}: tiny size, not a result",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
