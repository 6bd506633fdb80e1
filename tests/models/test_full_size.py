"""Every registered model at its full size, on a GPU: what the narrow versions show on a CPU holds there too."""

import copy

import pytest
import torch
import torch.nn.functional as F
from models.compiled import check_compiled_gradients
from models.full_size import NAMES, full_images, full_model

from polarvit.models import calibrate
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


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    """Without dropout and stochastic depth: LViT and HVT have dropout of their own."""
    return full_model(name, drop_path=0.0, dropout=0.0).cuda()


@pytest.fixture
def images(model):
    return full_images(model, 4)


def test_compiled_blocks_give_the_plain_gradients(model, images):
    if isinstance(model, PolarViT):
        calibrate(model, images)
    check_compiled_gradients(model, images)


def test_bf16_autocast_trains_and_stays_finite(name, images):
    """As published, with its own dropout and stochastic depth."""
    model = full_model(name).cuda()
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
