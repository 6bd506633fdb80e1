"""Passes over images of points: behind a convolution, and in a batch norm (README.md)."""

from polarvit.kernels.images.batch_norm import batch_norm, normalise, remember
from polarvit.kernels.images.rule import finish

__all__ = ["batch_norm", "finish", "normalise", "remember"]
