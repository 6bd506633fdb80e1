"""The weighted Lorentz centroid in polar form.

The centroid sum w_i x_i / | sum w_i x_i |_L has, with T = sum w cosh a, V = sum w sinh a u, the direction V/|V| and
e^(2a) = (T + |V|) / (T - |V|). The difference T - |V| is what ambient arithmetic loses. With masses
m_i = w_i sinh a_i, P = sum m_i, the unnormalised mean direction ubar = V/P and M2 = sum m_i |u_i - ubar|^2,

    T - |V| = E + S,    E = sum w_i e^-a_i,    S = M2 / (1 + |ubar|),    T + |V| = 2|V| + E + S,

sums of non-negative terms, taken to the log domain with the growth e^m removed (docs/numerics.md).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from polarvit.geometry.directions import first_axis, norm_of, squared_differences, wide, wide_product
from polarvit.geometry.door import geometric, need_broadcast, need_point, need_tensor
from polarvit.geometry.once import differentiable_once
from polarvit.geometry.points import PolarPoint
from polarvit.geometry.scaled import ch, exp_capped, rescale, restore, sh


class _Centroid(torch.autograd.Function):
    """Rows of weights w [..., N, M] over points a [..., M], u [..., M, n] -> a_mu [..., N], u_mu [..., N, n].

    `lag` is a minus the largest a, formed before the division by sqrt(k) and without gradient: the ratio of two masses
    keeps every digit that way. Also returns, without gradient, what backward needs of each row: the lag and the radius
    m of its farthest key, ln(E+S), ln(T+|V|) and |V| (all after division by e^m and by `_unit`), the index h of its
    heaviest key, and ubar - u_h.

    A row that one key outweighs has ubar - u_h as small as the other masses, and e^(2 a_mu) times that is its gradient:
    so what is near u_h is never taken as a difference of larger vectors (`_Rows`).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, lag: Tensor, u: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        key, late = a.unsqueeze(-2), lag.unsqueeze(-2)
        w = w / _unit(w)
        present = w > 0
        some = present.any(-1)
        m = torch.where(present, key, -torch.inf).amax(-1)
        m = torch.where(some, m, torch.zeros_like(m))
        least = torch.where(present, key, torch.inf).amin(-1)
        least = torch.where(some, least, torch.zeros_like(least))
        first = torch.where(present, late, -torch.inf).amax(-1)
        first = torch.where(some, first, torch.zeros_like(first))

        mass = w * sh(key) * torch.exp((late - first.unsqueeze(-1)).clamp_max(0.0))
        total = mass.sum(-1)
        share = mass / torch.where(total > 0, total, torch.ones_like(total)).unsqueeze(-1)
        # Offsets from one key: equal and one-hot directions give M2 = 0 exactly, at any radius.
        heaviest = share.argmax(-1)
        rows = _Rows(u, _centre(share), heaviest)
        others = rows.apart(share)
        away = (wide_product(others, rows.offset) - wide(others).sum(-1, keepdim=True) * wide(rows.start)).to(u.dtype)
        spread = rows.squares(away)
        # In units of the farthest key off ubar: beside one that lies on it, far beyond, its mass may be no number.
        off = torch.where(present & (spread > 0), late, -torch.inf).amax(-1)
        off = torch.where(torch.isfinite(off), off, first)
        m2 = (w * sh(key) * torch.exp((late - off.unsqueeze(-1)).clamp_max(0.0)) * spread).sum(-1)
        ubar = rows.top + away
        length = norm_of(ubar).squeeze(-1)
        direction = torch.where((length > 0).unsqueeze(-1), ubar / length.unsqueeze(-1), first_axis(u))

        size = total * length
        log_e = torch.log((w * torch.exp((least.unsqueeze(-1) - key).clamp_max(0.0))).sum(-1)) - m - least
        log_minus = torch.logaddexp(torch.log(m2 / (1 + length)) + (off - first), log_e)
        log_plus = torch.logaddexp(torch.log(2 * size), log_minus)
        radius = 0.5 * (log_plus - log_minus)
        small = torch.asinh(size * exp_capped(-0.5 * (log_minus + log_plus)))
        radius = torch.where(radius < 1, small, radius)
        empty = (w == 0).all(-1)
        radius = torch.where(empty, torch.zeros_like(radius), radius)
        direction = torch.where(empty.unsqueeze(-1), first_axis(u), direction)
        return radius, direction, first, m, log_minus, log_plus, size, heaviest, away

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_a: Tensor, grad_u: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Closed forms; S is stationary in its direction, so that dependence drops out of the radius."""
        a, lag, u, w, mu, first, m, log_minus, log_plus, size, heaviest, away = ctx.saved_tensors
        unit = _unit(w)
        w = w / unit
        some = torch.isfinite(log_minus)
        grad_a = torch.where(some, grad_a, torch.zeros_like(grad_a)).unsqueeze(-1)
        turned = some & (size >= torch.finfo(size.dtype).tiny)
        g = grad_u - (grad_u * mu).sum(-1, keepdim=True) * mu
        g = torch.where(turned.unsqueeze(-1), g, torch.zeros_like(g))

        key, sinh, cosh = a.unsqueeze(-2), sh(a).unsqueeze(-2), ch(a).unsqueeze(-2)
        rows = _Rows(u, _centre(w * sinh), heaviest)
        away = _as_long(rows.top, away)
        chi = 0.5 * rows.squares(away)
        ahead = lag.unsqueeze(-2) - first.unsqueeze(-1)
        up = exp_capped(ahead - _row(log_plus, some))  # e^a / (T + |V|)
        over = exp_capped(ahead - _row(log_minus, some))  # e^a / (E + S)
        under = exp_capped(-key - _row(m + log_minus, some))  # e^-a / (E + S)
        length = torch.where(turned, size, torch.ones_like(size)).unsqueeze(-1)
        # e^a / |V|; a key without weight may lie so far beyond the others that only the log domain holds it
        turn = torch.where(ahead > 0, exp_capped(ahead - torch.log(length)), torch.exp(ahead.clamp_max(0.0)) / length)

        slope_w = 0.5 * (up * (1 - sinh * chi) - (under + sinh * chi * over))
        # Near the origin up and under are both 1/sum(w): there the two terms are sinh a and cosh a tanh a_mu.
        part = size * torch.exp(-torch.where(some, log_plus, torch.zeros_like(log_plus)))
        close = 0.5 * (up + over) * sinh * (1 - chi) - part.unsqueeze(-1) * cosh * over
        slope_w = torch.where((m < 1).unsqueeze(-1), close, slope_w)
        slope_a = 0.5 * w * (up * (1 - cosh * chi) + under - cosh * chi * over)
        pull = grad_a * 0.5 * w * sinh * (up + over)
        back = -wide(g * away).sum(-1, keepdim=True)
        along = wide_product(g, rows.offset.mT) - (wide(g) * wide(rows.start)).sum(-1, keepdim=True)
        sideways = torch.where(rows.own, back, along + back).to(u.dtype)  # g.(u_j - mu)

        grad_w = (grad_a * slope_w + sinh * turn * sideways) / unit
        to_a = (grad_a * slope_a + w * cosh * turn * sideways).sum(-2)
        spin = wide_product((w * sinh * turn).mT, g).to(u.dtype)
        spin = spin - (spin * u).sum(-1, keepdim=True) * u
        apart = rows.apart(pull)
        to_u = wide_product(pull.mT, away) + wide_product(apart.mT, rows.start)
        to_u = (to_u - wide(apart).sum(-2).unsqueeze(-1) * wide(rows.offset)).to(u.dtype)  # pull (mu - u_j)
        return to_a, None, to_u + (pull * chi).sum(-2).unsqueeze(-1) * u + spin, grad_w


def _row(x: Tensor, valid: Tensor) -> Tensor:
    return torch.where(valid, x, torch.zeros_like(x)).unsqueeze(-1)


def _unit(w: Tensor) -> Tensor:
    """What the weights of a row count in [..., 1]: 1, or a power of two near the largest where that is tiny or huge."""
    exponent = torch.floor(torch.log2(w.amax(-1, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)))
    return torch.where(exponent.abs() > 16, torch.exp2(exponent), torch.ones_like(exponent))


def _as_long(top: Tensor, away: Tensor) -> Tensor:
    """What is left of ubar = top + away at the length of `top`, less `top`: [..., N, n].

    Zero where all directions are one. With the stored, rounded direction of ubar in its place an angle of 0 becomes
    one of eps, and e^(2a) times that is no small number far out.
    """
    c, d = wide(top), wide(away)
    ubar, long = c + d, norm_of(c)
    length = norm_of(ubar)
    grown = -((2 * c + d) * d).sum(-1, keepdim=True) / (long + length)
    return (d + grown / torch.where(length > 0, length, torch.ones_like(length)) * ubar).to(away.dtype)


class _Rows:
    """Directions u [..., M, n] as offsets from that of key `centre` [...]; row i starts at its heaviest key h_i.

    Of several rows they are `wide`: between keys that are neighbours but far from the centre, nothing is rounded.
    """

    def __init__(self, u: Tensor, centre: Tensor, heaviest: Tensor) -> None:
        self.dtype = u.dtype
        long = u if heaviest.shape[-1] == 1 else wide(u)
        self.offset = long - torch.take_along_dim(long, centre[..., None, None], -2)
        self.top = torch.take_along_dim(u, heaviest.unsqueeze(-1), -2)
        """u_h [..., N, n]."""
        self.start = torch.take_along_dim(self.offset, heaviest.unsqueeze(-1), -2)
        """Its offset."""
        self.own = torch.arange(u.shape[-2], device=u.device) == heaviest.unsqueeze(-1)
        """Which key is h: bool [..., N, M]."""

    def apart(self, x: Tensor) -> Tensor:
        """x [..., N, M] with 0 for the row's heaviest key."""
        return torch.where(self.own, torch.zeros_like(x), x)

    def squares(self, away: Tensor) -> Tensor:
        """|u_h + away - u_j|^2 [..., N, M]; of the row's heaviest key |away|^2, to the last digit."""
        others = squared_differences(self.start + away, self.offset).to(self.dtype)
        return torch.where(self.own, away.square().sum(-1, keepdim=True), others)


def _centre(mass: Tensor) -> Tensor:
    """The heaviest key of all rows of [..., N, M] together."""
    return mass.sum(-2).argmax(-1)


@geometric
def centroid(points: PolarPoint, weights: Tensor | None = None, *, k: float | Tensor = 1.0) -> PolarPoint:
    """Weighted Lorentz centroid of points [..., M].

    `weights` (non-negative, any scale) is [..., M] for one centroid [...], [..., N, M] for N of them [..., N], or
    None for equal weights; which one is told by the number of dimensions alone. Weights that are all zero give the
    origin with zero gradient. Accurate at every radius, one-hot rows included; closed-form gradients that keep
    nothing larger than [N, M].

    >>> p = PolarPoint(torch.tensor([9.0, 9.0]), torch.tensor([[0.0, 1.0], [0.0, 1.0]]))
    >>> centroid(p).radius
    tensor(9.)
    """
    need_point("centroid", "points", points)
    if points.radius.ndim == 0 or points.shape[-1] == 0:
        raise ValueError(f"centroid: points must have shape [..., M] with M >= 1, got {list(points.shape)}")
    if weights is None:
        weights = torch.ones_like(points.radius)
    need_tensor("centroid", "weights", weights)
    rows = weights.ndim - points.radius.ndim
    if rows not in (0, 1) or weights.shape[-1] != points.shape[-1]:
        raise ValueError(
            f"centroid: weights must be [..., M] or [..., N, M] for points {list(points.shape)}, "
            f"got {list(weights.shape)}"
        )
    matrix = weights if rows else weights.unsqueeze(-2)
    need_broadcast("centroid", points.shape[:-1], matrix.shape[:-2], ("points", "weights"))
    batch = torch.broadcast_shapes(points.shape[:-1], matrix.shape[:-2])
    dtype = functools.reduce(torch.promote_types, (x.dtype for x in (*points, weights)))
    radius = points.radius.to(dtype)
    lag = rescale(radius - radius.amax(-1, keepdim=True), k).detach()
    a, u, _ = _Centroid.apply(
        rescale(radius, k).expand(*batch, -1),
        lag.expand(*batch, -1),
        points.direction.to(dtype).expand(*batch, -1, -1),
        matrix.to(dtype).expand(*batch, -1, -1),
    )[:3]
    mean = PolarPoint(restore(a, k), u)
    return mean if rows else mean.map(lambda x: x.squeeze(-2 if x is u else -1))
