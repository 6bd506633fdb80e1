"""Points carried by a bias, bias (+) x, and the gradient of that.

The space part of bias (+) (r, w) is

    x = sinh r w + F e,    F = 2 sinh(c/2) cosh(r - c/2) + (cosh c - 1) sinh r 1/2|w+e|^2

for a rescaled bias (c, e), both terms of F non-negative. It is kept times e^-(r+c).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from polarvit.geometry.scaled import ch, sh


class Shifted(NamedTuple):
    """x e^-(r+c) and its derivatives along r, w, c and e."""

    x: Tensor
    """[..., n]"""
    both: Tensor
    """w + e, [..., n]"""
    sinh: Tensor
    cosh: Tensor
    f: Tensor
    f_r: Tensor
    f_c: Tensor
    turn: Tensor
    """(cosh c - 1) sinh r"""

    def backward(self, g: Tensor, w: Tensor, e: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of r, w, c and e from that of x e^-(r+c)."""
        along = (g * e).sum(-1)
        tilt = (self.turn * along).unsqueeze(-1) * self.both
        to_r = self.cosh * (g * w).sum(-1) + self.f_r * along
        to_e = (self.f.unsqueeze(-1) * g + tilt).flatten(0, -2).sum(0)
        return to_r, self.sinh.unsqueeze(-1) * g + tilt, (self.f_c * along).sum(), to_e


def shift(c: Tensor, e: Tensor, r: Tensor, w: Tensor) -> Shifted:
    """Points r [...], w [..., n] carried by one bias (c [], e [n])."""
    both = w + e
    p = 0.5 * both.square().sum(-1)
    near, far, back = -torch.expm1(-c), torch.exp(-c), torch.exp(-2 * r)
    sinh, cosh = sh(r), ch(r)
    turn = 0.5 * near.square() * sinh
    f = 0.5 * near * (far + back) + turn * p
    f_r = 0.5 * near * (far - back) + 0.5 * near.square() * cosh * p
    f_c = 0.5 * (back + far.square()) + sh(c) * sinh * p
    sinh, cosh = sinh * far, cosh * far
    return Shifted(sinh.unsqueeze(-1) * w + f.unsqueeze(-1) * e, both, sinh, cosh, f, f_r, f_c, turn)
