"""The roles a parameter can have, declared by module classes and found by walking modules.

An optimizer must know which parameters decay, where to, and which are points of hyperbolic space. Here a class says
so once, in its attribute `roles`; nothing is ever guessed from a parameter's name, and nothing is attached to the
tensor, so roles survive `deepcopy`, EMA copies, `state_dict`, DDP and pickling.

    class Gate(nn.Module):
        roles = {"gain": Role.NO_DECAY}
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from torch import Tensor, nn

__all__ = [
    "ANCHORED",
    "CURVATURE",
    "MANIFOLD",
    "NO_DECAY",
    "ORDINARY",
    "TABLE",
    "Role",
    "Tagged",
    "anchor",
    "walk",
]


class Role(Enum):
    """What an optimizer may do with a parameter."""

    ORDINARY = "ordinary"
    """Decays towards zero."""
    NO_DECAY = "no_decay"
    """Never decays: gains, biases, rates, temperatures."""
    TABLE = "table"
    """Position tables, and class tokens in ordinary coordinates: decay towards zero if the optimizer is told so."""
    ANCHORED = "anchored"
    """Decays towards its anchor, the value it started from, kept in the buffer `<name>_anchor`."""
    MANIFOLD = "manifold"
    """Points of hyperbolic space stored as v = r u [..., n], the tangent space at the origin."""
    CURVATURE = "curvature"
    """ln k of a learnable curvature: moves last, never decays."""


ORDINARY, NO_DECAY, ANCHORED, TABLE = Role.ORDINARY, Role.NO_DECAY, Role.ANCHORED, Role.TABLE
MANIFOLD, CURVATURE = Role.MANIFOLD, Role.CURVATURE

_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
_WITH_BIAS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)


class Tagged(NamedTuple):
    """One parameter of a model: its full name, the tensor, its role, and its anchor if it has one."""

    name: str
    parameter: nn.Parameter
    role: Role
    anchor: Tensor | None


def role_of(module: nn.Module, name: str) -> Role:
    """Role of the parameter `name` that `module` itself owns."""
    for cls in type(module).__mro__:
        declared = vars(cls).get("roles")
        if declared is not None and name in declared:
            return Role(declared[name])
    if isinstance(module, _NORMS) or (isinstance(module, _WITH_BIAS) and name == "bias"):
        return Role.NO_DECAY
    return Role.ORDINARY


def walk(model: nn.Module) -> Iterator[Tagged]:
    """Every parameter of `model` once, with its role. A shared parameter keeps the role of its first owner."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            role = role_of(module, name)
            full = f"{prefix}.{name}" if prefix else name
            kept = getattr(module, f"{name}_anchor", None)
            if role is Role.ANCHORED and kept is None:
                raise ValueError(
                    f"{full} is ANCHORED but its module has no buffer '{name}_anchor'; call anchor() on it"
                )
            yield Tagged(full, parameter, role, kept if role is Role.ANCHORED else None)


def anchor(module: nn.Module, *names: str) -> None:
    """Give the parameters `names` of `module` their anchors: persistent buffers holding the present values."""
    for name in names:
        module.register_buffer(f"{name}_anchor", getattr(module, name).detach().clone())
