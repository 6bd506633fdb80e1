"""What freshly drawn models are like: they tell images apart, and LViT's layers are drawn as published."""

import math

import pytest
import torch
import torch.nn.functional as F

from polarvit.models import calibrate, create_model, list_models


@pytest.mark.parametrize("name", [name for name in list_models(task="classification") if name.endswith("_tiny")])
def test_a_fresh_model_tells_images_apart(name) -> None:
    """Pooled features of images of two by two colours differ from their mean by more than 1/200 of their length."""
    torch.manual_seed(0)
    model = create_model(name, num_classes=0, img_size=32, patch_size=4).eval()
    images = F.interpolate(torch.randn(6, 3, 2, 2, generator=torch.Generator().manual_seed(1)), size=(32, 32))
    if model.calibrated:
        calibrate(model, images)
    with torch.no_grad():
        features = model(images).double()
    apart = (features - features.mean(0)).norm(dim=-1).mean() / features.norm(dim=-1).mean()
    assert apart > 0.005


def test_polar_layers_are_drawn_as_in_the_paper() -> None:
    """All columns of W, time first: orthogonal rows in attention, Xavier normal in the embedding and the MLP."""
    torch.manual_seed(0)
    model = create_model("polar_vit_tiny", depth=1)
    block = model.blocks[0]
    for layer in (model.embed.proj, block.mlp.fc1, block.mlp.fc2):
        whole = torch.cat([layer.time_weight[:, None], layer.weight], 1)
        assert whole.std().item() == pytest.approx(math.sqrt(2 / sum(whole.shape)), rel=0.03)
        assert layer.time_weight.any()
    for layer in (block.attention.query, block.attention.key, block.attention.value, block.attention.out):
        whole = torch.cat([layer.time_weight[:, None], layer.weight], 1)
        torch.testing.assert_close(whole @ whole.mT, torch.eye(192), rtol=0, atol=1e-5)


def test_lvit_is_drawn_as_published() -> None:
    """Uniform everywhere: +-sqrt(2/patch) embeds, +-(n+1)^-1/2 attends, both with biases; Xavier sqrt 2 in the MLP."""
    torch.manual_seed(0)
    model = create_model("lvit_tiny", img_size=32, patch_size=4)
    block, width, hidden = model.blocks[0], 12 * 17, 385
    attention = block.attention
    bounds = {model.embed.proj: math.sqrt(2 / 48)}
    bounds |= dict.fromkeys((attention.query, attention.key, attention.value, attention.out), 1 / math.sqrt(width))
    mlp = {
        block.mlp[0]: math.sqrt(12 / (width + hidden - 1)),
        block.mlp[1]: math.sqrt(12 / (hidden + width - 1)),
    }
    for layer, bound in (bounds | mlp).items():
        drawn = [layer.weight] if layer in mlp else [layer.weight, layer.bias]
        for parameter in drawn:
            assert 0.97 * bound < parameter.abs().max().item() <= bound
            assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
        assert layer in bounds or not layer.bias.any()
    assert attention.scale.item() == pytest.approx(math.sqrt(width))
