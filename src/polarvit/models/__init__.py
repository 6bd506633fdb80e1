"""Whole networks, the registry, and weights in and out."""

from polarvit.models.ambient_twin import AmbientTwin
from polarvit.models.base import VisionModel
from polarvit.models.calibrate import calibrate
from polarvit.models.config import PolarViTConfig, VisionConfig, ViTConfig
from polarvit.models.export import export_onnx, export_program
from polarvit.models.polar_vit import PolarViT
from polarvit.models.registry import ModelRow, create_model, list_models, model_rows
from polarvit.models.timm_registry import register_if_timm_is_loaded, register_with_timm
from polarvit.models.trace import Trace
from polarvit.models.unet import UNet, UNetTrace
from polarvit.models.unet_config import UNetConfig
from polarvit.models.unet_polar import PolarUNet, PolarUNetConfig
from polarvit.models.vit import ViT
from polarvit.models.weights import WeightsError, list_pretrained, load_pretrained

__all__ = [
    "AmbientTwin",
    "ModelRow",
    "PolarUNet",
    "PolarUNetConfig",
    "PolarViT",
    "PolarViTConfig",
    "Trace",
    "UNet",
    "UNetConfig",
    "UNetTrace",
    "ViT",
    "ViTConfig",
    "VisionConfig",
    "VisionModel",
    "WeightsError",
    "calibrate",
    "create_model",
    "export_onnx",
    "export_program",
    "list_models",
    "list_pretrained",
    "load_pretrained",
    "model_rows",
    "register_with_timm",
]

register_if_timm_is_loaded()
