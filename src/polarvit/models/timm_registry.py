"""Our models in timm's registry, so that `timm.create_model("polar_vit_tiny", num_classes=10)` works.

timm is never imported on our own account. `import polarvit.models` registers when timm is already there; otherwise
call `polarvit.models.register_with_timm()`, which imports it. Both may be called again and again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from polarvit.models.base import VisionModel
from polarvit.models.registry import create_model, entry, list_models

default_cfgs: dict[str, Any] = {}
"""Filled by `register_with_timm`; timm looks for it under this name in the module of a registered function."""

_FOREIGN = ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")
"""What timm passes to every entry point and we have no use for."""
_RENAMED = {"drop_path_rate": "drop_path", "attn_drop_rate": "dropout", "embed_dim": "dim", "num_heads": "heads"}
"""timm's names for fields of our configs."""


def register_with_timm() -> list[str]:
    """Add every registered classifier to timm and return their names. Imports timm, and raises if it is not installed.

    A name that timm already has for a model of its own is left alone.
    """
    try:
        from timm.models import generate_default_cfgs, is_model, model_entrypoint, register_model
    except ImportError as error:
        raise ImportError("register_with_timm needs timm: pip install polarvit[timm]") from error
    names = []
    for name in list_models(task="classification"):
        if is_model(name):
            if model_entrypoint(name).__module__ == __name__:
                names.append(name)
            continue
        default_cfgs.update(generate_default_cfgs({name: _cfg(name)}))
        register_model(_entrypoint(name))
        names.append(name)
    return names


def register_if_timm_is_loaded() -> None:
    """Register when the user has imported timm; otherwise do nothing."""
    if "timm.models" in sys.modules:
        register_with_timm()


def _cfg(name: str) -> dict[str, Any]:
    config = entry(name).config
    return {
        "input_size": (config.in_chans, *config.image),
        "num_classes": config.num_classes,
        "mean": (0.5,) * config.in_chans,
        "std": (0.5,) * config.in_chans,
        "interpolation": "bicubic",
        "crop_pct": 0.875,
        "fixed_input_size": True,
        "first_conv": f"{entry(name).model.first_layer}",
        "classifier": "head",
        "license": "apache-2.0",
    }


def _entrypoint(name: str) -> Callable[..., VisionModel]:
    def create(pretrained: bool = False, **kwargs: Any) -> VisionModel:
        tag = kwargs.get("pretrained_cfg")
        wanted = f"{name}.{tag}" if isinstance(tag, str) and tag else name
        fields = {_RENAMED.get(key, key): value for key, value in kwargs.items() if key not in _FOREIGN}
        return create_model(wanted, pretrained=pretrained, **fields)

    create.__name__ = create.__qualname__ = name
    create.__module__ = __name__
    create.__doc__ = f"{name}: {entry(name).reference}"
    return create
