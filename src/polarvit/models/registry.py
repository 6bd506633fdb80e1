"""Models by name: `create_model("polar_vit_tiny", num_classes=100)`, `list_models("polar*")`."""

from __future__ import annotations

import difflib
import fnmatch
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from polarvit.models.base import VisionModel
from polarvit.models.config import checked_keys
from polarvit.models.entry import Entry

FILES = (
    "polar_vit",
    "vit",
    "deit",
    "lorentz_vit",
    "hexformer",
    "lvit",
    "hvt",
    "unet",
    "unet_poincare",
    "unet_lorentz",
    "unet_polar",
)
"""Files of this folder with models, each with `ENTRIES`: to add a system, write its file and name it here."""


def _registered() -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for file in FILES:
        for each in import_module(f"polarvit.models.{file}").ENTRIES:
            if each.name in found or "." in each.name:  # a dot is reserved for weight tags
                raise ValueError(f"models/{file}.py: the name '{each.name}' is taken or contains a dot")
            found[each.name] = each
    return found


_REGISTRY = _registered()


def list_models(pattern: str = "*", task: str | None = None) -> list[str]:
    """Registered names that match a shell pattern, sorted; of one `task` ("classification", "segmentation") or all."""
    names = sorted(fnmatch.filter(_REGISTRY, pattern))
    return [name for name in names if task in (None, _REGISTRY[name].model.task)]


def entry(name: str) -> Entry:
    """The registered architecture `name`; an unknown one raises and suggests the nearest."""
    if name not in _REGISTRY:
        near = difflib.get_close_matches(name, _REGISTRY, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(list_models())}"
        if Path(name, "config.json").is_file():
            hint = "it is a folder of weights: add pretrained=True"
        raise ValueError(f"unknown model '{name}'; {hint}")
    return _REGISTRY[name]


def model_class(architecture: str) -> type[VisionModel] | None:
    """The class of a registered name, or the registered class of that name; None if there is neither."""
    if architecture in _REGISTRY:
        return _REGISTRY[architecture].model
    return next((found.model for found in _REGISTRY.values() if found.model.__name__ == architecture), None)


def create_model(name: str, pretrained: bool = False, **overrides: Any) -> VisionModel:
    """A model by name, with config fields overridden: `create_model("polar_vit_tiny", num_classes=100, img_size=32)`.

    `name` may carry a weight tag after a dot (`polar_vit_tiny.cifar100`): the same network, but trained only with
    `pretrained=True`, which loads the tag's weights, a local folder or a hub repository of that name.
    """
    if pretrained:
        from polarvit.models.weights import load_pretrained

        return load_pretrained(name, **overrides)
    name, _, tag = name.partition(".")
    found = entry(name)
    fields = found.config.to_dict()
    if tag:
        from polarvit.models.weights import CONFIG, PACKAGED, list_pretrained, read_config

        if f"{name}.{tag}" not in list_pretrained():
            there = ", ".join(list_pretrained()) or "none yet"
            raise ValueError(f"create_model: no weights '{name}.{tag}', there are {there}")
        fields = type(found.config).from_saved(read_config(PACKAGED / f"{name}.{tag}" / CONFIG)["config"]).to_dict()
    values = {**fields, **checked_keys(type(found.config), overrides)}
    model = found.model(type(found.config).from_dict(values))
    model.default_cfg["architecture"] = found.name
    return model


SETTINGS: dict[str, dict[str, Any]] = {
    "cifar100": {"img_size": 32, "patch_size": 4, "num_classes": 100},
    "imagenet": {"img_size": 224, "patch_size": 16, "num_classes": 1000},
}
"""Inputs for which sizes are compared."""


@dataclass(frozen=True)
class ModelRow:
    """One line of `polarvit models`."""

    name: str
    setting: str
    parameters: int
    headless: int
    """Parameters without the classifier."""
    summary: str
    reference: str
    origin: str


def model_rows(pattern: str = "*", setting: str = "cifar100") -> list[ModelRow]:
    """Sizes of the registered models that match, for the inputs of a setting (`SETTINGS`). No weights are made."""
    if setting not in SETTINGS:
        raise ValueError(f"model_rows: setting must be one of {', '.join(SETTINGS)}, got {setting!r}")
    rows = []
    for name in list_models(pattern, "classification"):
        with torch.device("meta"):
            model = create_model(name, **SETTINGS[setting])
        counts, known = (model.count(), model.count(classifier=False)), entry(name)
        rows.append(ModelRow(name, setting, *counts, model.config.shape, known.reference, known.origin))
    return rows
