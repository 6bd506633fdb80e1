"""Parameter groups by role. Modules are walked; names are never read."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from polarvit.parameters import Role, Tagged, walk


def param_groups(
    model: nn.Module,
    lr: float,
    weight_decay: float,
    *,
    k: float | None = None,
    decay_tables: bool = False,
    decay_gains: bool = False,
) -> list[dict[str, Any]]:
    """Groups for `RiemannianAdamW` (or, for a model without points, any PyTorch optimizer).

    Ordinary parameters decay to zero, ANCHORED ones to their anchors, MANIFOLD ones to the origin; gains, biases and
    rates do not decay unless `decay_gains`, position tables only with `decay_tables`. `k` is the curvature constant of
    the points: by default the one that the modules of the model have as their `k`, learnable or not, and 1 where none
    has any.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"param_groups: expected a model, got {type(model).__name__}; modules know the roles of their parameters, "
            "so give the model itself, not model.parameters()"
        )
    if not lr >= 0 or not weight_decay >= 0:
        raise ValueError(f"param_groups: lr and weight_decay must be non-negative, got {lr}, {weight_decay}")
    tagged: dict[Role, list[Tagged]] = {role: [] for role in Role}
    told = {
        Role.TABLE: Role.ORDINARY if decay_tables else Role.NO_DECAY,
        Role.NO_DECAY: Role.ORDINARY if decay_gains else Role.NO_DECAY,
    }
    for item in walk(model):
        if item.parameter.requires_grad:
            tagged[told.get(item.role, item.role)].append(item)
    groups = []
    for role, items in tagged.items():
        if not items:
            continue
        decays = role not in (Role.NO_DECAY, Role.CURVATURE)
        group: dict[str, Any] = {
            "params": [item.parameter for item in items],
            "lr": lr,
            "weight_decay": weight_decay if decays else 0.0,
            "role": role.value,
        }
        if role is Role.ANCHORED:
            group["anchors"] = [item.anchor for item in items]
        if role is Role.MANIFOLD:
            group["curvature"] = shared_curvature(model, tagged[Role.CURVATURE]) if k is None else k
        groups.append(group)
    return groups


def shared_curvature(model: nn.Module, learned: list[Tagged]) -> float | nn.Parameter:
    """The one k of all points of a model: the learned parameter, or the number on which those modules agree that hold
    points, in themselves or deeper. Elsewhere a `k` may be anything."""
    points = {id(item.parameter) for item in walk(model) if item.role is Role.MANIFOLD}
    holders = [each for each in model.modules() if any(id(p) in points for p in each.parameters())]
    with torch.enable_grad():  # a learned k is known by its gradient
        given = [k for k in (getattr(module, "k", None) for module in holders) if is_number(k)]
    told = sorted(float(k) for k in given if not (learned and isinstance(k, Tensor) and k.requires_grad))
    fixed = [k for i, k in enumerate(told) if i == 0 or not math.isclose(k, told[i - 1], rel_tol=1e-6)]
    found = [item.name for item in learned] + [f"k = {k:g}" for k in fixed]
    if len(found) > 1:
        raise ValueError(
            f"param_groups: points of one curvature were expected, found {', '.join(found)}; give each part of the "
            "model groups of its own, or say k"
        )
    return learned[0].parameter if learned else fixed[0] if fixed else 1.0


def is_number(k: Any) -> TypeGuard[float | Tensor]:
    """Whether an attribute `k` can be a curvature: elsewhere it may be a layer of keys, a switch or a table."""
    if isinstance(k, Tensor):
        return k.ndim == 0 and k.is_floating_point() and not k.is_meta
    return isinstance(k, int | float) and not isinstance(k, bool)
