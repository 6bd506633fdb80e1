"""Whole networks, the registry, and weights in and out."""

from polarvit.models.base import VisionModel
from polarvit.models.calibrate import calibrate
from polarvit.models.config import PolarViTConfig, VisionConfig, ViTConfig
from polarvit.models.polar_vit import PolarViT
from polarvit.models.registry import create_model, list_models
from polarvit.models.vit import ViT

__all__ = [
    "PolarViT",
    "PolarViTConfig",
    "ViT",
    "ViTConfig",
    "VisionConfig",
    "VisionModel",
    "calibrate",
    "create_model",
    "list_models",
]
