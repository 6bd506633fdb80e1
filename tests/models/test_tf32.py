"""What TF32 in matrix products would do to a fresh model: the reason why ambient systems train in strict float32.

`pytest tests/models/test_tf32.py -s` prints the table of docs/systems.md.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from polarvit.models import calibrate, create_model

PRODUCTS = ("matmul", "__matmul__", "bmm", "linear", "scaled_dot_product_attention")


def cut(x: Tensor) -> Tensor:
    """float32 rounded to the 10 bits that TF32 keeps of a factor; float64 as it is."""
    if x.dtype != torch.float32:
        return x
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class CutProducts(TorchFunctionMode):
    """Every matrix product takes its factors as TF32 does."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") in PRODUCTS:
            args = tuple(cut(x) if isinstance(x, Tensor) else x for x in args)
        return function(*args, **(kwargs or {}))


def noise(name: str) -> float:
    """How far TF32 moves the logits of a fresh model, as a share of what differs between images."""
    torch.manual_seed(1)
    model = create_model(name, num_classes=100, img_size=32, patch_size=4).eval()
    images = torch.randn(4, 3, 32, 32)
    if model.calibrated:
        calibrate(model, images)
    with torch.no_grad():
        true = copy.deepcopy(model).double()(images.double())
        with CutProducts():
            found = model(images)
    return ((found - true).norm() / (true - true.mean(0)).norm()).item()


@pytest.mark.slow
def test_tf32_spares_polar_points_and_the_ball_but_not_ambient_inner_products() -> None:
    names = ("vit_tiny", "polar_vit_tiny", "hvt_tiny", "hexformer_tiny", "lorentz_vit_tiny", "lvit_tiny")
    found = {name: noise(name) for name in names}
    for name, value in found.items():
        print(f"{name:18} {100 * value:.2g} %")
    assert max(found[name] for name in names[:3]) < 0.005
    assert found["lorentz_vit_tiny"] > 4 * found["polar_vit_tiny"]
    assert found["lvit_tiny"] > 0.1
