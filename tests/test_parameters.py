"""Roles of parameters are found by walking modules, and survive what happens to models."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

from polarvit.models import create_model
from polarvit.parameters import ANCHORED, CURVATURE, MANIFOLD, NO_DECAY, ORDINARY, TABLE, Role, anchor, walk


def model() -> nn.Module:
    torch.manual_seed(0)
    return create_model(
        "polar_vit_tiny",
        num_classes=5,
        img_size=8,
        depth=1,
        dim=16,
        mlp_dim=32,
        heads=2,
        readout="class_token",
        learn_k=True,
        rule="anchored_0.1",
    )


def roles(module: nn.Module) -> dict[str, Role]:
    return {tagged.name.removeprefix("module."): tagged.role for tagged in walk(module)}


def test_every_parameter_has_the_role_its_class_declares() -> None:
    found = roles(model())
    expected = {
        "log_k": CURVATURE,
        "embed.token": MANIFOLD,
        "embed.table": TABLE,
        "embed.proj.weight": ORDINARY,
        "embed.proj.rule.phi": ANCHORED,
        "blocks.0.norm1.bias": MANIFOLD,
        "blocks.0.norm1.log_gain": NO_DECAY,
        "blocks.0.attention.log_gain": NO_DECAY,
        "blocks.0.attention.log_temperature": NO_DECAY,
        "blocks.0.attention.position.rate": NO_DECAY,
        "blocks.0.residual1.alpha": NO_DECAY,
        "head.normal": ORDINARY,
        "head.offset": NO_DECAY,
    }
    assert {name: found[name] for name in expected} == expected
    assert len(found) == len(list(model().parameters()))


def test_euclidean_norms_and_biases_do_not_decay() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Conv2d(1, 1, 1))
    found = roles(net)
    assert [name for name, role in found.items() if role is ORDINARY] == ["0.weight", "2.weight"]


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "ema", "ddp"])
def test_roles_and_anchors_survive(how: str) -> None:
    before = model()
    if how == "deepcopy":
        after: nn.Module = copy.deepcopy(before)
    elif how == "pickle":
        file = io.BytesIO()
        torch.save(before, file)
        file.seek(0)
        after = torch.load(file, weights_only=False)
    elif how == "ema":
        after = torch.optim.swa_utils.AveragedModel(before)
        after.update_parameters(before)
    else:
        after = nn.Module()
        after.module = before  # what DistributedDataParallel does to names; a real one runs in models/test_distributed
    assert roles(after) == roles(before)
    pairs = zip(walk(before), walk(after), strict=True)
    assert all(a.anchor is None or a.anchor.equal(b.anchor) for a, b in pairs)


def test_anchors_travel_with_the_state_dict() -> None:
    one, two = model(), model()
    one.embed.proj.rule.shift(2.0)
    two.load_state_dict(one.state_dict())
    assert two.embed.proj.rule.phi0_anchor.item() == 2.0


def test_a_shared_parameter_is_met_once_and_a_missing_anchor_is_an_error() -> None:
    class Gate(nn.Module):
        roles = {"gain": Role.ANCHORED}  # noqa: RUF012

        def __init__(self, gain: nn.Parameter) -> None:
            super().__init__()
            self.gain = gain

    gate = Gate(nn.Parameter(torch.ones(2)))
    with pytest.raises(ValueError, match="gain is ANCHORED but its module has no buffer 'gain_anchor'"):
        list(walk(gate))
    anchor(gate, "gain")
    assert next(iter(walk(gate))).anchor.equal(torch.ones(2))
    both = nn.ModuleList([gate, gate])
    assert len(list(walk(both))) == 1
    assert "gain_anchor" in gate.state_dict()
