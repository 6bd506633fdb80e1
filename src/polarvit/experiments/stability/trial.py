"""One run: a system pushed to a radius, trained, and judged by its losses."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.sampler import BatchPlan
from polarvit.experiments.stability.push import push
from polarvit.models import VisionModel, calibrate
from polarvit.optim import cosine
from polarvit.training import Recipe
from polarvit.training.build import CALIBRATION_IMAGES, build_model, build_optimizer
from polarvit.training.distributed import Place
from polarvit.training.recipe import Optim, Precision
from polarvit.training.sets import open_sets
from polarvit.training.step import TrainingStep, seed_step, set_precision, soft_cross_entropy

POINTS = 100
"""Losses kept of a run."""


def even(recipe: Recipe, precision: Precision) -> Recipe:
    """The recipe with what all systems share here: optimizer, schedule; nothing is clipped."""
    optim = Optim(lr=recipe.optim.lr, weight_decay=0.05, warmup=recipe.train.steps // 10)
    return replace(recipe, optim=optim, train=replace(recipe.train, precision=precision, compile=False))


def train_pushed(recipe: Recipe, radius: float | None, here: Place) -> dict[str, Any]:
    """Push, train, and say how it went.

    A push is computed in float64, where it is no noise, and rounded to float32: twins start from the same weights.
    """
    steps, seed, cuda = recipe.train.steps, recipe.train.seed, here.device.type == "cuda"
    precision, optim = recipe.train.precision, recipe.optim
    dtype = torch.float64 if precision == "fp64" else torch.float32
    set_precision(precision)
    data = open_sets(recipe, here.device)
    plan = BatchPlan(len(data.train), recipe.train.batch_size, seed)
    model = build_model(recipe, data, plan, here, calibrated=False)
    augmenter = Augmenter(data.augmenter.config, len(data.classes), data.augmenter.image_size)
    first, _ = augmenter(data.train, plan, 0, device=here.device)
    if radius is not None:
        push(model.double(), first[:CALIBRATION_IMAGES].double(), radius)
        model.float().to(dtype)
    elif model.calibrated:
        calibrate(model, first[:CALIBRATION_IMAGES].to(dtype))
    seen = first[:16].to(dtype)
    batch = tuple(x.to(dtype) for x in data.augmenter(data.train, plan, 0, 0, 1, here.device))
    before, (noise, _), wrong = radius_of(model, seen), against_float64(model, seen), gradient_noise(model, *batch)
    step = TrainingStep(model, build_optimizer(recipe, model, capturable=cuda), here, precision=precision, graph=cuda)
    losses: list[float] = []
    waiting: list[torch.Tensor] = []
    for index in range(steps):
        seed_step(seed, index)
        images, targets = data.augmenter(data.train, plan, index, 0, 1, here.device)
        lr = cosine(index, steps=steps, lr=optim.lr, warmup=optim.warmup, start=optim.warmup_lr, floor=optim.final_lr)
        waiting.append(step(images.to(dtype), targets.to(dtype), lr).detach().clone())
        if len(waiting) == 25 or index == steps - 1:
            losses += torch.stack(waiting).tolist()
            waiting = []
            if not math.isfinite(losses[-1]):
                break
    alive, chance = math.isfinite(losses[-1]), math.log(len(data.classes))
    noise_after, spread_after = against_float64(model, seen) if alive else (None, None)
    wrong_after = gradient_noise(model, *batch) if alive else None
    return judge(losses, chance) | {
        "radius_before": before,
        "radius_after": radius_of(model, seen) if alive else None,
        "noise_before": noise,
        "noise_after": noise_after,
        "gradient_noise_before": wrong,
        "gradient_noise_after": wrong_after,
        "spread_after": spread_after,
        "lr": recipe.optim.lr,
        "parameters": model.count(),
        "chance": chance,
    }


def radius_of(model: VisionModel, images: torch.Tensor) -> float | None:
    """Mean radius of the tokens over all blocks; None if not a number."""
    return finite(model.trace(images).mean.mean())


@torch.no_grad()
def against_float64(model: VisionModel, images: torch.Tensor) -> tuple[float | None, float | None]:
    """(noise, spread) of logits, None where not a number; both by those of the same weights in float64.

    Noise: |float32 - float64| over how much the latter differ between images. Spread: that difference over their size.
    """
    true = copy.deepcopy(model).eval().double()(images.double())
    was_training = model.training
    found = model.eval()(images).double()
    model.train(was_training)
    between = (true - true.mean(0)).norm()
    noise = (found - true).norm() / between.clamp_min(1e-30)
    spread = between / (true - true.mean()).norm().clamp_min(1e-30)
    return finite(noise), finite(spread)


def gradient_noise(model: VisionModel, images: torch.Tensor, targets: torch.Tensor) -> float | None:
    """|g - g64| / |g64| of the whole gradient, g64 that of the same weights in float64; None where not a number."""
    found = gradient_of(copy.deepcopy(model), images, targets)
    true = gradient_of(copy.deepcopy(model).double(), images.double(), targets.double())
    return finite((found - true).norm() / true.norm().clamp_min(1e-300))


def gradient_of(model: VisionModel, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The gradient of the loss by all parameters, one vector in float64; nothing is dropped."""
    model.zero_grad()
    soft_cross_entropy(model.eval()(images), targets).backward()
    return torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None])


def finite(value: torch.Tensor) -> float | None:
    """The number, or None."""
    return value.item() if torch.isfinite(value) else None


def judge(losses: Sequence[float], chance: float) -> dict[str, Any]:
    """`diverged` (a loss is not a number), `learns` (it ends 2 % below start and chance), or `goes on` without that."""
    bad = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
    share = max(1, len(losses) // 20)
    start, end = statistics.fmean(losses[:share]), statistics.fmean(losses[-share:])
    state = "diverged" if bad is not None else "learns" if end < 0.98 * min(start, chance) else "goes on"
    every = max(1, len(losses) // POINTS)
    kept = [(i + 1, losses[i]) for i in range(0, len(losses), every) if bad is None or i <= bad]
    if bad is not None and (not kept or kept[-1][0] != bad + 1):
        kept.append((bad + 1, losses[bad]))
    plain = [[i, loss if math.isfinite(loss) else None] for i, loss in kept]
    return {
        "state": state,
        "diverged_at": None if bad is None else bad + 1,
        "first_loss": start if math.isfinite(start) else None,
        "last_loss": end if math.isfinite(end) else None,
        "losses": plain,
    }
