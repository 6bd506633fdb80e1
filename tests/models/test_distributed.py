"""A step of two processes over loopback gives both the gradient of the whole batch."""

from __future__ import annotations

import pytest
import torch
from models.narrow import EVERY, narrow_model
from models.two_processes import check_two_processes


def build(name: str):
    """Narrow; with running statistics where there are batch norms, which otherwise see one half of the batch each."""
    model = narrow_model(name).double()
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (model if model.task == "classification" else model.eval()), images


@pytest.mark.slow
def test_two_processes_agree_with_one(tmp_path) -> None:
    check_two_processes(tmp_path, build, EVERY)
