"""Checks that read data. They synchronise and may raise, so they run only when asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.geometry.door import check_curvature, check_pair, need_point
from polarvit.geometry.points import PolarPoint


def validate(point: PolarPoint, *, k: float | Tensor = 1.0) -> PolarPoint:
    """Return `point` if it is one: unit directions, radii >= 0, everything finite, k > 0; raise `ValueError` if not.

    Directions may be off unit length by a few roundings of their dtype.
    """
    need_point("validate", "point", point)
    check_pair("validate", "point", *point, ("radius", "direction"), [])
    check_curvature("validate", k)
    _check_positive_curvature("validate", k)
    for name, x in (("radius", point.radius), ("direction", point.direction)):
        _check_all("validate", f"point.{name}", x, torch.isfinite(x), "finite")
    _check_all("validate", "point.radius", point.radius, point.radius >= 0, "non-negative")
    length = point.direction.to(torch.float64).norm(dim=-1)
    slack = 8 * torch.finfo(point.direction.dtype).eps
    _check_all("validate", "|point.direction|", length, (length - 1).abs() <= slack, f"1 to within {slack:.1e}")
    return point


def check_finite(title: str, name: str, x: Tensor, k: float | Tensor) -> None:
    _check_positive_curvature(title, k)
    _check_all(title, name, x, torch.isfinite(x), "finite")


def check_inside(title: str, name: str, x: Tensor, k: float | Tensor, *, ball: bool) -> None:
    """Inside the ball of radius sqrt(k) (`ball`) or 1 (Klein)."""
    check_finite(title, name, x, k)
    length, limit = x.double().norm(dim=-1), float(k) ** 0.5 if ball else 1.0
    _check_all(title, f"|{name}|", length, length < limit, f"less than {limit:g}")


def check_on_sheet(title: str, x: Tensor, k: float | Tensor) -> None:
    """The time coordinate is sqrt(k + |x_s|^2) to a few roundings."""
    check_finite(title, "x", x, k)
    wanted = (float(k) + x[..., 1:].double().square().sum(-1)).sqrt()
    slack = 8 * torch.finfo(x.dtype).eps
    _check_all(title, "x[..., 0]", x[..., 0], (x[..., 0] - wanted).abs() <= slack * wanted, "sqrt(k + |x[..., 1:]|^2)")


def _check_positive_curvature(title: str, k: float | Tensor) -> None:
    if not float(k) > 0:
        raise ValueError(f"{title}: k must be positive (curvature is -1/k), got {float(k)}")


def _check_all(title: str, name: str, values: Tensor, good: Tensor, wanted: str) -> None:
    if not bool(good.all()):
        bad = ~good
        first = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"{title}: {name} must be {wanted}; {int(bad.sum())} of {values.numel()} are not, "
            f"first at {list(first)}: {values[first].item():.10g}"
        )
