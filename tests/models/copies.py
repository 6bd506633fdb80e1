"""What anybody may do to a module, and get the same network."""

from __future__ import annotations

import copy
import pickle

import torch
from torch import Tensor

from polarvit.models import VisionModel, create_model


@torch.no_grad()
def check_copies(model: VisionModel, images: Tensor) -> None:
    """Deep copies, pickles, state dicts and functional calls give the logits of the model, bit by bit."""
    logits = model.eval()(images)
    assert torch.isfinite(logits).all()
    assert copy.deepcopy(model)(images).equal(logits)
    assert pickle.loads(pickle.dumps(model))(images).equal(logits)
    assert type(model).from_config(model.config.to_dict()).config == model.config
    torch.manual_seed(5)
    fields = {field: getattr(model.config, field) for field in model.config.to_dict()}
    other = create_model(model.architecture, **fields).to(images).eval()
    own = other(images)
    assert not torch.allclose(own, logits)
    assert torch.func.functional_call(other, model.state_dict(), (images,)).equal(logits)
    assert other(images).equal(own)
    other.load_state_dict(model.state_dict(), strict=True)
    assert other(images).equal(logits)
    doubled = {key: 2 * p for key, p in model.named_parameters()}
    assert not torch.allclose(torch.func.functional_call(model, doubled, (images,)), logits)
    assert model(images).equal(logits)
