"""Polar attention: scores by squared distance, values aggregated by the polar centroid."""

from polarvit.kernels.attention.function import polar_attention
from polarvit.kernels.attention.reference import reference_attention

__all__ = ["polar_attention", "reference_attention"]
