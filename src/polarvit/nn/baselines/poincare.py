"""The Poincare fully connected layer of HNN++ (Shimizu et al., 2021)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.nn.baselines.chen import check_layer
from polarvit.nn.precision import full, product
from polarvit.parameters import NO_DECAY, ORDINARY, Role


class PoincareLinear(nn.Module):
    """Signed distances to hyperplanes of the ball, taken as coordinates. With c = 1/k, lambda = 2/(1 - c|x|^2),
    R_j = 2 sqrt(c) r_j:

        v_j = 2 |z_j|/sqrt(c) asinh(lambda sqrt(c) <x, z_j/|z_j|> cosh R_j - (lambda - 1) sinh R_j)
        w = sinh(sqrt(c) v)/sqrt(c),   y = w/(1 + sqrt(1 + c|w|^2))

    v_j is 2 |z_j| times the signed distance from x to the hyperplane perpendicular to z_j at distance 2 r_j from the
    origin; y is the point whose signed distances to the coordinate hyperplanes are v_j.

    Shapes: [..., in_features] -> [..., out_features], points of the ball of radius sqrt(k). Like published code it
    pulls points back inside, to sqrt(k) (1 - edge), edge 4e-3 in float32, 1e-10 in float64. `k` of a call replaces the
    layer's own. Parameters: out (in + 1).
    """

    roles: ClassVar[dict[str, Role]] = {"weight": ORDINARY, "bias": NO_DECAY}

    def __init__(
        self, in_features: int, out_features: int, k: float = 1.0, *, init: Literal["eye", "normal"] = "normal"
    ) -> None:
        super().__init__()
        check_layer("PoincareLinear", in_features, out_features, None, k)
        if init not in ("eye", "normal"):
            raise ValueError(f"PoincareLinear: init must be 'eye' or 'normal', got {init!r}")
        self.in_features, self.out_features, self.k, self.init = in_features, out_features, k, init
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """z = 1/2 I or N(0, 1/(2 in out)), r = 0, as published."""
        if self.init == "eye":
            nn.init.eye_(self.weight).mul_(0.5)
        else:
            self.weight.normal_(0.0, (2 * self.in_features * self.out_features) ** -0.5)
        self.bias.zero_()

    def forward(self, x: Tensor, *, k: float | Tensor | None = None) -> Tensor:
        if x.shape[-1] != self.in_features:
            raise ValueError(
                f"PoincareLinear: expected points of the ball [..., {self.in_features}], got {list(x.shape)}"
            )
        with torch.autocast(x.device.type, enabled=False):
            weight = full(self.weight)
            norm = weight.norm(dim=-1)
            unit = weight / torch.where(norm > 0, norm, 1.0).unsqueeze(-1)
        along = product(full(x), unit)
        with torch.autocast(x.device.type, enabled=False):
            x = full(x)
            root = torch.as_tensor(self.k if k is None else k, dtype=x.dtype, device=x.device).sqrt()
            factor = 2 / (1 - (x / root).square().sum(-1, keepdim=True))
            shift = 2 * full(self.bias) / root
            inside = factor * along / root * torch.cosh(shift) - (factor - 1) * torch.sinh(shift)
            w = torch.sinh(2 * norm * torch.asinh(inside))
            y = root * w / (1 + torch.sqrt(1 + w.square().sum(-1, keepdim=True)))
            return inside_ball(y, root)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, k={self.k:g}"


def inside_ball(y: Tensor, root: Tensor) -> Tensor:
    """Points beyond sqrt(k) (1 - edge) moved back to it along their direction."""
    largest = root * (1 - (1e-10 if y.dtype == torch.float64 else 4e-3))
    norm = y.norm(dim=-1, keepdim=True)
    outside = norm > largest
    return torch.where(outside, y / torch.where(outside, norm, 1.0) * largest, y)
