"""Parameters from the host to the device in one copy, without waiting."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_ALIGNMENT = 16
_TYPES = {
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}


def ship(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """The arrays as tensors on the device, in order.

    Many small copies cost more than the work they parametrise, and a copy from pageable memory may wait
    for the device; so all travel together, whatever their types, through one piece of pinned memory.
    """
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    return unpacked(packed(arrays, pin=device.type == "cuda").to(device, non_blocking=True), arrays)


def packed(arrays: Sequence[np.ndarray], *, pin: bool) -> Tensor:
    """The bytes of the arrays one after another, each at a multiple of 16: uint8 [m], in pinned memory if asked for."""
    out = torch.empty(sum(map(_room, arrays)), dtype=torch.uint8, pin_memory=pin)
    memory, start = out.numpy(), 0
    for array in arrays:
        memory[start : start + array.nbytes].view(array.dtype)[:] = array.reshape(-1)
        start += _room(array)
    return out


def unpacked(sent: Tensor, arrays: Sequence[np.ndarray]) -> list[Tensor]:
    """What was packed, as tensors that share its memory."""
    out, start = [], 0
    for array in arrays:
        out.append(sent[start : start + array.nbytes].view(_TYPES[array.dtype]).view(array.shape))
        start += _room(array)
    return out


def _room(array: np.ndarray) -> int:
    return -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
