"""Fully connected layers of other systems, in the coordinates and the arithmetic they were published with.

They take and return plain tensors: points of the hyperboloid [..., n+1], time first, or of the Poincare ball [..., n].
They are here to be compared with `PolarLinear`, which does the same in polar form.
"""

from polarvit.nn.baselines.chen import LorentzBoundedLinear, LorentzLinear
from polarvit.nn.baselines.fgg import FGGLinear
from polarvit.nn.baselines.poincare import PoincareLinear

__all__ = ["FGGLinear", "LorentzBoundedLinear", "LorentzLinear", "PoincareLinear"]
