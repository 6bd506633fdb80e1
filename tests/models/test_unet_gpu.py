"""The U-Nets at full size on a GPU: kernels, compilation and autocast give what plain PyTorch gives."""

import copy

import pytest
import torch
import torch.nn.functional as F

from polarvit.kernels.pick import kernels
from polarvit.models import create_model, list_models
from polarvit.optim import RiemannianAdamW, param_groups
from polarvit.training.step import set_precision

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="full sizes need a CUDA device"),
]


@pytest.fixture
def batch():
    set_precision("fp32")
    images = torch.rand(2, 3, 256, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    return images, (images.mean(1) > 0.5).long()


def gradients(model, batch):
    model.zero_grad()
    F.cross_entropy(model(batch[0]), batch[1]).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_kernels_and_compilation_give_the_plain_gradients(batch) -> None:
    torch.manual_seed(0)
    model = create_model("unet_polar").cuda()
    with kernels("plain"):
        plain = gradients(copy.deepcopy(model), batch)
    fused = gradients(copy.deepcopy(model), batch)
    assert (fused - plain).norm() < 1e-3 * plain.norm()
    model.compile_blocks()
    assert (gradients(model, batch) - plain).norm() < 1e-3 * plain.norm()


@pytest.mark.parametrize("name", ["unet_lorentz", "unet_poincare"])
def test_compiled_norms_give_the_plain_gradients(batch, name) -> None:
    torch.manual_seed(0)
    model = create_model(name, levels=2).cuda()
    plain = gradients(copy.deepcopy(model), batch)
    model.compile_blocks()
    assert (gradients(model, batch) - plain).norm() < 1e-2 * plain.norm()


@pytest.mark.parametrize("name", list_models(task="segmentation"))
def test_every_net_trains_in_bf16_autocast(batch, name) -> None:
    torch.manual_seed(0)
    model = create_model(name).cuda()
    optimizer = RiemannianAdamW(param_groups(model, 1e-3, 0.05))
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(batch[0])
        F.cross_entropy(logits.float(), batch[1]).backward()
        optimizer.step()
    assert all(torch.isfinite(p).all() for p in model.parameters())
