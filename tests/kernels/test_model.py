"""A whole model through the fused kernels gives what the plain code gives."""

import pytest
import torch

from polarvit.kernels.pick import kernels
from polarvit.models import create_model

NARROW = {"num_classes": 5, "img_size": 8, "patch_size": 4, "depth": 1, "dim": 16, "mlp_dim": 24, "heads": 2}
CHOICES = [{}, {"k": 2.5, "learn_k": True}, {"rule": "lorentz"}, {"rule": "hard_bound"}, {"residual": "exact_boost"}]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_a_model_through_the_kernels_agrees_with_the_plain_one_in_float64(choice, device):
    torch.manual_seed(0)
    model = create_model("polar_vit_tiny", **NARROW, **choice, drop_path=0.0).to(device)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn_like(p)
    images = torch.randn(2, 3, 8, 8, device=device)
    with kernels("interpreted" if device.type == "cpu" else "auto"):
        logits = model(images)
        logits.square().sum().backward()
    fused = {name: p.grad.double() for name, p in model.named_parameters()}
    model = model.double()
    model.zero_grad()
    exact = model(images.double())
    exact.square().sum().backward()
    torch.testing.assert_close(logits.double(), exact, rtol=0, atol=2e-6)
    whole = torch.cat([p.grad.flatten() for p in model.parameters()])
    gap = torch.cat([(fused[name] - p.grad).flatten() for name, p in model.named_parameters()])
    assert gap.norm() < 1e-5 * whole.norm()


def test_under_autocast_the_kernels_round_what_the_plain_code_rounds(device):
    torch.manual_seed(0)
    model = create_model("polar_vit_tiny", **NARROW, drop_path=0.0).to(device)
    images = torch.randn(2, 3, 8, 8, device=device)
    results = []
    for choice in ("interpreted" if device.type == "cpu" else "auto", "plain"):
        model.zero_grad()
        with kernels(choice), torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(images)
        logits.float().square().sum().backward()
        results.append((logits.float(), torch.cat([p.grad.flatten() for p in model.parameters()])))
    (ours, fused), (theirs, plain) = results
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0.02)
    assert (fused - plain).norm() < 0.03 * plain.norm()


def test_hooks_of_a_model_in_evaluation_see_every_point(device):
    model = create_model("polar_vit_tiny", **NARROW).to(device).eval()
    block = model.blocks[0]
    seen = []
    for module in (block.attention, block.attention.out, block.mlp, block.mlp.fc2):
        module.register_forward_hook(lambda module, inputs, out: seen.append(out.radius.shape))
    model(torch.randn(2, 3, 8, 8, device=device))
    assert seen == [(2, 4)] * 4
