"""The polar convolution: a receptive field joined by direct concatenation, then the polar linear rule.

For the points (a_j, u_j) of a receptive field, the joined point (A, U) has the space part (sinh a_j u_j)_j and

    sinh^2 A = sum_j sinh^2 a_j.

The polar layer of it, h = W x, u' = h/|h|, a' = asinh(e^l), l = beta ln|h| + lambda A + phi . chi + phi_0 (in units of
sqrt k), needs no unfolding: with W = [w_0, W_s],

    h = w_0 cosh A + conv(sinh a u, W_s),    chi . phi = conv(sinh a u, phi) / cosh A,

one convolution whose last output is phi, and a box filter of sinh^2 a. What does not overflow is in `space`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint
from polarvit.geometry.scaled import rescale, restore
from polarvit.kernels.images import finish
from polarvit.kernels.images.scale import scaled_sinh
from polarvit.nn.conv.space import as_image, as_rows, excess
from polarvit.nn.conv.window import Field, Pair, window_sum
from polarvit.nn.precision import full, in_full_precision
from polarvit.nn.radius import AnchoredRadius
from polarvit.parameters import ORDINARY, Role

ALIGNED = 4
"""Outputs of the convolution are padded to a multiple of this: 16 bytes of float32, which matrix units load at once."""


class PolarConv2d(nn.Module):
    """Polar convolution on images of points: [B, H, W] of dimension in -> [B, H', W'] of dimension out.

    `forward(x, y, ...)` joins several images pixel by pixel first (direct concatenation, as skips are): their
    dimensions add up to `in_channels`. Padding is the origin.
    Parameters: out (in kh kw + 1) + in kh kw + 3, those of the polar layer on the joined field.
    """

    roles: ClassVar[dict[str, Role]] = {"weight": ORDINARY, "time_weight": ORDINARY}

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        time_init: Literal["zero", "full"] = "full",
    ) -> None:
        super().__init__()
        if in_channels < 1 or out_channels < 1:
            raise ValueError(f"PolarConv2d: channels must be positive, got {in_channels} -> {out_channels}")
        self.in_channels, self.out_channels, self.time_init = in_channels, out_channels, time_init
        self.field = Field.of("PolarConv2d", kernel_size, stride, padding, dilation)
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *self.field.kernel))
        self.time_weight = nn.Parameter(torch.empty(out_channels))
        self.rule = AnchoredRadius(in_channels * self.field.size)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw W as the polar layer on the joined field does: Xavier normal over all columns."""
        whole = torch.empty(self.out_channels, self.in_channels * self.field.size + 1, dtype=self.weight.dtype)
        nn.init.xavier_normal_(whole)
        self.weight.copy_(whole[:, 1:].reshape_as(self.weight))
        self.time_weight.copy_(whole[:, 0] if self.time_init == "full" else torch.zeros_like(whole[:, 0]))

    def forward(self, *images: PolarPoint, k: float | Tensor = 1.0) -> PolarPoint:
        dims = [x.dim for x in images]
        if sum(dims) != self.in_channels or any(x.radius.ndim != 3 for x in images):
            raise ValueError(
                f"PolarConv2d: expected images [B, H, W] of dimensions that sum to {self.in_channels}, "
                f"got {[list(x.direction.shape) for x in images]}"
            )
        space, square, t = join(*images, k=k)
        square = window_sum(square, self.field)
        return self.finish(PolarPoint(square, self.product(space)), t, k=k)

    def product(self, space: Tensor) -> Tensor:
        """Convolution of space parts with W_s, then phi, then padding: [B, H', W', out + 1 + ...]."""
        phi = self.rule.phi.view(1, *self.weight.shape[1:])
        blank = phi.new_zeros(-(self.out_channels + 1) % ALIGNED, *self.weight.shape[1:])
        weight = torch.cat([self.weight, phi, blank])
        return full(as_rows(self.field.convolve(as_image(space.to(weight.dtype)), weight)))

    @in_full_precision
    def finish(self, given: PolarPoint, t: Tensor, *, k: float | Tensor = 1.0) -> PolarPoint:
        """Direction and radius from sinh^2 A e^-2t and the products of every receptive field, given as one pair."""
        radius, direction = finish(
            given.direction,
            given.radius,
            t,
            full(self.time_weight),
            *self.rule.scalars(),
        )
        return PolarPoint(restore(self.rule.bound_radius(radius), k), direction)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, {self.field.describe()}"


@in_full_precision
def join(*images: PolarPoint, k: float | Tensor = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Space parts of the pixelwise direct concatenation [B, H, W, C], sinh^2 a [B, H, W], both scaled, and t."""
    radii = [rescale(x.radius, k) for x in images]
    t = excess(*radii)
    sizes = [scaled_sinh(a, t) for a in radii]
    parts = [size.unsqueeze(-1) * x.direction for size, x in zip(sizes, images, strict=True)]
    squares = [size.square() for size in sizes]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1), sum(squares[1:], squares[0]), t
