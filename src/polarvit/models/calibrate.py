"""Calibration on a first batch: every layer and every head starts at a stated radius.

The paper calibrates "the scale of every layer and the radius gain of each attention head" so that compared models start
at the same radius; it does not say which. Here the target is the config's `target_radius`, by default the radius
sqrt(k) asinh(sqrt(n/k)) that a gyro layer norm of the same width gives, n the layer's or head's width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from polarvit.geometry import PolarPoint
from polarvit.kernels.linear import radius_of_log_sinh
from polarvit.models.base import VisionModel
from polarvit.models.polar_vit import PolarViT
from polarvit.models.stream import StreamModel
from polarvit.nn import PolarAttention, PolarLinear

FLAT = 1e-3
"""A radius that grows by less than this when a layer is stretched by a factor e has come to its end."""


def target(config_target: float | None, width: int, k: float) -> float:
    """Radius to start at for points of this dimension."""
    return config_target if config_target is not None else math.sqrt(k) * math.asinh(math.sqrt(width / k))


def calibrate(model: VisionModel, images: Tensor) -> dict[str, float]:
    """Run one batch and bring every layer to the target radius; returns the mean radius each layer reached."""
    if isinstance(model, PolarViT):
        return _calibrate_polar(model, images)
    if isinstance(model, StreamModel):
        return stretch_layers(model, images)
    raise TypeError(f"calibrate: only hyperbolic models have radii to calibrate, got {type(model).__name__}")


@torch.no_grad()
def stretch_layers(model: StreamModel, images: Tensor, norms: bool = False) -> dict[str, float]:
    """Calibrate a system in its own coordinates: every layer with a `stretch(delta)` is stretched to the target.

    Layers are met in the order of the forward pass. A layer with a bounded radius reaches what its bounds allow and is
    stretched no further than that takes. `norms` takes the normalisations along, which otherwise keep their radius, and
    layers with a gate keep it open (`steady`): all of a model is then moved outward.
    """
    goal, reached = model.config.target_radius, dict[str, float]()

    def meet(name: str) -> Any:
        def hook(layer: Any, args: Any, out: Tensor) -> Tensor:
            if norms and hasattr(layer, "steady"):
                layer.steady(*args)
            width = out.shape[-1] - (model.as_points(out).dim != out.shape[-1])
            wanted = target(goal, width, model.k)
            out, reached[name] = _bring(layer.stretch, lambda: layer.forward(*args), model.as_points, wanted)
            return out

        return hook

    kinds = [
        (n, m) for n, m in model.named_modules() if hasattr(m, "stretch") and (norms or hasattr(m, "out_features"))
    ]
    hooks = [module.register_forward_hook(meet(name)) for name, module in kinds]
    try:
        with model.observed():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return reached


def _bring(
    move: Callable[[float], None], run: Callable[[], Any], points: Callable[[Any], Any], wanted: float
) -> tuple[Any, float]:
    """`move` a layer until the mean radius of `points(run())` is `wanted` or at its end; returns output and radius."""
    at, out = 0.0, None

    def stretched(stretch: float) -> float:
        nonlocal at, out
        move(stretch - at)
        at, out = stretch, run()
        return points(out).radius.mean().item()

    found = _stretch(stretched, wanted)
    return out, found


def _stretch(radius: Callable[[float], float], wanted: float) -> float:
    """Call `radius(stretch)`, which grows with the stretch, until it is `wanted` or at its end; returns the last."""
    low, high, at, found, short = -30.0, 30.0, 0.0, radius(0.0), True
    for turn in range(60):
        if math.isclose(found, wanted, rel_tol=1e-4):
            break
        low, high = (at, high) if found < wanted else (low, at)
        step = math.log(max(math.sinh(min(wanted, 80.0)), 1e-9) / max(math.sinh(min(found, 80.0)), 1e-9))
        # as if sinh of the radius grew like e^stretch; every second turn halves the bracket, where it does not
        following = at + step if turn % 2 == 0 and low < at + step < high else 0.5 * (low + high)
        before, was = found, at
        at, found = following, radius(following)
        short = short and before < wanted and found < wanted  # a radius has a lower end too, from which it can go up
        if short and found - before < FLAT * (at - was):
            reachable = radius(high) >= wanted  # if so, this is a plateau on the way
            if not reachable:
                return _stretch_to_end(radius, at, found - FLAT)
            short, found = False, radius(at)
    return found


def _stretch_to_end(radius: Callable[[float], float], far: float, end: float) -> float:
    """The smallest stretch from 0 to `far` that takes the radius to its end: none if it is there already."""
    low, high = 0.0, far
    if (found := radius(low)) >= end:
        return found
    for _ in range(20):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if radius(middle) >= end else (middle, high)
    return radius(high)


@torch.no_grad()
def _calibrate_polar(model: PolarViT, images: Tensor) -> dict[str, float]:
    """Run one batch, setting scales of W (or offsets) and head gains on the way so that mean radii meet the target.

    Layers are met in the order of the forward pass, each seeing the already calibrated ones before it. Anchors follow.
    Returns the mean radius of every layer and head group as measured after its adjustment.
    """
    goal, k = model.config.target_radius, float(model.k)
    reached: dict[str, float] = {}
    hooks: list[RemovableHandle | _Undo] = []

    def meet_layer(name: str) -> Any:
        def hook(layer: PolarLinear, args: Any, options: Any, out: PolarPoint) -> PolarPoint:
            wanted = target(goal, layer.out_features, k)
            scales = model.config.calibration == "weights" and layer.rule.stretches
            if scales or not layer.rule.shifts:
                move = layer.stretch if scales else layer.rule.shift
                out, reached[name] = _bring(move, lambda: layer.forward(*args, **options), lambda p: p, wanted)
                return out
            log_sinh = _log_sinh(out.radius / math.sqrt(k))
            delta = _offset(log_sinh, wanted / math.sqrt(k))
            layer.rule.shift(delta)
            radius = math.sqrt(k) * layer.rule.bound_radius(radius_of_log_sinh(log_sinh + delta))
            reached[name] = radius.mean().item()
            return PolarPoint(radius.to(out.radius.dtype), out.direction)

        return hook

    for name, module in model.named_modules():
        if isinstance(module, PolarLinear):
            hooks.append(module.register_forward_hook(meet_layer(name), with_kwargs=True))
        elif isinstance(module, PolarAttention):
            hooks.append(_meet_heads(name, module, goal, k, reached))
    try:
        with model.observed():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return reached


class _Undo:
    """A handle like a hook's for a patched bound method."""

    def __init__(self, module: PolarAttention, name: str) -> None:
        self.module, self.name = module, name

    def remove(self) -> None:
        del self.module.__dict__[self.name]
        self.module.one_by_one = False


def _meet_heads(name: str, attention: PolarAttention, goal: float | None, k: float, reached: dict[str, float]) -> _Undo:
    """Set the gains of q, k and v heads as they are split for the first time."""
    split = attention.to_heads
    wanted = target(goal, attention.head_dim, k)

    def to_heads(x: PolarPoint, index: int, *, k: float | Tensor = 1.0) -> PolarPoint:
        heads = split(x, index, k=k)
        mean = heads.radius.mean(dim=(0, 2)).clamp_min(torch.finfo(heads.radius.dtype).tiny)
        attention.log_gain[index] += torch.log(wanted / mean).to(attention.log_gain.dtype)
        heads = split(x, index, k=k)
        reached[f"{name}.{('query', 'key', 'value')[index]}_heads"] = heads.radius.mean().item()
        return heads

    attention.__dict__["to_heads"] = to_heads
    attention.one_by_one = True
    return _Undo(attention, "to_heads")


def _log_sinh(a: Tensor) -> Tensor:
    a = a.double().clamp_min(1e-30)
    return a + torch.log(-0.5 * torch.expm1(-2 * a))


def _offset(log_sinh: Tensor, wanted: float) -> float:
    """The delta for which mean asinh(e^(l + delta)) = wanted, by bisection (the mean grows with delta)."""
    low, high = -60.0, 60.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        if radius_of_log_sinh(log_sinh + middle).mean().item() < wanted:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
