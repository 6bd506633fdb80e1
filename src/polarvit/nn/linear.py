"""The polar fully connected layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint
from polarvit.geometry.directions import norm_and_direction
from polarvit.geometry.scaled import rescale, restore, sqrt_k
from polarvit.kernels.linear import linear_epilogue
from polarvit.kernels.linear.reference import log_cosh, preactivation
from polarvit.nn.precision import full, halved, in_full_precision, rough_product
from polarvit.nn.radius import RadiusRule, radius_rule
from polarvit.parameters import ORDINARY, Role

Activation = Literal["relu", "gelu"]


@dataclass(frozen=True)
class Begun:
    """A polar layer of which the matrix product is done; what is left of it may be one with what comes next."""

    layer: PolarLinear
    source: PolarPoint
    product: Tensor

    def finish(self, *, k: float | Tensor = 1.0) -> PolarPoint:
        return self.layer.finish(self.source, self.product, k=k)


class PolarLinear(nn.Module):
    """Polar-FC: direction and radius of the output are separate channels (paper, "Polar Fully Connected Layer").

        h = phi(W x),  u' = h/|h|,  a' = asinh(e^l),  l = beta ln(|h|/sqrt k) + lambda a + phi . chi + phi_0

    At initialisation this is the general Lorentz layer y = (sqrt(k + |Wx|^2), Wx) for every k. With W = [w_0, W_s],
    W x = sqrt(k) cosh(a) (w_0 + tanh(a) W_s u): the product runs over the unit direction, tanh(a) follows, and cosh(a)
    joins in the log domain, so the layer holds at any radius. An activation of c y with a
    positive factor c is c phi_c(y) for those on offer (none, ReLU, GELU).

    `before_product` says that only a matrix product reads the result: under bf16 autocast, which would round directions
    for it, they are made so at once.

    Shapes: [..., in_features] -> [..., out_features] as `PolarPoint`s.
    Parameters: out (in + 1) + in + 3 with the anchored radius rule.
    """

    roles: ClassVar[dict[str, Role]] = {"weight": ORDINARY, "time_weight": ORDINARY}

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: Activation | None = None,
        rule: str | RadiusRule = "anchored",
        init: Literal["xavier", "orthogonal"] = "xavier",
        time_init: Literal["zero", "full"] = "full",
        *,
        before_product: bool = False,
    ) -> None:
        super().__init__()
        if in_features < 1 or out_features < 1:
            raise ValueError(f"PolarLinear: features must be positive, got {in_features} -> {out_features}")
        if activation not in (None, "relu", "gelu"):
            raise ValueError(f"PolarLinear: activation must be None, 'relu' or 'gelu', got {activation!r}")
        self.in_features, self.out_features, self.activation = in_features, out_features, activation
        self.init, self.time_init, self.before_product = init, time_init, before_product
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.time_weight = nn.Parameter(torch.empty(out_features))
        self.rule = radius_rule(rule, in_features)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw W: Xavier normal or orthogonal over all in + 1 columns; `time_init="zero"` then clears the first."""
        whole = torch.empty(self.out_features, self.in_features + 1, dtype=self.weight.dtype)
        if self.init == "orthogonal":
            nn.init.orthogonal_(whole)
        else:
            nn.init.xavier_normal_(whole)
        self.weight.copy_(whole[:, 1:])
        self.time_weight.copy_(whole[:, 0] if self.time_init == "full" else torch.zeros_like(whole[:, 0]))

    @torch.no_grad()
    def stretch(self, delta: float) -> None:
        """Multiply W by e^delta: at the start of the anchored rule, without an activation, sinh a' grows as much."""
        for part in (self.weight, self.time_weight):
            part.mul_(math.exp(delta))

    def forward(self, x: PolarPoint, *, k: float | Tensor = 1.0, begin: bool = False) -> PolarPoint | Begun:
        """The point; with `begin` it is left `Begun`, for a `BoostResidual` to finish."""
        if not isinstance(x, PolarPoint):
            raise TypeError(f"PolarLinear: expected a PolarPoint, got a {type(x).__name__}; from_space makes points")
        if x.dim != self.in_features:
            raise ValueError(f"PolarLinear: expected points of dimension {self.in_features}, got {x.dim}")
        y = rough_product(x.direction, self.joined_weight())
        return Begun(self, x, y) if begin else self.finish(x, y, k=k, half=self.before_product and halved(x))

    @property
    def steps(self) -> bool:
        """Whether its point can be a step that no one writes down: an affine rule without a bound, no activation."""
        return self.activation is None and self.rule.affine and not self.rule.bounded

    def joined_weight(self) -> Tensor:
        """W_s, and below it phi, so that one product gives both; padded to a multiple of 8 rows."""
        if not self.rule.affine:
            return self.weight
        return joined([self.weight], [self.rule.phi])

    @in_full_precision
    def finish(self, x: PolarPoint, y: Tensor, *, k: float | Tensor = 1.0, half: bool = False) -> PolarPoint:
        """Everything after the matrix product `y` of the directions: activation, direction and radius."""
        a = rescale(x.radius, k)
        if self.rule.affine:
            radius, direction = linear_epilogue(
                y,
                a,
                full(self.time_weight),
                *self.rule.scalars(),
                out_features=self.out_features,
                activation=self.activation,
                root_k=sqrt_k(k, a),
                half=half,
            )
            return PolarPoint(restore(self.rule.bound_radius(radius), k), direction)
        klein = torch.tanh(a).unsqueeze(-1)
        y = preactivation(klein * full(y) + full(self.time_weight), a, self.activation, sqrt_k(k, a))
        norm, direction = norm_and_direction(y)
        radius = self.rule(torch.log(norm) + log_cosh(a), a, x.direction, klein * x.direction)
        return PolarPoint(restore(radius, k), direction)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, activation={self.activation}"


def joined(weights: list[Tensor], rows: list[Tensor]) -> Tensor:
    """Weights and single rows stacked, with zero rows up to a multiple of 8 (which matrix units want)."""
    height = sum(len(weight) for weight in weights) + len(rows)
    padding = rows[0].new_zeros(-height % 8, rows[0].shape[0])
    return torch.cat([*weights, torch.stack(rows), padding])


class PolarMLP(nn.Module):
    """Two polar layers with an activation inside the first."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        activation: Activation = "gelu",
        rule: str = "anchored",
        time_init: Literal["zero", "full"] = "full",
    ) -> None:
        super().__init__()
        self.fc1 = PolarLinear(dim, hidden, activation, rule=rule, time_init=time_init, before_product=True)
        self.fc2 = PolarLinear(hidden, dim, rule=rule, time_init=time_init)

    def forward(self, x: PolarPoint, *, k: float | Tensor = 1.0, begin: bool = False) -> PolarPoint | Begun:
        """The point; with `begin` its last layer is left `Begun`."""
        return self.fc2(self.fc1(x, k=k), k=k, begin=begin)
