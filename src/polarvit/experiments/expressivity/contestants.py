"""The layers of the test: how each starts, where it is told to go, and how it measures how far it still is.

Every layer maps one fixed input, at distance sqrt(2) from the origin along the first axis, to a target further out on
the same axis, in ten dimensions (protocol of van der Klis et al., 2026).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, ambient, distance, from_ball, from_space
from polarvit.geometry.directions import axis_vector
from polarvit.nn import PolarLinear
from polarvit.nn.baselines import FGGLinear, LorentzBoundedLinear, LorentzLinear, PoincareLinear

DIM = 10
START = math.sqrt(2)
FLAT = 100.0
"""k of the Poincare layer in the protocol: at curvature -0.01 a distance of 18 is a rescaled radius of 1.8 only."""

Layer = Callable[[Any], Any]
Gap = Callable[[Layer, Tensor], Tensor]


@dataclass(frozen=True)
class Contestant:
    """A layer in the test.

    `build()` draws a layer; `loss_gap(layer, t)` is the distance the loss squares, for a target at distance t [];
    `true_gap` the same distance computed in polar form, which tells a false arrival from a true one.
    """

    name: str
    label: str
    build: Callable[[], nn.Module]
    loss_gap: Gap
    true_gap: Gap
    lr: float = 1e-3


def on_axis(radius: Tensor) -> PolarPoint:
    """The point at `radius` along the first axis."""
    return PolarPoint(radius, axis_vector(0, radius.new_empty(DIM)))


def on_diagonal(radius: Tensor) -> PolarPoint:
    """The point at `radius` along (1, ..., 1), where no coordinate of the direction is zero."""
    return PolarPoint(radius, radius.new_full((DIM,), DIM**-0.5))


def ambient_point(radius: Tensor) -> Tensor:
    """The same point in ambient coordinates at k = 1."""
    return torch.cat([torch.cosh(radius).reshape(1), torch.sinh(radius) * axis_vector(0, radius.new_empty(DIM))])


def polar_gap(target: Callable[[Tensor], PolarPoint] = on_axis) -> Gap:
    """Polar input, polar distance."""

    def gap(layer: Layer, t: Tensor) -> Tensor:
        return distance(layer(on_axis(torch.full_like(t, START))), target(t))

    return gap


def lorentz_polar_gap(layer: Layer, t: Tensor) -> Tensor:
    """Ambient input and output; the distance in polar form, from the output's space coordinates."""
    return distance(from_space(layer(ambient_point(torch.full_like(t, START)))[1:]), on_axis(t))


def lorentz_gap(layer: Layer, t: Tensor) -> Tensor:
    """Ambient input, output and distance: arcosh(-<x, y>), held above 1 + 1e-7 as in the published test."""
    y = layer(ambient_point(torch.full_like(t, START)))
    return torch.acosh((-ambient.inner(y, ambient_point(t))).clamp_min(1 + 1e-7))


def ball_point(radius: Tensor) -> Tensor:
    """The point of the ball of radius sqrt(FLAT) at hyperbolic distance `radius` along the first axis."""
    root = math.sqrt(FLAT)
    return root * torch.tanh(radius / (2 * root)) * axis_vector(0, radius.new_empty(DIM))


def ball_gap(layer: Layer, t: Tensor) -> Tensor:
    """2 sqrt(k) artanh(|(-x) (+) y|/sqrt(k)), the artanh's argument held below 0.9999 as in the published test."""
    x, y, c = layer(ball_point(torch.full_like(t, START))), ball_point(t), 1 / FLAT
    xy, xx, yy = (x * y).sum(), x.square().sum(), y.square().sum()
    moved = ((1 - c * xx) * y - (1 - 2 * c * xy + c * yy) * x) / (1 - 2 * c * xy + c * c * xx * yy)
    size = torch.sqrt(moved.square().sum().clamp_min(1e-30))
    return 2 * math.sqrt(FLAT) * torch.atanh((size / math.sqrt(FLAT)).clamp_max(0.9999))


def ball_polar_gap(layer: Layer, t: Tensor) -> Tensor:
    """The ball's output, measured in polar form."""
    return distance(from_ball(layer(ball_point(torch.full_like(t, START))), k=FLAT), on_axis(t), k=FLAT)


def uniform(layer: nn.Module) -> nn.Module:
    """Chen's start: every weight from U(-0.02, 0.02)."""
    assert isinstance(layer.weight, Tensor)
    nn.init.uniform_(layer.weight, -0.02, 0.02)
    return layer


CONTESTANTS = (
    Contestant("polar", "Polar-FC", lambda: PolarLinear(DIM, DIM, "relu"), polar_gap(), polar_gap()),
    Contestant("fgg", "FGG-LNN", lambda: FGGLinear(DIM, DIM, "relu", init="eye"), lorentz_polar_gap, lorentz_polar_gap),
    Contestant(
        "chen",
        "Chen et al., general",
        lambda: uniform(LorentzLinear(DIM, DIM, "relu")),
        lorentz_gap,
        lorentz_polar_gap,
        lr=0.1,
    ),
    Contestant(
        "chen_bounded",
        "Chen et al., sigmoid-bounded",
        lambda: uniform(LorentzBoundedLinear(DIM, DIM, "relu", learn_scale=False)),
        lorentz_gap,
        lorentz_polar_gap,
        lr=0.1,
    ),
    Contestant(
        "poincare",
        "Poincaré FC, curvature \N{MINUS SIGN}0.01",
        lambda: PoincareLinear(DIM, DIM, k=FLAT, init="eye"),
        ball_gap,
        ball_polar_gap,
    ),
)
OFF_AXIS = Contestant(
    "polar_off_axis",
    "Polar-FC, target off the axes",
    lambda: PolarLinear(DIM, DIM),
    polar_gap(on_diagonal),
    polar_gap(on_diagonal),
)
