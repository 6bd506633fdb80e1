"""Parameters from the host to the device in one copy for each type, without waiting."""

from collections.abc import Sequence

import torch
from torch import Tensor


def ship(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """The same tensors on the device, in order.

    Many small copies cost more than the work they parametrise, and a copy from pageable memory may wait
    for the device; so tensors of one type travel together through pinned memory.
    """
    if device.type == "cpu":
        return list(tensors)
    out: list[Tensor] = [torch.empty(0)] * len(tensors)
    for dtype in dict.fromkeys(t.dtype for t in tensors):
        places = [i for i, t in enumerate(tensors) if t.dtype == dtype]
        flat = torch.cat([tensors[i].reshape(-1) for i in places])
        if device.type == "cuda":
            flat = flat.pin_memory()
        parts = flat.to(device, non_blocking=True).split([tensors[i].numel() for i in places])
        for i, part in zip(places, parts, strict=True):
            out[i] = part.view(tensors[i].shape)
    return out
