"""Hyperbolic deep learning in polar coordinates: how far, and which way.

Nothing heavy is imported here: `polarvit.create_model` and its siblings load on first use, so that
`polarvit --help` answers without torch.
"""

import sys
from importlib import import_module
from typing import Any

from polarvit._version import __version__

_HOMES = {"create_model": "polarvit.models", "list_models": "polarvit.models"}
_ROOMS = ("data", "experiments", "geometry", "kernels", "models", "nn", "optim", "parameters", "training")

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return import_module(f"polarvit.{name}")
    raise AttributeError(f"module 'polarvit' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])


if "timm.models" in sys.modules:  # a user of timm finds our models there
    import_module("polarvit.models")
