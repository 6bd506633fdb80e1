"""timm's registry: with a stand-in that follows timm 1.0, and with timm itself where it is installed."""

from __future__ import annotations

import importlib.util
import sys
import types

import pytest
import torch

from polarvit.models import list_models, register_with_timm, timm_registry

HAS_TIMM = importlib.util.find_spec("timm") is not None
SMALL = {"num_classes": 5, "img_size": 8, "patch_size": 4, "depth": 1, "mlp_dim": 16}


@pytest.fixture
def stand_in(monkeypatch):
    """A module `timm.models` with the parts of timm's registry that registration touches."""
    known: dict = {}
    models = types.ModuleType("timm.models")

    def register_model(fn):
        module = sys.modules[fn.__module__]
        assert fn.__name__ in module.default_cfgs
        known[fn.__name__] = fn
        return fn

    models.register_model = register_model
    models.generate_default_cfgs = dict
    models.is_model = lambda name: name.partition(".")[0] in known
    models.model_entrypoint = lambda name: known[name]
    timm = types.ModuleType("timm")
    timm.models = models
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "timm.models", models)
    monkeypatch.setattr(timm_registry, "default_cfgs", {})
    return known


def test_every_model_becomes_an_entry_point(stand_in) -> None:
    assert register_with_timm() == list_models(task="classification")
    assert sorted(stand_in) == list_models(task="classification")
    # What timm 1.0's create_model passes to an entry point:
    model = stand_in["polar_vit_tiny"](
        pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, cache_dir=None,
        embed_dim=16, num_heads=2, drop_path_rate=0.2, **SMALL,
    )  # fmt: skip
    assert model.config.drop_path == 0.2
    assert model(torch.zeros(1, 3, 8, 8)).shape == (1, 5)
    assert stand_in["vit_small"].__module__ == timm_registry.__name__
    assert timm_registry.default_cfgs["vit_small"]["input_size"] == (3, 224, 224)
    assert register_with_timm() == list_models(task="classification")


def test_a_name_timm_already_has_is_left_alone(stand_in) -> None:
    def vit_tiny() -> None: ...

    stand_in["vit_tiny"] = vit_tiny
    assert "vit_tiny" not in register_with_timm()
    assert stand_in["vit_tiny"] is vit_tiny


def test_a_tag_and_pretrained_reach_our_loader(stand_in, monkeypatch) -> None:
    register_with_timm()
    seen = {}
    monkeypatch.setattr(timm_registry, "create_model", lambda name, **kw: seen.update(name=name, **kw))
    stand_in["polar_vit_tiny"](pretrained=True, pretrained_cfg="cifar100", num_classes=3)
    assert seen == {"name": "polar_vit_tiny.cifar100", "pretrained": True, "num_classes": 3}


def test_importing_the_models_does_not_import_timm(stand_in, monkeypatch) -> None:
    timm_registry.register_if_timm_is_loaded()
    assert "polar_vit_tiny" in stand_in
    monkeypatch.delitem(sys.modules, "timm.models")
    stand_in.clear()
    timm_registry.register_if_timm_is_loaded()
    assert not stand_in


def test_without_timm_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "timm.models", None)
    with pytest.raises(ImportError, match=r"polarvit\[timm\]"):
        register_with_timm()


@pytest.mark.skipif(not HAS_TIMM, reason="timm is not installed")
def test_timm_creates_our_models() -> None:
    import timm

    register_with_timm()
    assert "polar_vit_tiny" in timm.list_models("polar*")
    model = timm.create_model("polar_vit_tiny", num_classes=7, embed_dim=24, num_heads=2, img_size=16, depth=1)
    assert model(torch.zeros(2, 3, 16, 16)).shape == (2, 7)
    data = timm.data.resolve_model_data_config(model)
    assert data["input_size"] == (3, 16, 16)
    assert data["mean"] == (0.5, 0.5, 0.5)
