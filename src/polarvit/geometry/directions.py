"""Directions: normalising a vector, the chord between two unit vectors, and the part of one across the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polarvit.geometry.scaled import scaled_asinh_slope, scaled_asinh_value


def origin_radius(dtype: torch.dtype) -> float:
    """The length that stands in for zero when a vector is turned into polar coordinates.

    Polar coordinates are singular at the origin: at radius exactly 0 the loss does not depend on the direction, so
    d loss / d direction is 0 and all but one component of the true gradient would be lost, and a parameter that
    starts there would never leave. At this radius (2^-60, 2^-400 in float64) the direction's gradient is as
    small as the radius, the normalisation divides by the radius, and the true gradient arrives. It is far below
    the resolution of any result (eps sqrt(k)), and its square is still a normal number.
    """
    return 2.0**-400 if dtype == torch.float64 else 2.0**-60


def first_axis(x: Tensor) -> Tensor:
    """e_0, shaped to broadcast against [..., n]."""
    return axis_vector(0, x)


def axis_vector(axis: int, like: Tensor) -> Tensor:
    """The unit vector [n] along a space axis, in the dtype and on the device of `like` [..., n]."""
    return (torch.arange(like.shape[-1], device=like.device) == axis).to(like.dtype)


def norm_of(x: Tensor) -> Tensor:
    """|x| over the last axis [..., 1], without overflow or underflow of the squares."""
    largest = x.abs().amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest, torch.ones_like(largest))
    return largest * torch.sqrt((x / scale).square().sum(-1, keepdim=True))


class _NormAndDirection(torch.autograd.Function):
    """(|x|, x/|x|) with gradient g_norm u + (g_u - (g_u.u) u)/|x|; zero vectors as `origin_radius` says."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        norm = norm_of(x)
        zero = norm == 0
        safe = torch.where(zero, torch.full_like(norm, origin_radius(x.dtype)), norm)
        return safe.squeeze(-1), torch.where(zero, first_axis(x), x / safe)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, grad_norm: Tensor, grad_direction: Tensor) -> Tensor:
        norm, u = ctx.saved_tensors
        across = grad_direction - (grad_direction * u).sum(-1, keepdim=True) * u
        return grad_norm.unsqueeze(-1) * u + across / norm.unsqueeze(-1)


def norm_and_direction(x: Tensor) -> tuple[Tensor, Tensor]:
    """|x| [...] and x/|x| [..., n]; a zero vector gives (`origin_radius`, e_0) and its true gradient."""
    return _NormAndDirection.apply(x)


class _ScaledPolar(torch.autograd.Function):
    """(asinh(e^s |x|), x/|x|): gradient g_a slope u + (g_u - (g_u.u) u)/|x| for x, g_a slope |x| for s.

    |x| is a third output only because backward needs it, and a second derivative asks for its gradient.
    A zero vector is the origin: (`origin_radius`, e_0) at every scale s, as if |x| were e^-s `origin_radius`. Its
    slope e^s is held at e^40, so that it stays finite.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        norm = norm_of(x)
        zero = norm == 0
        a = scaled_asinh_value(norm.squeeze(-1), s)
        a = torch.where(zero.squeeze(-1), torch.full_like(a, origin_radius(x.dtype)), a)
        u = torch.where(zero, first_axis(x), x / torch.where(zero, torch.ones_like(norm), norm))
        return a, u, norm.squeeze(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[2], output[1], inputs[1])

    @staticmethod
    def backward(ctx: Any, grad_a: Tensor, grad_u: Tensor, grad_norm: Tensor) -> tuple[Tensor, Tensor]:
        norm, u, s = ctx.saved_tensors
        slope = scaled_asinh_slope(norm, s)
        zero = norm == 0
        length = torch.where(zero, torch.exp(-s.clamp_max(40.0)) * origin_radius(u.dtype), norm)
        across = grad_u - (grad_u * u).sum(-1, keepdim=True) * u
        grad_x = (grad_a * slope + grad_norm).unsqueeze(-1) * u + across / length.unsqueeze(-1)
        return grad_x, grad_a * slope * norm


def scaled_polar(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Rescaled radius [...] and direction [..., n] of the space part e^s x, for s >= 0 of any size."""
    a, u, _ = _ScaledPolar.apply(x, s.expand(x.shape[:-1]))
    return a, u


def chord(u: Tensor, v: Tensor) -> Tensor:
    """1/2 |u - v|^2 = 1 - cos(angle), from differences: exact where 1 - u.v has lost every digit."""
    return 0.5 * (u - v).square().sum(-1)


def across(u: Tensor, v: Tensor) -> Tensor:
    """The part of v perpendicular to u, v - (v.u)u; by the chord where that cancels, near u and near -u."""
    cosine = (u * v).sum(-1, keepdim=True)
    side = torch.where(cosine < 0, -torch.ones_like(cosine), torch.ones_like(cosine))
    gap = v - side * u
    narrow = gap + 0.5 * side * gap.square().sum(-1, keepdim=True) * u
    return torch.where(cosine.abs() < 0.5, v - cosine * u, narrow)


SPREAD_OUT = 2**28
"""Differences at most that compiled code writes out: inductor makes a loop of them, other backends 1 GiB of float32."""


SLICE = 2**24
"""Differences at most that a GPU holds at once where nothing is compiled."""


def squared_differences(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j|^2 for x [..., N, n], y [..., M, n]: [..., N, M], from differences.

    By `cdist`, which forms no [N, M, n] tensor; compiled, written out, where it is one kernel instead of a call; on a
    GPU, where `cdist` gives a block of threads to every pair, some rows after the other (slow if there are very many).
    """
    rows, size = x.shape[-2], y.numel()
    fixed = isinstance(rows, int) and isinstance(size, int)  # not so in an exported program of any batch
    if torch.compiler.is_compiling() and fixed and (rows == 1 or size * rows <= SPREAD_OUT):
        return _written_out(x, y)
    if x.is_cuda and fixed and not torch.compiler.is_compiling():
        return _by_rows(x, y, max(1, SLICE // max(size, 1)))
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()


def _written_out(x: Tensor, y: Tensor) -> Tensor:
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1)


def _by_rows(x: Tensor, y: Tensor, rows: int) -> Tensor:
    """`rows` rows of x at a time."""
    return torch.cat([_written_out(part, y) for part in x.split(rows, -2)], -2)


def wide_product(x: Tensor, y: Tensor) -> Tensor:
    """x @ y for [..., N, M] and [..., M, n] with `wide` sums; compiled, without a product where N or M is 1."""
    x, y = wide(x), wide(y)
    if torch.compiler.is_compiling() and x.shape[-1] == 1:
        return x * y
    if torch.compiler.is_compiling() and x.shape[-2] == 1:
        return (x.mT * y).sum(-2, keepdim=True)
    return x @ y


def wide(x: Tensor) -> Tensor:
    """float32 as float64 where there is one: sums of products that nearly cancel, and that TF32 must not round."""
    return x.double() if x.dtype == torch.float32 and x.device.type != "mps" else x
