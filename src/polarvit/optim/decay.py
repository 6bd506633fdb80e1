"""Weight decay on the manifold: the centroid of {x, o} with weights (1 - w, w), in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry.scaled import sh


def decayed_radius(a: Tensor, w: Tensor | float) -> Tensor:
    """Rescaled radius after one decay step of weight w; the direction does not change.

        a' = a - 1/2 log1p(2 w sinh a / (1 - w + w e^-a))

    For w e^a << 1 this shrinks sinh a by 1 - w, as decoupled decay does. Beyond a = ln(1/w) one step roughly halves the
    radius: that is what the centroid asks, because the origin outweighs a point whose mass w e^a it exceeds.
    """
    w = (w.to(a) if isinstance(w, Tensor) else a.new_full((), w)).expand_as(a)  # one w a point: compiles into one loop
    rest = torch.log1p(-w + w * torch.exp(-a))
    growth = torch.exp(a.clamp_max(80.0))
    near = torch.log1p(2 * w * sh(a) * growth / (1 - w + w * torch.exp(-a)))
    far = torch.logaddexp(torch.log1p(-w), torch.log(w) + a) - rest
    return a - 0.5 * torch.where(a <= 80, near, far)
