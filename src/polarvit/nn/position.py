"""Relative positional encodings: one-parameter groups of isometries applied to queries and keys.

A token at grid position m is moved by Phi(m); because Phi is a group of isometries, the distance of a query at m and a
key at m' depends on m' - m alone (paper, "Horospherical Positional Encoding"). All encodings share one interface:

    encoding(points [B, H, N] of dimension d, positions [N, axes], extent [axes]) -> points

with `positions` in grid units (a class token stands at 0) and `extent` the number of positions along each axis.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, boost, horoshift
from polarvit.nn.precision import full, in_full_precision
from polarvit.parameters import NO_DECAY, Role


class PositionalEncoding(nn.Module):
    """A learned rate rho_h for each head and grid axis: the token at m moves by t = m rho_h / M."""

    roles: ClassVar[dict[str, Role]] = {"rate": NO_DECAY}
    first_rate: ClassVar[float] = 1.0
    """Where rates start if nothing else is said."""

    def __init__(self, heads: int, head_dim: int, grid_axes: int = 2, rate: float | None = None) -> None:
        super().__init__()
        least = self.needed_dim(grid_axes)
        if head_dim < least:
            raise ValueError(
                f"{type(self).__name__}: {grid_axes} grid axes need head dimension >= {least}, got {head_dim}"
            )
        self.heads, self.head_dim, self.grid_axes = heads, head_dim, grid_axes
        self.rate = nn.Parameter(torch.full((heads, grid_axes), self.first_rate if rate is None else float(rate)))

    def needed_dim(self, grid_axes: int) -> int:
        """Least head dimension for this many grid axes."""
        return 2 * grid_axes

    @torch.no_grad()
    def spread(self, factor: float) -> None:
        """Let heads start with rates from 1/factor to factor times theirs, in even ratios; along every second grid
        axis the other way round, so that some heads begin narrow in rows, others in columns, those between in both.
        """
        if factor <= 0:
            raise ValueError(f"{type(self).__name__}: rates spread by a factor above 0, got {factor}")
        factors = float(factor) ** (torch.linspace(-1, 1, self.heads) if self.heads > 1 else torch.zeros(1))
        for axis in range(self.grid_axes):
            self.rate[:, axis] *= (factors if axis % 2 == 0 else factors.flip(0)).to(self.rate)

    def shifts(self, positions: Tensor, extent: Tensor) -> Tensor:
        """t [H, N, axes] = m rho_h / M."""
        return full(self.rate).unsqueeze(1) * (full(positions) / full(extent)).unsqueeze(0)

    def forward(self, p: PolarPoint, positions: Tensor, extent: Tensor, *, k: float | Tensor = 1.0) -> PolarPoint:
        raise TypeError(f"{type(self).__name__} does not define an encoding")

    def extra_repr(self) -> str:
        return f"heads={self.heads}, head_dim={self.head_dim}, grid_axes={self.grid_axes}"


class HoroShift(PositionalEncoding):
    """Horospherical shift: distances grow logarithmically with the gap between tokens.

    `separate` (the paper's): each grid axis has its own ideal point and slide axis, space axes (0, 1), (2, 3), ...;
    the shifts do not commute, so scores are relative exactly along one axis and to first order in both.
    `joint`: one ideal point (axis 0) with a slide axis for each grid axis; the shifts commute and scores are relative
    exactly in all axes at once, with fewer reserved axes.
    """

    first_rate: ClassVar[float] = 4.0

    def __init__(
        self,
        heads: int,
        head_dim: int,
        grid_axes: int = 2,
        rate: float | None = None,
        mode: Literal["separate", "joint"] = "separate",
    ) -> None:
        if mode not in ("separate", "joint"):
            raise ValueError(f"HoroShift: mode must be 'separate' or 'joint', got {mode!r}")
        self.mode = mode
        super().__init__(heads, head_dim, grid_axes, rate)

    def needed_dim(self, grid_axes: int) -> int:
        return grid_axes + 1 if self.mode == "joint" else 2 * grid_axes

    @in_full_precision
    def forward(self, p: PolarPoint, positions: Tensor, extent: Tensor, *, k: float | Tensor = 1.0) -> PolarPoint:
        t = self.shifts(positions, extent)
        if self.mode == "joint":
            one = self.grid_axes == 1
            return horoshift(p, t.squeeze(-1) if one else t, axes=tuple(range(self.grid_axes + 1)), k=k)
        for axis in range(self.grid_axes):
            p = horoshift(p, t[..., axis], axes=(2 * axis, 2 * axis + 1), k=k)
        return p

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode}"


class BoostShift(PositionalEncoding):
    """Lorentz boost along space axis 2i for grid axis i, the ideal directions of the separate horoshift (HoPE)."""

    @in_full_precision
    def forward(self, p: PolarPoint, positions: Tensor, extent: Tensor, *, k: float | Tensor = 1.0) -> PolarPoint:
        t = self.shifts(positions, extent)
        for axis in range(self.grid_axes):
            p = boost(p, t[..., axis], axis=2 * axis, k=k)
        return p


class RotaryShift(PositionalEncoding):
    """Rotary encoding of the space coordinates (after HELM): rotations keep the radius, so only directions turn.

    Pairs of space axes are dealt to the grid axes in turn; pair i of an axis turns by m rho_h base^(-i/pairs).
    """

    def __init__(
        self, heads: int, head_dim: int, grid_axes: int = 2, rate: float | None = None, base: float = 10_000.0
    ) -> None:
        super().__init__(heads, head_dim, grid_axes, rate)
        pairs = head_dim // (2 * grid_axes)
        self.pairs, self.base = pairs, base

    @in_full_precision
    def forward(self, p: PolarPoint, positions: Tensor, extent: Tensor, *, k: float | Tensor = 1.0) -> PolarPoint:
        turned = 2 * self.grid_axes * self.pairs
        rate = full(self.rate)
        step = torch.arange(self.pairs, dtype=rate.dtype, device=rate.device) / self.pairs
        angle = (rate.unsqueeze(1) * full(positions)).unsqueeze(-1) * torch.exp(-math.log(self.base) * step)
        angle = angle.flatten(-2)  # [H, N, axes * pairs]
        pairs = p.direction[..., :turned].unflatten(-1, (-1, 2))
        x, y = pairs.unbind(-1)
        cosine, sine = torch.cos(angle), torch.sin(angle)
        rotated = torch.stack([x * cosine - y * sine, x * sine + y * cosine], -1).flatten(-2)
        return PolarPoint(p.radius, torch.cat([rotated, p.direction[..., turned:]], -1))


class NoShift(PositionalEncoding):
    """No relative encoding: points pass unchanged."""

    def __init__(self, heads: int, head_dim: int, grid_axes: int = 2, rate: float | None = None) -> None:
        nn.Module.__init__(self)
        self.heads, self.head_dim, self.grid_axes = heads, head_dim, grid_axes

    def spread(self, factor: float) -> None:
        """There are no rates."""

    def forward(self, p: PolarPoint, positions: Tensor, extent: Tensor, *, k: float | Tensor = 1.0) -> PolarPoint:
        return p


def positional_encoding(
    name: str, heads: int, head_dim: int, grid_axes: int = 2, rate: float | None = None
) -> PositionalEncoding:
    """An encoding by the name configs use."""
    if name in ("separate", "joint"):
        return HoroShift(heads, head_dim, grid_axes, rate, mode=name)  # type: ignore[arg-type]
    classes: dict[str, type[PositionalEncoding]] = {"boost": BoostShift, "rotary": RotaryShift, "none": NoShift}
    if name not in classes:
        raise ValueError(f"unknown positional encoding '{name}'; expected separate, joint, {', '.join(classes)}")
    return classes[name](heads, head_dim, grid_axes, rate)


def grid_positions(
    grid: tuple[int, ...], class_token: bool = False, token_position: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Positions [N, axes] of a grid in row-major order and its extent [axes].

    A class token comes first, at `token_position` on every axis: 0, where nothing shifts it, if nothing else is said.
    """
    axes = torch.meshgrid(*(torch.arange(float(size)) for size in grid), indexing="ij")
    positions = torch.stack([axis.reshape(-1) for axis in axes], -1)
    if class_token:
        positions = torch.cat([positions.new_full((1, len(grid)), token_position), positions])
    return positions, torch.tensor([float(size) for size in grid])


def sincos_table(grid: tuple[int, int], dim: int, temperature: float = 10_000.0) -> Tensor:
    """Fixed sine-cosine table [N, dim]: quarters sin x, cos x, sin y, cos y (Beyer et al., 2022)."""
    if dim % 4:
        raise ValueError(f"sincos_table: dimension must be a multiple of 4, got {dim}")
    omega = torch.exp(-math.log(temperature) * torch.arange(dim // 4) / (dim // 4 - 1 or 1))
    positions, _ = grid_positions(grid)
    y, x = (positions[:, axis : axis + 1] * omega for axis in (0, 1))
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], -1)
