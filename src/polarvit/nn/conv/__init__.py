"""Layers over images of points: `PolarPoint`s with radius [B, H, W] and direction [B, H, W, C] (docs/unet.md).

Beside the polar ones those they are compared with, over ambient points [B, H, W, n+1] and points of the unit ball.
"""

from polarvit.nn.conv.ball import PoincareBatchNorm2d, PoincareConv2d
from polarvit.nn.conv.convolution import PolarConv2d
from polarvit.nn.conv.lorentz import LorentzBatchNorm2d, LorentzConv2d
from polarvit.nn.conv.norm import PolarBatchNorm2d
from polarvit.nn.conv.pointwise import PolarActivation, PolarMaxPool2d
from polarvit.nn.conv.upsample import PolarUpsample2d

__all__ = [
    "LorentzBatchNorm2d",
    "LorentzConv2d",
    "PoincareBatchNorm2d",
    "PoincareConv2d",
    "PolarActivation",
    "PolarBatchNorm2d",
    "PolarConv2d",
    "PolarMaxPool2d",
    "PolarUpsample2d",
]
