"""Modules over `PolarPoint`: each takes points and returns points, and declares the roles of its parameters."""

from polarvit.nn.attention import PolarAttention
from polarvit.nn.conv import PolarActivation, PolarBatchNorm2d, PolarConv2d, PolarMaxPool2d, PolarUpsample2d
from polarvit.nn.embed import PolarPatchEmbed
from polarvit.nn.head import CentroidPool, ClassTokenPool, PolarMLR
from polarvit.nn.linear import PolarLinear, PolarMLP
from polarvit.nn.norm import GyroLayerNorm
from polarvit.nn.points import PolarEmbedding
from polarvit.nn.position import (
    BoostShift,
    HoroShift,
    NoShift,
    PositionalEncoding,
    RotaryShift,
    grid_positions,
    positional_encoding,
)
from polarvit.nn.radius import RADIUS_RULES, RadiusRule
from polarvit.nn.residual import (
    AmbientBoostResidual,
    BoostResidual,
    ExactBoostResidual,
    Residual,
    SpaceResidual,
    residual,
)

__all__ = [
    "RADIUS_RULES",
    "AmbientBoostResidual",
    "BoostResidual",
    "BoostShift",
    "CentroidPool",
    "ClassTokenPool",
    "ExactBoostResidual",
    "GyroLayerNorm",
    "HoroShift",
    "NoShift",
    "PolarActivation",
    "PolarAttention",
    "PolarBatchNorm2d",
    "PolarConv2d",
    "PolarEmbedding",
    "PolarLinear",
    "PolarMLP",
    "PolarMLR",
    "PolarMaxPool2d",
    "PolarPatchEmbed",
    "PolarUpsample2d",
    "PositionalEncoding",
    "RadiusRule",
    "Residual",
    "RotaryShift",
    "SpaceResidual",
    "grid_positions",
    "positional_encoding",
    "residual",
]
