"""How every registered model is made narrow for tests: two blocks of width 16 on 8 x 8 images.

A new model needs a line here only if its config has other fields, or wants other values. Tests that take long are
made once for all names whose narrow versions run the same operations (`DISTINCT`): tiny and base differ in size alone,
small in its position table, which is a buffer there and a parameter in the others.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from typing import Any

import torch

from polarvit.models import VisionModel, create_model, list_models
from polarvit.models.registry import entry

NARROW: dict[str, Any] = {
    "num_classes": 5,
    "img_size": 8,
    "patch_size": 4,
    "depth": 2,
    "dim": 16,
    "mlp_dim": 32,
    "heads": 2,
    "drop_path": 0.0,
    "dropout": 0.0,
}
"""Fields of a narrow config; those a model's config does not have are left out."""

OTHERWISE: dict[str, dict[str, Any]] = {"*unet*": {"width": 4, "levels": 1, "momentum": 0.999}}
"""What differs for models whose name matches a shell pattern."""


def fields(name: str) -> dict[str, Any]:
    """The config fields that make the registered model `name` narrow."""
    known = {field.name for field in dataclasses.fields(entry(name).config)}
    special = [values for pattern, values in OTHERWISE.items() if fnmatch.fnmatch(name, pattern)]
    common = {key: value for key, value in NARROW.items() if key in known}
    return {key: value for values in (common, *special) for key, value in values.items()}


def narrow_images() -> torch.Tensor:
    """Three images for narrow models."""
    return torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def narrow_model(name: str, **overrides: Any) -> VisionModel:
    """The narrow version of a registered model, drawn from seed 0; its batch norms, if any, have seen the images."""
    torch.manual_seed(0)
    model = create_model(name, **{**fields(name), **overrides})
    if model.task == "segmentation":
        with torch.no_grad():
            model(narrow_images())
    return model


def _distinct() -> list[str]:
    found: dict[tuple[Any, ...], str] = {}
    for name in sorted(list_models(), key=lambda name: ("tiny" not in name, name)):
        kind = entry(name)
        config = dataclasses.replace(kind.config, **fields(name)).to_dict()
        config.pop("position_table", None)
        found.setdefault((kind.model, repr(config)), name)
    return sorted(found.values())


EVERY = list_models()
MODELS = list_models(task="classification")
DISTINCT = _distinct()
"""One name for each narrow model that runs other operations than the rest."""
