"""Residual connections x, f(x) -> x': the paper's polar boost and the two it is compared with."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from polarvit.geometry import PolarPoint, from_ambient, gyroadd, to_ambient
from polarvit.geometry.directions import across, norm_and_direction, scaled_polar
from polarvit.geometry.scaled import rescale, restore, sh
from polarvit.kernels.residual import boost_residual
from polarvit.kernels.step import step_residual
from polarvit.nn.linear import Begun
from polarvit.nn.precision import full, in_full_precision
from polarvit.parameters import NO_DECAY, Role


class Residual(nn.Module):
    """Interface: `forward(x [B, N], step [B, N]) -> [B, N]`; `drop_path` drops the step of whole samples."""

    def __init__(self, drop_path: float = 0.0) -> None:
        super().__init__()
        if not 0 <= drop_path < 1:
            raise ValueError(f"{type(self).__name__}: drop_path must be in [0, 1), got {drop_path}")
        self.drop_path = drop_path

    def kept(self, x: PolarPoint) -> Tensor | float:
        """Factor of the step: 1, or for each sample 0 or 1/(1 - drop_path) while training."""
        if not self.training or self.drop_path == 0:
            return 1.0
        shape = (x.shape[0], *(1,) * (x.radius.ndim - 1))
        return x.radius.new_empty(shape).bernoulli_(1 - self.drop_path) / (1 - self.drop_path)

    def forward(self, x: PolarPoint, step: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        raise TypeError(f"{type(self).__name__} does not define a residual")

    def extra_repr(self) -> str:
        return f"drop_path={self.drop_path}"


class BoostResidual(Residual):
    """Polar boost residual: a radial and a sideways boost of x by the step, radius centred over the tokens.

    With x = (a, u), step = (b, v), b_par = b (v.u), t = v - (v.u)u and a learned alpha:

        a' = a + alpha (b_par - mean over tokens of b_par)
        u' = direction of tanh(a) u + sinh(alpha b |t|) t/|t|

    The radial steps of a sample sum to zero, so the residual cannot drift outward and needs no cap: the mean signed
    radius of a sample is kept. A radius that would become negative passes through the origin, (|a'|, -u').
    """

    roles: ClassVar[dict[str, Role]] = {"alpha": NO_DECAY}

    def __init__(self, alpha: float = 0.1, drop_path: float = 0.0) -> None:
        super().__init__(drop_path)
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))

    @in_full_precision
    def forward(self, x: PolarPoint, step: PolarPoint | Begun, *, k: float | Tensor = 1.0) -> PolarPoint:
        """The moved points. A step that is only `Begun` is finished on the way, in one kernel where there is one."""
        kept = self.kept(x)
        factors = full(self.alpha), kept if isinstance(kept, Tensor) else None
        a = rescale(x.radius, k)
        if isinstance(step, Begun) and step.layer.steps:
            layer, c = step.layer, rescale(full(step.source.radius), k)
            radius, direction = step_residual(
                a, x.direction, step.product, c, full(layer.time_weight), *layer.rule.scalars(), *factors
            )
        else:
            point = step.finish(k=k) if isinstance(step, Begun) else step
            if point.direction.shape != x.direction.shape:
                shapes = f"{list(x.direction.shape)} and {list(point.direction.shape)}"
                raise ValueError(f"BoostResidual: expected points and steps of one shape, got {shapes}")
            radius, direction = boost_residual(a, x.direction, rescale(point.radius, k), point.direction, *factors)
        return PolarPoint(restore(radius, k), direction)


class ExactBoostResidual(Residual):
    """Two exact boosts, uncentred: by alpha b_par along u, then by alpha b |t| along the perpendicular direction.

    The residual of the ablation's third row: an isometry, but free to drift outward.
    """

    roles: ClassVar[dict[str, Role]] = {"alpha": NO_DECAY}

    def __init__(self, alpha: float = 0.1, drop_path: float = 0.0) -> None:
        super().__init__(drop_path)
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))

    @in_full_precision
    def forward(self, x: PolarPoint, step: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        size = full(self.alpha) * self.kept(x)
        u, v = x.direction, step.direction
        radius = x.radius + size * step.radius * (u * v).sum(-1)
        sign = torch.where(radius < 0, -torch.ones_like(radius), torch.ones_like(radius))
        moved = PolarPoint(radius * sign, u * sign.unsqueeze(-1))
        length, direction = norm_and_direction(across(u, v))
        stride = size * step.radius * length
        flip = torch.where(stride < 0, -torch.ones_like(stride), torch.ones_like(stride))
        return gyroadd(PolarPoint(stride * flip, direction * flip.unsqueeze(-1)), moved, k=k)


class AmbientBoostResidual(ExactBoostResidual):
    """The same two boosts as Lorentz transformations of ambient coordinates: the third row as it is computed there.

    Along a unit direction w by rapidity t, x_0' = cosh t x_0 + sinh t (w.x) and
    x' = x + ((cosh t - 1)(w.x) + sinh t x_0) w.
    """

    @in_full_precision
    def forward(self, x: PolarPoint, step: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        size = full(self.alpha) * self.kept(x)
        u, v = x.direction, step.direction
        b = size * rescale(step.radius, k)
        length, sideways = norm_and_direction(across(u, v))
        point = to_ambient(x, k=k)
        for direction, rapidity in ((u, b * (u * v).sum(-1)), (sideways, b * length)):
            point = _boosted(point, direction, rapidity.unsqueeze(-1))
        return from_ambient(point, k=k)


def _boosted(x: Tensor, direction: Tensor, rapidity: Tensor) -> Tensor:
    time, space = x[..., :1], x[..., 1:]
    along = (direction * space).sum(-1, keepdim=True)
    cosh, sinh = torch.cosh(rapidity), torch.sinh(rapidity)
    return torch.cat([cosh * time + sinh * along, space + ((cosh - 1) * along + sinh * time) * direction], -1)


class SpaceResidual(Residual):
    """Space coordinates are added and the time follows, as in earlier Lorentz transformers."""

    @in_full_precision
    def forward(self, x: PolarPoint, step: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
        a, b = rescale(x.radius, k), rescale(step.radius, k)
        scale = torch.maximum(a, b).detach()
        space = (sh(a) * torch.exp(a - scale)).unsqueeze(-1) * x.direction
        added = self.kept(x) * sh(b) * torch.exp(b - scale)
        a, direction = scaled_polar(space + added.unsqueeze(-1) * step.direction, scale)
        return PolarPoint(restore(a, k), direction)


def residual(name: str, alpha: float = 0.1, drop_path: float = 0.0) -> Residual:
    """A residual by the name configs use."""
    if name == "boost":
        return BoostResidual(alpha, drop_path)
    if name == "exact_boost":
        return ExactBoostResidual(alpha, drop_path)
    if name == "ambient_boost":
        return AmbientBoostResidual(alpha, drop_path)
    if name == "space":
        return SpaceResidual(drop_path)
    raise ValueError(f"unknown residual '{name}'; expected boost, exact_boost, ambient_boost or space")
