"""Parameters from the host to the device in one copy, without waiting."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_ALIGNMENT = 16


def ship(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """The arrays as tensors on the device, in order.

    Many small copies cost more than the work they parametrise, and a copy from pageable memory may wait
    for the device; so all travel together, whatever their types, through one piece of pinned memory.
    """
    if device.type == "cpu":
        return [torch.from_numpy(a) for a in arrays]
    places, total = [], 0
    for array in arrays:
        places.append(total)
        total += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    staging = torch.empty(total, dtype=torch.uint8, pin_memory=device.type == "cuda")
    host = staging.numpy()
    for array, start in zip(arrays, places, strict=True):
        host[start : start + array.nbytes].view(array.dtype)[:] = array.reshape(-1)
    sent = staging.to(device, non_blocking=True)
    return [
        sent[start : start + array.nbytes].view(_TORCH[array.dtype.type]).view(array.shape)
        for array, start in zip(arrays, places, strict=True)
    ]


_TORCH = {
    np.bool_: torch.bool,
    np.uint8: torch.uint8,
    np.int16: torch.int16,
    np.int64: torch.int64,
    np.float32: torch.float32,
    np.float64: torch.float64,
}
