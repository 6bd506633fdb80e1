"""What the registry knows of a model, and the sizes that all systems share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polarvit.models.base import VisionModel
from polarvit.models.config import ImageConfig

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"depth": 9, "dim": 192, "mlp_dim": 384, "heads": 12},
    "small": {"depth": 12, "dim": 384, "mlp_dim": 1536, "heads": 6, "img_size": 224, "patch_size": 16},
    "base": {"depth": 12, "dim": 768, "mlp_dim": 3072, "heads": 12},
}
"""The sizes of the paper, HexFormer's at 32 px with patches of 4 and ViT-Small's at 224 px with patches of 16."""


@dataclass(frozen=True)
class Entry:
    """One registered architecture. A model's file lists its own in `ENTRIES`."""

    name: str
    model: type[VisionModel]
    config: ImageConfig
    reference: str
    """The publication."""
    origin: str
    """Where the formulas were taken from, and what they are computed in."""
