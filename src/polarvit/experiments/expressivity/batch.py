"""Many runs of one layer at once: every target and seed trained by plain SGD, each clipped and stopped on its own.

The gradients of all runs come from one `vmap`, traced once into a plain graph (functorch costs thirty times as much as
the arithmetic for layers this small). A run that has arrived, or whose distance is no longer a number, stands still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from polarvit.experiments.expressivity.contestants import Contestant, Gap

ARRIVED = 0.1
"""A run has arrived when the distance to its target is below this."""


@dataclass(frozen=True)
class Runs:
    """What became of every run, by target and seed: iterations [T, S] (the limit if it never arrived), whether it
    arrived [T, S], the iteration at which it stopped being finite (0 if never), and its true distance at the end.
    `redrawn` counts dead starts.
    """

    iterations: Tensor
    arrived: Tensor
    broke: Tensor
    true_gap: Tensor
    redrawn: int


def alive(contestant: Contestant, layer: nn.Module) -> bool:
    """Whether the output points to the side of the target.

    A ReLU whose product starts below zero for the target's axis passes no gradient to it: such a start can never
    arrive, at any radius, whatever the layer.
    """
    here, ahead = (contestant.true_gap(layer, torch.tensor(t)) for t in (0.0, 1e-2))
    return bool(ahead < here - 1e-4)


def start(contestant: Contestant, seed: int) -> tuple[nn.Module, int]:
    """The first live layer drawn from `seed`, and how many dead ones were drawn before it."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for redrawn in range(100):
            layer = contestant.build()
            if alive(contestant, layer):
                return layer, redrawn
    raise RuntimeError(f"expressivity: no live start of {contestant.label} in 100 draws from seed {seed}")


def per_run(layer: nn.Module, gap: Gap) -> Callable[[dict[str, Tensor], dict[str, Tensor], Tensor], Tensor]:
    """The distance of one run as a function of its parameters, its buffers and its target."""

    def measure(parameters: dict[str, Tensor], buffers: dict[str, Tensor], target: Tensor) -> Tensor:
        return gap(lambda x: functional_call(layer, (parameters, buffers), (x,)), target)

    return measure


def gradients(layer: nn.Module, gap: Gap, *example: Any) -> Any:
    """(parameters, buffers, targets) -> (gradient of the squared distance, distance) for all runs, as a plain graph."""
    measure = per_run(layer, gap)

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], target: Tensor) -> tuple[Tensor, Tensor]:
        found = measure(parameters, buffers, target)
        return found.square(), found

    traced = make_fx(vmap(grad(loss, has_aux=True)))(*example)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def spread_over(factor: Tensor, values: Tensor) -> Tensor:
    """A factor for each run [R], shaped to multiply values [R, ...]."""
    return factor.view(-1, *[1] * (values.ndim - 1))


@torch.no_grad()
def race(
    contestant: Contestant, targets: list[float], seeds: list[int], dtype: torch.dtype, clip: float | None, limit: int
) -> Runs:
    """Train all runs together for at most `limit` iterations. `clip` is the largest gradient norm of a run."""
    drawn = [start(contestant, seed) for seed in seeds]
    layers = [drawn[i][0].to(dtype) for _ in targets for i in range(len(seeds))]
    goal = torch.tensor(targets, dtype=dtype).repeat_interleave(len(seeds))
    stacked, kept = stack_module_state(layers)
    learned = {name for name, value in layers[0].named_parameters() if value.requires_grad}
    parameters = {name: value.detach().clone() for name, value in stacked.items() if name in learned}
    fixed = {name: value for name, value in stacked.items() if name not in learned}
    buffers = {name: value.detach() for name, value in (kept | fixed).items()}
    step = gradients(layers[0], contestant.loss_gap, parameters, buffers, goal)

    iterations = torch.full((len(goal),), limit)
    broke, active = torch.zeros(len(goal), dtype=torch.long), torch.ones(len(goal), dtype=torch.bool)
    for count in range(1, limit + 1):
        slopes, gap = step(parameters, buffers, goal)
        near, lost = active & (gap < ARRIVED), active & ~gap.isfinite()
        iterations[near], broke[lost] = count, count
        active &= ~near & ~lost
        if not active.any():
            break
        size = torch.full_like(gap, contestant.lr)
        if clip is not None:
            norm = torch.stack([g.reshape(len(g), -1).square().sum(-1) for g in slopes.values()]).sum(0).sqrt()
            size = size * (clip / (norm + 1e-6)).clamp_max(1.0)
        for name, slope in slopes.items():
            moved = parameters[name] - spread_over(size, slope) * slope
            parameters[name] = torch.where(spread_over(active, slope), moved, parameters[name])

    end = vmap(per_run(layers[0], contestant.true_gap))(parameters, buffers, goal)
    shape = len(targets), len(seeds)
    arrived = ~active & (broke == 0)
    redrawn = sum(dead for _, dead in drawn)
    return Runs(iterations.view(shape), arrived.view(shape), broke.view(shape), end.view(shape), redrawn)
