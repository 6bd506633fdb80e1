"""The boost residual: a radial and a sideways boost of every token by its step, radius centred over the tokens."""

from polarvit.kernels.residual.function import boost_residual
from polarvit.kernels.residual.reference import reference_boost_residual

__all__ = ["boost_residual", "reference_boost_residual"]
