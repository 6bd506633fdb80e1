"""The fully connected layer of FGG-LNN (van der Klis et al., 2026): outputs are distances to learned hyperplanes."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polarvit.geometry import ambient
from polarvit.nn.baselines.chen import Activation, activate, check_ambient, check_layer
from polarvit.nn.precision import full, product
from polarvit.parameters import NO_DECAY, ORDINARY, Role

LARGEST = 100.0
"""The published clamp on the argument of sinh and cosh; float32 overflows from 89 on."""
SMALLEST = 1e-10
"""The published floor under the length of a normal."""


class FGGLinear(nn.Module):
    """y = (sqrt(k + |y_s|^2), y_s), y_s = phi(V x) with one hyperplane for each output coordinate.

    With normal u_j [in] and offset b_j, A_j = b_j/(sqrt(k) |u_j|):

        V_j = (-|u_j| sinh A_j, cosh(A_j) u_j)

    V_j x is sqrt(k) |u_j| sinh of the signed distance, in units of sqrt(k), from x to the hyperplane that is
    perpendicular to u_j and lies at distance b_j/|u_j| from the origin: the asinh that would read the distance off and
    the sinh that would lift it to a coordinate cancel. (The published formula has curvature -k; here it is -1/k.)

    Shapes: [..., in_features + 1] -> [..., out_features + 1], ambient points, time first. `k` of a call replaces the
    layer's own. Parameters: out (in + 1).
    """

    roles: ClassVar[dict[str, Role]] = {"weight": ORDINARY, "bias": NO_DECAY}

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: Activation | None = None,
        k: float = 1.0,
        *,
        init: Literal["eye", "normal"] = "normal",
    ) -> None:
        super().__init__()
        check_layer("FGGLinear", in_features, out_features, activation, k)
        if init not in ("eye", "normal"):
            raise ValueError(f"FGGLinear: init must be 'eye' or 'normal', got {init!r}")
        self.in_features, self.out_features, self.activation, self.k = in_features, out_features, activation, k
        self.init = init
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Normals 1/2 I or N(0, 1/(in + out)), offsets 1/2, as published."""
        if self.init == "eye":
            nn.init.eye_(self.weight).mul_(0.5)
        else:
            self.weight.normal_(0.0, (self.in_features + self.out_features) ** -0.5)
        self.bias.fill_(0.5)

    def hyperplanes(self, k: float | Tensor) -> Tensor:
        """V [out, in + 1], so that V x needs no metric: the time column carries the minus sign."""
        weight, bias = full(self.weight), full(self.bias).unsqueeze(-1)
        norm = weight.norm(dim=-1, keepdim=True).clamp_min(SMALLEST)
        root = torch.as_tensor(k, dtype=norm.dtype, device=norm.device).sqrt()
        shift = (bias / (root * norm)).clamp(-LARGEST, LARGEST)
        return torch.cat([-norm * torch.sinh(shift), torch.cosh(shift) * weight], -1)

    def forward(self, x: Tensor, *, k: float | Tensor | None = None) -> Tensor:
        check_ambient("FGGLinear", x, self.in_features)
        curvature = self.k if k is None else k
        with torch.autocast(x.device.type, enabled=False):
            planes = self.hyperplanes(curvature)
        h = product(full(x), planes)
        with torch.autocast(x.device.type, enabled=False):
            return ambient.from_space(activate(h, self.activation), k=curvature)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, activation={self.activation}, k={self.k:g}"
