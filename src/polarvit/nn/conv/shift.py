"""Centre, scale, shift and ReLU in one step, with closed-form gradients.

After `centre`, a point (delta, w) is scaled to r = f delta and carried by bias (+): the space part becomes

    x = sinh r w + F e,    F = 2 sinh(c/2) cosh(r - c/2) + (cosh c - 1) sinh r 1/2|w+e|^2

for a rescaled bias (c, e), both terms of F non-negative. It is kept times e^-(r+c).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polarvit.geometry.scaled import ch, sh
from polarvit.nn.conv.centre import centre, polar


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


class _Normalise(torch.autograd.Function):
    """Points a, u, mean (b, v), factor f, bias (c, e) -> points."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, u: Tensor, b: Tensor, v: Tensor, f: Tensor, c: Tensor, e: Tensor, relu: bool
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(a, u, b, v, f, c, e)
        ctx.relu = relu
        seen = centre(a, u, b, v)
        delta, w, _, _ = polar(seen.y, seen.s)
        x = shift(c, e, f * delta, w).x
        radius, direction, _, _ = polar(torch.relu(x) if relu else x, f * delta + c)
        return radius, direction

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_radius: Tensor, grad_direction: Tensor) -> tuple[Tensor | None, ...]:
        a, u, b, v, f, c, e = ctx.saved_tensors
        seen = centre(a, u, b, v)
        inner = polar(seen.y, seen.s)
        delta, w = inner.radius, inner.direction
        moved = shift(c, e, f * delta, w)
        x = torch.relu(moved.x) if ctx.relu else moved.x
        g = polar(x, f * delta + c).backward(grad_radius, grad_direction)
        if ctx.relu:
            g = torch.where(moved.x > 0, g, torch.zeros_like(g))
        to_r, to_w, to_c, to_e = moved.backward(g, w, e)
        to_a, to_u, to_b, to_v = seen.backward(inner.backward(f * to_r, to_w), v)
        return to_a, to_u, to_b, to_v, (to_r * delta).sum(), to_c, to_e, None


def normalise(
    a: Tensor, u: Tensor, mean: tuple[Tensor, Tensor], f: Tensor, bias: tuple[Tensor, Tensor], relu: bool
) -> tuple[Tensor, Tensor]:
    """bias (+) (f (x) ((-mean) (+) x)) for rescaled points a [...], u [..., n]; with `relu`, that of the space part."""
    return _Normalise.apply(a, u, *mean, f, *bias, relu)
