"""The step that only finds kernels leaves nothing behind."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from polarvit.models import create_model
from polarvit.training import ahead
from polarvit.training.ahead import compile_kernels_ahead, void_step

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["polar_vit_tiny", "vit_tiny", "unet_polar"])
def test_model_and_random_numbers_stay_as_they_were(name, device) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    options = {"width": 4, "img_size": 16} if name == "unet_polar" else {"depth": 3, "img_size": 8, "patch_size": 4}
    model = create_model(name, num_classes=3, **options).to(device).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    images = torch.randn(2, 3, *model.config.image, device=device)
    torch.manual_seed(3)
    void_step(model, images, "fp32")
    drawn = torch.rand(4, device=device)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(4, device=device))
    assert not model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    if name != "unet_polar":
        assert len(model.blocks) == 3


def test_on_a_cpu_nothing_is_compiled() -> None:
    model = create_model("polar_vit_tiny", depth=1, img_size=8, patch_size=4, num_classes=3)
    assert compile_kernels_ahead(model, torch.randn(2, 3, 8, 8), "fp32") == []


def test_several_processes_compile_nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of one of them would wait in a batch norm for the others."""
    started: list[object] = []
    monkeypatch.setattr(ahead, "compile_ahead", lambda step: started.append(step) or ["a process"])
    images = SimpleNamespace(is_cuda=True)
    assert compile_kernels_ahead(nn.Identity(), images, "fp32") == ["a process"]  # type: ignore[arg-type]
    monkeypatch.setattr(ahead.sync, "count", lambda: 2)
    assert compile_kernels_ahead(nn.Identity(), images, "fp32") == []  # type: ignore[arg-type]
    assert len(started) == 1
