"""Rules for the output radius of a polar linear layer: strategies over one interface.

A rule receives what the layer knows of each point, ln(|h|/sqrt k), the rescaled input radius a, the input direction u
and the Klein vector chi = tanh(a) u, and returns the rescaled output radius. The paper's rule is `anchored`; the other
six are the ones it is compared with (paper, "Radius Rule of the Polar Fully Connected Layer").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from polarvit.kernels.linear import radius_of_log_sinh
from polarvit.nn.precision import full
from polarvit.parameters import ANCHORED, NO_DECAY, Role, anchor


@contextmanager
def aside() -> Iterator[None]:
    """Draws inside leave no trace outside: with one seed, models that differ in their rule have the same matrices."""
    with torch.random.fork_rng(devices=[]):
        seed = int(torch.randint(2**62, (), device="cpu"))
        torch.default_generator.manual_seed(seed)  # or they would be the numbers that the matrix gets next
        yield


class RadiusRule(nn.Module):
    """Interface: `forward(log_norm [...], a [...], u [..., n], klein [..., n]) -> a' [...]`.

    `shift(delta)` moves every output outward, for calibration: its log radius by `delta`, and the anchor with it, or
    where there is none (`shifts` is False) as the rule says.
    """

    bounded: ClassVar[bool] = False
    shifts: ClassVar[bool] = True
    """Whether there is a log radius, which `shift` moves by just its `delta`."""
    stretches: ClassVar[bool] = False
    """Whether the radius grows with |h|, from the start: calibration can then scale W instead."""
    affine: ClassVar[bool] = False
    """Whether l is beta ln(|h|/sqrt k) + lambda a + phi . chi + phi_0 with some constants: the fused layer takes those
    from `phi` and `scalars`."""
    phi: Tensor

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.in_features = in_features

    def forward(self, log_norm: Tensor, a: Tensor, u: Tensor, klein: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not define a radius")

    def shift(self, delta: float) -> None:
        raise TypeError(f"{type(self).__name__} does not define a shift")

    def scalars(self) -> tuple[Tensor, Tensor, Tensor]:
        """beta, lambda and phi_0 in full precision, of an `affine` rule."""
        raise TypeError(f"{type(self).__name__} is not affine")

    def bound_radius(self, radius: Tensor) -> Tensor:
        """The radius as it is; a rule with a bound cuts it off."""
        return radius


class AnchoredRadius(RadiusRule):
    """l = beta ln(|h|/sqrt k) + lambda a + phi . chi + phi_0, a' = asinh(e^l): the paper's rule.

    Starts at beta = 1 and zeros, where it is the general Lorentz layer, and decays back to it. `deviation` is the
    standard deviation of a random start away from the anchor.
    """

    affine = stretches = True
    roles: ClassVar[dict[str, Role]] = {"beta": ANCHORED, "slope": ANCHORED, "phi": ANCHORED, "phi0": ANCHORED}

    def __init__(self, in_features: int, deviation: float = 0.0) -> None:
        super().__init__(in_features)
        self.deviation = deviation
        self.beta = nn.Parameter(torch.ones(()))
        self.slope = nn.Parameter(torch.zeros(()))
        self.phi = nn.Parameter(torch.zeros(in_features))
        self.phi0 = nn.Parameter(torch.zeros(()))
        anchor(self, "beta", "slope", "phi", "phi0")
        self.phi0_anchor: Tensor
        if deviation:
            with torch.no_grad(), aside():
                for parameter in self.parameters():
                    parameter.add_(deviation * torch.randn_like(parameter))

    def forward(self, log_norm: Tensor, a: Tensor, u: Tensor, klein: Tensor) -> Tensor:
        beta, slope, phi0 = self.scalars()
        l = beta * log_norm + slope * a + (klein * full(self.phi)).sum(-1) + phi0
        return self.bound_radius(radius_of_log_sinh(l))

    def scalars(self) -> tuple[Tensor, Tensor, Tensor]:
        return full(self.beta), full(self.slope), full(self.phi0)

    @torch.no_grad()
    def shift(self, delta: float) -> None:
        self.phi0.add_(delta)
        self.phi0_anchor.add_(delta)


class FreePower(RadiusRule):
    """l = beta ln(|h|/sqrt k) + phi_0 from a random start, decaying to nothing."""

    affine = True
    roles: ClassVar[dict[str, Role]] = {"phi0": NO_DECAY}

    def __init__(self, in_features: int) -> None:
        super().__init__(in_features)
        with aside():
            self.beta = nn.Parameter(torch.randn(()))
            self.phi0 = nn.Parameter(torch.randn(()))
        self.register_buffer("phi", torch.zeros(in_features), persistent=False)

    def forward(self, log_norm: Tensor, a: Tensor, u: Tensor, klein: Tensor) -> Tensor:
        return radius_of_log_sinh(full(self.beta) * log_norm + full(self.phi0))

    def scalars(self) -> tuple[Tensor, Tensor, Tensor]:
        return full(self.beta), torch.zeros_like(full(self.beta)), full(self.phi0)

    @torch.no_grad()
    def shift(self, delta: float) -> None:
        self.phi0.add_(delta)


class AffineRadius(RadiusRule):
    """l = lambda a + phi . x + phi_0 from a random start, x the Klein vector or the unit direction."""

    roles: ClassVar[dict[str, Role]] = {"phi0": NO_DECAY}

    def __init__(self, in_features: int, klein: bool = True) -> None:
        super().__init__(in_features)
        self.klein = klein
        with aside():
            self.slope = nn.Parameter(torch.randn(()))
            self.phi = nn.Parameter(torch.randn(in_features))
            self.phi0 = nn.Parameter(torch.randn(()))

    def forward(self, log_norm: Tensor, a: Tensor, u: Tensor, klein: Tensor) -> Tensor:
        x = klein if self.klein else u
        return radius_of_log_sinh(full(self.slope) * a + (x * full(self.phi)).sum(-1) + full(self.phi0))

    @torch.no_grad()
    def shift(self, delta: float) -> None:
        self.phi0.add_(delta)


class SigmoidRadius(RadiusRule):
    """cosh a' = 1.1 + e^s sigmoid(v . x/x_0 + b): Chen's time coordinate, bounded by a learned constant (s = 2.3)."""

    bounded = True
    shifts = False
    roles: ClassVar[dict[str, Role]] = {"scale": NO_DECAY, "bias": NO_DECAY}

    def __init__(self, in_features: int) -> None:
        super().__init__(in_features)
        with aside():
            self.weight = nn.Parameter(torch.randn(in_features) / math.sqrt(in_features))
        self.bias = nn.Parameter(torch.zeros(()))
        self.scale = nn.Parameter(torch.full((), 2.3))

    def forward(self, log_norm: Tensor, a: Tensor, u: Tensor, klein: Tensor) -> Tensor:
        gate = torch.sigmoid((klein * full(self.weight)).sum(-1) + full(self.bias))
        return torch.acosh(1.1 + torch.exp(full(self.scale)) * gate)

    @torch.no_grad()
    def shift(self, delta: float) -> None:
        """Multiply what the gate opens to by e^delta."""
        self.scale.add_(delta)


class HardBound(AnchoredRadius):
    """The anchored rule cut off at a fixed radius, whose gradient vanishes beyond it.

    The paper does not give the bound. Beyond 5 lie 0.8 % of the outputs of layers of a calibrated Polar-ViT-Tiny on
    CIFAR-100, so the rule starts nearly as the anchored one.
    """

    bounded = True

    def __init__(self, in_features: int, bound: float = 5.0) -> None:
        super().__init__(in_features)
        self.bound = bound

    def bound_radius(self, radius: Tensor) -> Tensor:
        return radius.clamp_max(self.bound)


class LorentzRadius(RadiusRule):
    """a' = asinh(|h|/sqrt k): the general Lorentz layer, without any radius parameters.

    Calibration may need a scale, so the log radius has a fixed offset, kept in a buffer. It is the anchored rule with
    beta 1 and zeros, and runs as fast.
    """

    affine = stretches = True

    def __init__(self, in_features: int) -> None:
        super().__init__(in_features)
        self.register_buffer("offset", torch.zeros(()))
        self.register_buffer("phi", torch.zeros(in_features), persistent=False)
        self.offset: Tensor

    def forward(self, log_norm: Tensor, a: Tensor, u: Tensor, klein: Tensor) -> Tensor:
        return radius_of_log_sinh(log_norm + full(self.offset))

    def scalars(self) -> tuple[Tensor, Tensor, Tensor]:
        offset = full(self.offset)
        return torch.ones_like(offset), torch.zeros_like(offset), offset

    @torch.no_grad()
    def shift(self, delta: float) -> None:
        self.offset += delta


RADIUS_RULES: dict[str, Callable[[int], RadiusRule]] = {
    "anchored": AnchoredRadius,
    "anchored_0.1": lambda n: AnchoredRadius(n, deviation=0.1),
    "anchored_0.2": lambda n: AnchoredRadius(n, deviation=0.2),
    "free_power": FreePower,
    "affine_klein": AffineRadius,
    "affine_direction": lambda n: AffineRadius(n, klein=False),
    "sigmoid": SigmoidRadius,
    "hard_bound": HardBound,
    "lorentz": LorentzRadius,
}
"""Names that configs use; `lorentz` is the general layer of Chen et al. (2022), the row before Polar-FC."""


def radius_rule(rule: str | RadiusRule, in_features: int) -> RadiusRule:
    """A rule by name, or the given one."""
    if isinstance(rule, RadiusRule):
        return rule
    if rule not in RADIUS_RULES:
        raise ValueError(f"unknown radius rule '{rule}'; expected one of {', '.join(RADIUS_RULES)}")
    return RADIUS_RULES[rule](in_features)
