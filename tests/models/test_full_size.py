"""Every registered model at its full size, on a GPU: what the narrow versions show on a CPU holds there too."""

import copy

import pytest
import torch
import torch.nn.functional as F
from models.compiled import check_compiled_gradients

from polarvit.models import calibrate, create_model, list_models
from polarvit.models.polar_vit import PolarViT
from polarvit.optim import RiemannianAdamW, param_groups

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="full sizes need a CUDA device"),
]


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Each test compiles for itself, and leaves nothing behind for the next."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(params=list_models(task="classification"))
def name(request):
    return request.param


@pytest.fixture
def model(name):
    """Without dropout and stochastic depth: LViT and HVT have dropout of their own."""
    torch.manual_seed(0)
    return create_model(name, num_classes=10, drop_path=0.0, dropout=0.0).cuda()


@pytest.fixture
def images(model):
    return torch.randn(4, 3, *model.config.image, device="cuda")


def test_compiled_blocks_give_the_plain_gradients(model, images):
    if isinstance(model, PolarViT):
        calibrate(model, images)
    check_compiled_gradients(model, images)


def test_bf16_autocast_trains_and_stays_finite(name, images):
    """As published, with its own dropout and stochastic depth."""
    torch.manual_seed(0)
    model = create_model(name, num_classes=10).cuda()
    optimizer = RiemannianAdamW(param_groups(model, 1e-3, 0.05))
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(images)
        F.cross_entropy(logits.float(), torch.arange(4, device="cuda")).backward()
        optimizer.step()
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_float32_and_float64_agree(model, images):
    with torch.no_grad():
        sharp = copy.deepcopy(model).double().eval()(images.double())
        assert (model.eval()(images).double() - sharp).abs().max() < 1e-3
