"""Parameters on their way to the device: nothing changes but the place."""

import numpy as np
import pytest
import torch

from polarvit.data.augment.transfer import packed, ship, unpacked

ARRAYS = [
    np.array([True, False, True]),
    np.arange(7, dtype=np.uint8),
    np.arange(-5, 5, dtype=np.int16)[::2],
    np.arange(6).reshape(2, 3).T,
    np.empty((0, 4)),
    np.array([[0.1], [-1e300]]),
    np.array([0.1, 2.5], np.float32),
]


def test_arrays_of_every_type_survive_one_buffer() -> None:
    for found, array in zip(unpacked(packed(ARRAYS, pin=False), ARRAYS), ARRAYS, strict=True):
        np.testing.assert_array_equal(found.numpy(), array)
        assert found.numpy().dtype == array.dtype


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_arrays_arrive_on_the_gpu() -> None:
    for found, array in zip(ship(ARRAYS, torch.device("cuda")), ARRAYS, strict=True):
        np.testing.assert_array_equal(found.cpu().numpy(), array)
