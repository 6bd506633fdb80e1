"""The door of every public geometry function: what it accepts, and in which precision it computes.

Only shapes, dtypes and Python numbers are looked at here. Nothing reads data, so nothing synchronises, breaks a
graph or fails under `vmap`; checks that must read data live in `validate`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from polarvit.geometry.points import PolarPoint, PolarTangent

P = ParamSpec("P")
T = TypeVar("T")

NARROW = (torch.bfloat16, torch.float16)
"""Storage types that are computed in float32 and rounded once at the end."""


def geometric(function: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments of `function` and compute narrow floats in float32.

    Raises `ValueError` naming the function, the argument, its value and what was expected.
    """
    names = tuple(inspect.signature(function).parameters)
    title = function.__name__

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        named = [*zip(names, args, strict=False), *kwargs.items()]
        dtypes: list[torch.dtype] = []
        for name, value in named:
            if name == "k":
                check_curvature(title, value)
            else:
                collect(title, name, value, dtypes)
        if not any(dtype in NARROW for dtype in dtypes):
            return function(*args, **kwargs)
        result = function(*[widen(x) for x in args], **{n: widen(x) for n, x in kwargs.items()})
        return narrow(result, functools.reduce(torch.promote_types, dtypes))

    return wrapper


def check_curvature(title: str, k: Any) -> None:
    """`k` is a positive number or a 0-dim floating tensor (whose value is read only by `validate`)."""
    if isinstance(k, Tensor):
        if k.ndim != 0 or not k.is_floating_point():
            raise ValueError(
                f"{title}: k must be a number or a 0-dim floating tensor, got shape {list(k.shape)} {k.dtype}"
            )
    elif isinstance(k, bool) or not isinstance(k, int | float):
        raise ValueError(f"{title}: k must be a number or a 0-dim floating tensor, got {type(k).__name__} {k!r}")
    elif not (k > 0 and math.isfinite(k)):
        raise ValueError(f"{title}: k must be positive and finite (curvature is -1/k), got {k!r}")


def collect(title: str, name: str, value: Any, dtypes: list[torch.dtype]) -> None:
    """Check one argument and note the dtypes of its tensors."""
    if isinstance(value, PolarPoint):
        check_pair(title, name, value.radius, value.direction, ("radius", "direction"), dtypes)
    elif isinstance(value, PolarTangent):
        check_pair(title, name, value.radial, value.perpendicular, ("radial", "perpendicular"), dtypes)
    elif isinstance(value, Tensor):
        check_floating(title, name, value)
        dtypes.append(value.dtype)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            collect(title, f"{name}[{index}]", item, dtypes)


def check_pair(title: str, name: str, one: Any, many: Any, fields: tuple[str, str], dtypes: list[torch.dtype]) -> None:
    for field, value in zip(fields, (one, many), strict=True):
        if not isinstance(value, Tensor):
            raise ValueError(f"{title}: {name}.{field} must be a tensor, got {type(value).__name__}")
        check_floating(title, f"{name}.{field}", value)
        dtypes.append(value.dtype)
    if many.ndim == 0 or many.shape[:-1] != one.shape or many.shape[-1] == 0:
        raise ValueError(
            f"{title}: {name}.{fields[1]} must have shape {[*one.shape, 'n']} with n >= 1 to match "
            f"{name}.{fields[0]}, got {list(many.shape)}"
        )


def check_floating(title: str, name: str, value: Tensor) -> None:
    if not value.is_floating_point():
        raise ValueError(f"{title}: {name} must be a floating tensor, got {value.dtype}; call .float() first")


def need_point(title: str, name: str, value: Any) -> None:
    """Raise unless `value` is a `PolarPoint`."""
    if not isinstance(value, PolarPoint):
        raise ValueError(f"{title}: {name} must be a PolarPoint, got {type(value).__name__}")


def need_tangent(title: str, name: str, value: Any) -> None:
    """Raise unless `value` is a `PolarTangent`."""
    if not isinstance(value, PolarTangent):
        raise ValueError(f"{title}: {name} must be a PolarTangent, got {type(value).__name__}")


def need_tensor(title: str, name: str, value: Any) -> None:
    """Raise unless `value` is a tensor with a last axis."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{title}: {name} must be a tensor, got {type(value).__name__}")
    if value.ndim == 0 or value.shape[-1] == 0:
        raise ValueError(f"{title}: {name} must have shape [..., n] with n >= 1, got {list(value.shape)}")


def need_same_space(title: str, p: PolarPoint, q: PolarPoint, names: tuple[str, str] = ("p", "q")) -> None:
    """Raise unless both points live in the same dimension and their batches broadcast."""
    for name, value in zip(names, (p, q), strict=True):
        need_point(title, name, value)
    need_same_dim(title, p, q, names)
    need_broadcast(title, p.shape, q.shape, names)


def need_same_dim(title: str, p: PolarPoint, q: PolarPoint, names: tuple[str, str] = ("p", "q")) -> None:
    """Raise unless both points live in the same dimension."""
    if p.dim != q.dim:
        raise ValueError(f"{title}: {names[0]} has dimension {p.dim}, {names[1]} has dimension {q.dim}; must be equal")


def need_broadcast(title: str, one: torch.Size, two: torch.Size, names: tuple[str, str]) -> None:
    """Raise unless two batch shapes broadcast."""
    for x, y in zip(reversed(one), reversed(two), strict=False):
        if x != y and x != 1 and y != 1:
            raise ValueError(
                f"{title}: batch shapes of {names[0]} {list(one)} and {names[1]} {list(two)} do not broadcast"
            )


def need_axes(title: str, axes: Any, n: int, least: int) -> tuple[int, ...]:
    """Distinct 0-based space axes of an n-dimensional space, at least `least` of them."""
    wanted = f"{least} or more distinct space axes between 0 and {n - 1}"
    if not isinstance(axes, tuple | list) or not all(isinstance(axis, int) for axis in axes):
        raise ValueError(f"{title}: axes must be {wanted}, got {axes!r}")
    if len(axes) < least or len(set(axes)) != len(axes) or not all(0 <= axis < n for axis in axes):
        raise ValueError(f"{title}: axes must be {wanted}, got {tuple(axes)}")
    return tuple(axes)


def need_whole(title: str, name: str, value: Any) -> int:
    """Raise unless `value` is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{title}: {name} must be a positive integer, got {value!r}")
    return value


def need_frame(title: str, p: PolarPoint, xi: PolarTangent) -> None:
    """Raise unless `xi` can be a tangent vector at `p`."""
    need_point(title, "p", p)
    need_tangent(title, "xi", xi)
    if xi.perpendicular.shape[-1] != p.dim:
        raise ValueError(
            f"{title}: xi.perpendicular has dimension {xi.perpendicular.shape[-1]}, p has {p.dim}; must be equal"
        )
    need_broadcast(title, p.shape, xi.shape, ("p", "xi"))


def as_step(title: str, t: Any, like: Tensor) -> Tensor:
    """The step `t` as a tensor on the device of `like`; a number takes its dtype too."""
    if isinstance(t, Tensor):
        return t.to(device=like.device)
    if isinstance(t, bool) or not isinstance(t, int | float):
        raise ValueError(f"{title}: t must be a number or a floating tensor, got {type(t).__name__} {t!r}")
    return torch.full((), t, dtype=like.dtype, device=like.device)


def widen(value: Any) -> Any:
    """Narrow floats to float32, inside points, tangents and sequences too."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in NARROW else value
    if isinstance(value, PolarPoint | PolarTangent):
        return value.map(widen)
    if isinstance(value, list | tuple):
        return type(value)(widen(item) for item in value)
    return value


def narrow(value: Any, dtype: torch.dtype) -> Any:
    """The one rounding at the end."""
    if isinstance(value, Tensor):
        return value.to(dtype)
    if isinstance(value, PolarPoint | PolarTangent):
        return value.map(lambda x: x.to(dtype))
    return type(value)(narrow(item, dtype) for item in value)
