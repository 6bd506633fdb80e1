"""Gyro layer normalisation: the tokens of a sample centred, scaled and shifted in one pass over the memory."""

from polarvit.kernels.norm.function import gyro_layer_norm
from polarvit.kernels.norm.reference import reference_gyro_layer_norm

__all__ = ["gyro_layer_norm", "reference_gyro_layer_norm"]
