"""Points seen from a mean, (-mean) (+) x, and the gradient of that.

The space part of (-mean) (+) x, for rescaled points x = (a, u) and one mean (b, v), is

    y = sinh a (u - v) + kappa v,    kappa = sinh(a-b) - (cosh b - 1) sinh a chi,    chi = 1/2 |u-v|^2,

in which only what truly vanishes at the mean is a difference. It is kept times e^-S, S the exponent of its largest
term.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from polarvit.geometry.directions import first_axis, norm_of, origin_radius
from polarvit.geometry.scaled import ch, exp_capped, scaled_asinh_slope, scaled_asinh_value, sh


class Polar(NamedTuple):
    """A space part e^S x in polar form, and what its gradient needs."""

    radius: Tensor
    direction: Tensor
    length: Tensor
    """|x|, or what stands for it at the origin"""
    slope: Tensor
    """d radius/d |x|"""

    def backward(self, grad_radius: Tensor, grad_direction: Tensor) -> Tensor:
        """Gradient of x."""
        along = (grad_direction * self.direction).sum(-1) / self.length
        radial = (grad_radius * self.slope - along).unsqueeze(-1) * self.direction
        return radial + grad_direction / self.length.unsqueeze(-1)


def polar(x: Tensor, s: Tensor) -> Polar:
    """asinh(e^S |x|) and x/|x|; zero is the origin, at the radius that stands for it (`origin_radius`)."""
    norm = norm_of(x)
    zero, length = norm == 0, norm.squeeze(-1)
    direction = torch.where(zero, first_axis(x), x / torch.where(zero, torch.ones_like(norm), norm))
    here, small = zero.squeeze(-1), origin_radius(x.dtype)
    radius = torch.where(here, torch.full_like(length, small), scaled_asinh_value(length, s))
    stand_in = torch.where(here, small * torch.exp(-s.clamp_max(40.0)), length)
    return Polar(radius, direction, stand_in, scaled_asinh_slope(length, s))


class Centred(NamedTuple):
    """y e^-S and its derivatives along a, u, b and v, each [...]."""

    gap: Tensor
    """u - v, [..., n]"""
    y: Tensor
    """[..., n]"""
    s: Tensor
    sinh: Tensor
    cosh: Tensor
    kappa: Tensor
    kappa_a: Tensor
    kappa_b: Tensor
    turn: Tensor
    """(cosh b - 1) sinh a"""

    def backward(self, g: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of a, u, b and v from that of y e^-S."""
        along = (g * v).sum(-1)
        tilt = (self.turn * along).unsqueeze(-1) * self.gap
        to_a = self.cosh * (g * self.gap).sum(-1) + self.kappa_a * along
        to_u = self.sinh.unsqueeze(-1) * g - tilt
        to_v = (self.kappa - self.sinh).unsqueeze(-1) * g + tilt
        return to_a, to_u, (self.kappa_b * along).sum(), to_v.flatten(0, -2).sum(0)


def centre(a: Tensor, u: Tensor, b: Tensor, v: Tensor) -> Centred:
    """a [...], u [..., n] seen from one mean (b [], v [n])."""
    gap = u - v
    chi = 0.5 * gap.square().sum(-1)
    step = a - b
    s = torch.maximum(step.abs(), a + b + torch.log(0.5 * chi))
    length = step.abs()
    near, grown = torch.exp(length - s), exp_capped(a - s)
    sinh, cosh = sh(a) * grown, ch(a) * grown
    both = exp_capped(a + b - s)
    bent = 0.5 * torch.expm1(-b).square() * both  # (cosh b - 1) e^(a-S)
    kappa = torch.where(step < 0, -near, near) * sh(length) - bent * sh(a) * chi
    rise = near * ch(length)
    kappa_a, kappa_b = rise - bent * ch(a) * chi, -rise - sh(b) * both * sh(a) * chi
    y = sinh.unsqueeze(-1) * gap + kappa.unsqueeze(-1) * v
    turn = 0.5 * torch.expm1(-b).square() * sh(a) * both
    return Centred(gap, y, s, sinh, cosh, kappa, kappa_a, kappa_b, turn)
