"""The Lorentz fully connected layers of Chen et al. (2022): the general form and the sigmoid-bounded one.

Both multiply the ambient point x = (x_0, x_s), on <x, x> = -k, by one matrix over all n + 1 coordinates. The general
form takes the product as space coordinates and recomputes the time, so direction and radius come from one map. The
bounded form lets a sigmoid choose the time and scales the space part to match, so the radius has a ceiling.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.geometry.directions import norm_and_direction
from polarvit.nn.precision import full, product
from polarvit.parameters import NO_DECAY, ORDINARY, Role

Activation = Literal["relu", "gelu"]


def activate(h: Tensor, activation: str | None) -> Tensor:
    """phi(h): the activation stands inside the layer and acts on space coordinates only."""
    if activation is None:
        return h
    return torch.relu(h) if activation == "relu" else F.gelu(h)


def check_layer(name: str, in_features: int, out_features: int, activation: str | None, k: float) -> None:
    """What every layer of this folder refuses at its door."""
    if in_features < 1 or out_features < 1:
        raise ValueError(f"{name}: features must be positive, got {in_features} -> {out_features}")
    if activation not in (None, "relu", "gelu"):
        raise ValueError(f"{name}: activation must be None, 'relu' or 'gelu', got {activation!r}")
    if not k > 0:
        raise ValueError(f"{name}: k must be positive (curvature is -1/k), got {k}")


def check_ambient(name: str, x: Tensor, in_features: int) -> None:
    if x.shape[-1] != in_features + 1:
        raise ValueError(
            f"{name}: expected ambient points [..., {in_features + 1}] (time first, dimension {in_features}), "
            f"got {list(x.shape)}"
        )


class LorentzLinear(nn.Module):
    """The general Lorentz layer y = (sqrt(k + |h|^2), h), h = phi(W x + b) with W over all n + 1 coordinates.

    Shapes: [..., in_features + 1] -> [..., out_features + 1], ambient points, time first. `k` of a call replaces the
    layer's own, for models that learn it. Parameters: out (in + 1), and out more with a bias.
    """

    roles: ClassVar[dict[str, Role]] = {"weight": ORDINARY, "bias": NO_DECAY}

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: Activation | None = None,
        k: float = 1.0,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        check_layer("LorentzLinear", in_features, out_features, activation, k)
        self.in_features, self.out_features, self.activation, self.k = in_features, out_features, activation, k
        self.weight = nn.Parameter(torch.empty(out_features, in_features + 1))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Xavier normal over all in + 1 columns, as `PolarLinear` has it; a zero bias."""
        nn.init.xavier_normal_(self.weight)
        if self.bias is not None:
            self.bias.zero_()

    def forward(self, x: Tensor, *, k: float | Tensor | None = None) -> Tensor:
        check_ambient("LorentzLinear", x, self.in_features)
        h = product(full(x), self.weight)
        with torch.autocast(x.device.type, enabled=False):
            if self.bias is not None:
                h = h + full(self.bias)
            return ambient.from_space(activate(h, self.activation), k=self.k if k is None else k)

    @torch.no_grad()
    def stretch(self, delta: float) -> None:
        """Multiply the map by e^delta; calibration moves the output outward or inward with it."""
        for parameter in self.parameters():
            parameter.mul_(math.exp(delta))

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, activation={self.activation}, k={self.k:g}"


class LorentzBoundedLinear(nn.Module):
    """The layer Chen et al. use in practice: a sigmoid sets the time, so the radius stays below a constant.

        y_0 = sqrt(k) + margin + e^s sigmoid(v . x + b_0),   y_s = sqrt(y_0^2 - k) h/|h|,   h = phi(W x + b)

    The published code has margin 0.1 (as "+ 1.1", which leaves the hyperboloid for k > 1.21; here it stands above
    sqrt(k)), a learned s that starts at 2.3 and a bias; HexFormer has margin 0.5, s = 2.3 fixed and no bias, where at
    k = 1 the radius lies in [0.96, 3.13]. Chen's code activates x before the product; here, as in HexFormer and in
    `PolarLinear`, the activation stands inside and the time row is spared. h = 0 points along the first axis.

    Shapes: [..., in_features + 1] -> [..., out_features + 1], ambient points, time first.
    Parameters: (out + 1)(in + 1) + 1, the first row of `weight` is v; out + 1 more with a bias.
    """

    roles: ClassVar[dict[str, Role]] = {"weight": ORDINARY, "bias": NO_DECAY, "scale": NO_DECAY}

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: Activation | None = None,
        k: float = 1.0,
        *,
        bias: bool = False,
        margin: float = 0.1,
        scale: float = 2.3,
        learn_scale: bool = True,
    ) -> None:
        super().__init__()
        check_layer("LorentzBoundedLinear", in_features, out_features, activation, k)
        if not margin > 0:
            raise ValueError(f"LorentzBoundedLinear: margin must be positive, got {margin}")
        self.in_features, self.out_features, self.activation, self.k = in_features, out_features, activation, k
        self.margin = margin
        self.weight = nn.Parameter(torch.empty(out_features + 1, in_features + 1))
        self.bias = nn.Parameter(torch.empty(out_features + 1)) if bias else None
        self.scale = nn.Parameter(torch.tensor(float(scale)), requires_grad=learn_scale)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Xavier normal over the whole matrix; a zero bias; the scale is left alone."""
        nn.init.xavier_normal_(self.weight)
        if self.bias is not None:
            self.bias.zero_()

    def forward(self, x: Tensor, *, k: float | Tensor | None = None) -> Tensor:
        check_ambient("LorentzBoundedLinear", x, self.in_features)
        h = product(full(x), self.weight)
        with torch.autocast(x.device.type, enabled=False):
            if self.bias is not None:
                h = h + full(self.bias)
            curvature = torch.as_tensor(self.k if k is None else k, dtype=h.dtype, device=h.device)
            time = curvature.sqrt() + self.margin + torch.exp(full(self.scale)) * torch.sigmoid(h[..., :1])
            _, direction = norm_and_direction(activate(h[..., 1:], self.activation))
            return torch.cat([time, torch.sqrt(time.square() - curvature) * direction], -1)

    @torch.no_grad()
    def stretch(self, delta: float) -> None:
        """Raise the ceiling: e^s grows by e^delta, which is all that moves this layer's output outward."""
        self.scale.add_(delta)

    @torch.no_grad()
    def steady(self, x: Tensor) -> None:
        """Scale the row of the gate down until its logits on `x` have size 1 on average, if they are larger.

        They grow with the coordinates of `x`, so with e^r: far out the sigmoid would be 0 or 1, and outputs would lie
        at the margin or at the ceiling but not in between.
        """
        size = product(full(x), self.weight[:1]).abs().mean()
        self.weight[0] /= size.clamp_min(1.0).to(self.weight.dtype)

    def largest_radius(self) -> float:
        """The ceiling sqrt(k) arcosh((sqrt(k) + margin + e^s)/sqrt(k)) of the output radius."""
        root = math.sqrt(self.k)
        return root * math.acosh((root + self.margin + math.exp(self.scale.item())) / root)

    def extra_repr(self) -> str:
        return (
            f"{self.in_features}, {self.out_features}, activation={self.activation}, k={self.k:g}, margin={self.margin}"
        )
