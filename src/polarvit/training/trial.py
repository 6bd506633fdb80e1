"""Whether a model compiles is found out on one batch, before a run begins."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.exc import InductorError

from polarvit.compilation import SMALLER_KERNELS
from polarvit.models import VisionModel
from polarvit.provenance import without_paths

OUTCOMES = ("largest_kernel", "not_compiled")
"""What the record of a run may say of it: loops in a kernel, where more of them failed, or why there are no kernels."""


def try_compiled(model: VisionModel, once: Callable[[], None]) -> dict[str, Any]:
    """Call `once`, a training pass of the compiled model; where that fails it gets smaller kernels, or none.

    Leaves no trace in gradients and buffers. Returns one of `OUTCOMES`, nothing if all is well.
    """
    before = [buffer.clone() for buffer in model.buffers()]
    found = _first_that_works(model, once)
    for buffer, old in zip(model.buffers(), before, strict=True):
        buffer.copy_(old)
    model.zero_grad(set_to_none=True)
    return found


def _first_that_works(model: VisionModel, once: Callable[[], None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for smaller in (*SMALLER_KERNELS, None):
        try:
            once()
            break
        except torch.OutOfMemoryError:
            raise  # it would not need less uncompiled
        except Exception as error:  # a compiler that is missing or broken raises nearly anything
            reason = without_paths(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
            if smaller is None or not isinstance(error, InductorError):
                model.forget_compiled()
                warnings.warn(f"the model could not be compiled and runs uncompiled ({reason})", stacklevel=4)
                return {"not_compiled": reason}
            model.compile_blocks(largest_kernel=smaller)
            found = {"largest_kernel": smaller}
            warnings.warn(f"kernels of {smaller} loops are tried, larger ones failed ({reason})", stacklevel=4)
    return found
