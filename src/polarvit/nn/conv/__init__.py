"""Layers over images of points: `PolarPoint`s with radius [B, H, W] and direction [B, H, W, C] (docs/unet.md)."""

from polarvit.nn.conv.convolution import PolarConv2d
from polarvit.nn.conv.norm import PolarBatchNorm2d
from polarvit.nn.conv.pointwise import PolarActivation, PolarMaxPool2d
from polarvit.nn.conv.upsample import PolarUpsample2d

__all__ = ["PolarActivation", "PolarBatchNorm2d", "PolarConv2d", "PolarMaxPool2d", "PolarUpsample2d"]
