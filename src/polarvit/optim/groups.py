"""Parameter groups by role. Modules are walked; names are never read."""

from __future__ import annotations

from typing import Any

from torch import nn

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
    the points: by default the model's own, learnable or not.
    """
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
    if len(tagged[Role.CURVATURE]) > 1:
        names = ", ".join(item.name for item in tagged[Role.CURVATURE])
        raise ValueError(f"param_groups: a model has one learnable curvature, found {names}")
    if k is not None:
        curvature: Any = k
    elif tagged[Role.CURVATURE]:
        curvature = tagged[Role.CURVATURE][0].parameter
    else:
        curvature = float(getattr(model, "k", 1.0))
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
            group["curvature"] = curvature
        groups.append(group)
    return groups
