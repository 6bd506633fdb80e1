"""Training every system with its embeddings pushed outward: which diverge, which go on. Our own experiment.

Every layer and norm of a system starts at mean radius 2, 4, 8 or 12 (`push`), or where it starts by itself, and then it
trains for some hundred steps in strict float32 with the same data, seed and optimizer as all others, at the rate of its
own recipe. A system can go on without a NaN and still compute noise, so the difference of its logits from those of the
same weights in float64 is measured before and after, and how much logits differ between images at all. `--quick` does
it with narrow models on digits. A run that `stability.json` holds is not run again.
"""

from __future__ import annotations

import copy
import json
import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.sampler import BatchPlan
from polarvit.experiments.pictures import NoPictures
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, chosen, resolved
from polarvit.experiments.side_by_side import Unfinished
from polarvit.experiments.stability.push import push
from polarvit.experiments.stability.table import named, show, summary
from polarvit.models import VisionModel, calibrate
from polarvit.optim import cosine
from polarvit.provenance import provenance, write_json
from polarvit.tables import console
from polarvit.training import Recipe
from polarvit.training.build import CALIBRATION_IMAGES, build_model, build_optimizer
from polarvit.training.distributed import Place, place
from polarvit.training.recipe import Optim
from polarvit.training.sets import open_sets
from polarvit.training.step import TrainingStep, seed_step, set_precision

RADII = (None, 2.0, 4.0, 8.0, 12.0)
"""Where systems start; None: where they start by themselves."""
STEPS, TOY_STEPS = 500, 40
SYSTEMS = (
    Row("polar_vit_tiny", "Polar-ViT", "cifar100_polar_vit_tiny"),
    Row("vit_tiny", "Euclidean ViT", "cifar100_vit_tiny"),
    Row("lorentz_vit_tiny", "Lorentz ViT, ambient", "cifar100_lorentz_vit_tiny"),
    Row("hexformer_tiny", "HexFormer", "cifar100_hexformer_tiny"),
    Row("hexformer_hybrid_tiny", "HexFormer-Hybrid", "cifar100_hexformer_hybrid_tiny"),
    Row("lvit_tiny", "LViT", "cifar100_lvit_tiny"),
    Row("hvt_tiny", "HVT", "cifar100_hvt_tiny"),
)
POINTS = 100
"""Losses kept of a run."""


def run(settings: Settings) -> list[str]:
    """Run what is missing, print the table, write `stability.json` and its picture.

    The JSON is written after every run, with what it held before: further systems, radii and seeds join it.
    """
    settings = replace(settings, steps=settings.steps or (TOY_STEPS if settings.quick else STEPS))
    began, left = time.monotonic(), 0
    runs = {key_of(each): each for each in recorded(settings)}
    for seed in settings.all_seeds:
        for row in chosen(SYSTEMS, settings.only):
            for radius in RADII if row.name != "vit_tiny" else RADII[:1]:
                if (row.name, radius, seed) in runs:
                    continue
                if settings.minutes is not None and time.monotonic() - began > 60 * settings.minutes:
                    left += 1
                    continue
                found = one(row, radius, seed, settings)
                runs[key_of(found)] = found
                write(list(runs.values()), settings)
    if runs:
        whole = ordered(runs.values())
        write(whole, settings)
        show(SYSTEMS, whole, settings)
        draw_record(settings)
    if left:
        raise Unfinished(f"{left} runs are not done, the same command goes on with them")
    polar = [run for run in runs.values() if run["system"] == "polar_vit_tiny" and run["state"] == "diverged"]
    return [f"Polar-ViT, {named(run['radius'])}, seed {run['seed']} diverged" for run in polar]


def key_of(run: dict[str, Any]) -> tuple[str, float | None, int]:
    return run["system"], run["radius"], run["seed"]


def ordered(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seed by seed, in the order of the systems and radii."""
    places = {row.name: index for index, row in enumerate(SYSTEMS)}
    return sorted(runs, key=lambda run: (run["seed"], places[run["system"]], run["radius"] or 0))


def write(runs: Sequence[dict[str, Any]], settings: Settings) -> None:
    """The JSON as it stands."""
    runs = ordered(runs)
    record = facts(settings) | {
        "experiment": "stability",
        "command": settings.command("stability"),
        "provenance": provenance(seed=settings.seed, quick=settings.quick, product_precision="float32"),
        "seed": runs[0]["seed"],
        "radii": list(RADII),
        "chance": runs[0]["chance"],
        "runs": runs,
        "summary": summary(SYSTEMS, runs),
    }
    write_json(settings.file("stability"), record)


def facts(settings: Settings) -> dict[str, Any]:
    """What runs must share to stand in one table."""
    recipe = resolved(SYSTEMS[0], settings.seed, settings)
    length = {"steps": settings.steps, "batch_size": recipe.train.batch_size, "rates": "each recipe's"}
    return {"data": Path(recipe.data.path).name, "sets": list(settings.sets), **length}


def recorded(settings: Settings) -> list[dict[str, Any]]:
    """The runs in the JSON, if they are of this length and on this data."""
    path = settings.file("stability")
    if not path.is_file():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    wanted = facts(settings)
    if {key: record.get(key) for key in wanted} != wanted:
        return []
    found: list[dict[str, Any]] = record["runs"]
    return found


def draw_record(settings: Settings) -> None:
    """Draw what the JSON holds."""
    from polarvit.experiments.stability.picture import draw

    path = settings.file("stability")
    console().print(f"wrote {path}", soft_wrap=True)
    try:
        draw(path.with_suffix(".png"), json.loads(path.read_text(encoding="utf-8")))
        console().print(f"wrote {path.with_suffix('.png')}", soft_wrap=True)
    except NoPictures as error:
        console().print(str(error))


def one(row: Row, radius: float | None, seed: int, settings: Settings) -> dict[str, Any]:
    """One system from one radius: its record."""
    console().print(f"{row.label}, {named(radius)}, seed {seed}: {settings.steps} steps")
    recipe = even(resolved(row, seed, settings))
    with place(settings.device) as here:
        found = {"system": row.name, "label": row.label, "radius": radius, "seed": seed}
        found |= train_pushed(recipe, radius, here)
    return found | {"provenance": provenance(seed=seed, quick=settings.quick, product_precision="float32")}


def even(recipe: Recipe) -> Recipe:
    """The recipe with what all systems share here: optimizer, schedule, precision; nothing is clipped."""
    optim = Optim(lr=recipe.optim.lr, weight_decay=0.05, warmup=recipe.train.steps // 10)
    return replace(recipe, optim=optim, train=replace(recipe.train, precision="fp32", compile=False))


def train_pushed(recipe: Recipe, radius: float | None, here: Place) -> dict[str, Any]:
    """Push, train, and say how it went."""
    steps, seed, cuda = recipe.train.steps, recipe.train.seed, here.device.type == "cuda"
    set_precision("fp32")
    data = open_sets(recipe, here.device)
    plan = BatchPlan(len(data.train), recipe.train.batch_size, seed)
    model = build_model(recipe, data, plan, here, calibrated=False)
    augmenter = Augmenter(data.augmenter.config, len(data.classes), data.augmenter.image_size)
    first, _ = augmenter(data.train, plan, 0, device=here.device)
    if radius is not None:
        push(model, first[:CALIBRATION_IMAGES], radius)
    elif model.calibrated:
        calibrate(model, first[:CALIBRATION_IMAGES])
    before, (noise, _) = radius_of(model, first[:16]), against_float64(model, first[:16])
    step = TrainingStep(model, build_optimizer(recipe, model, capturable=cuda), here, precision="fp32", graph=cuda)
    losses: list[float] = []
    waiting: list[torch.Tensor] = []
    for index in range(steps):
        seed_step(seed, index)
        images, targets = data.augmenter(data.train, plan, index, 0, 1, here.device)
        optim = recipe.optim
        lr = cosine(index, steps=steps, lr=optim.lr, warmup=optim.warmup, start=optim.warmup_lr, floor=optim.final_lr)
        waiting.append(step(images, targets, lr).detach().clone())
        if len(waiting) == 25 or index == steps - 1:
            losses += torch.stack(waiting).tolist()
            waiting = []
            if not math.isfinite(losses[-1]):
                break
    alive, chance = math.isfinite(losses[-1]), math.log(len(data.classes))
    noise_after, spread_after = against_float64(model, first[:16]) if alive else (None, None)
    return judge(losses, chance) | {
        "radius_before": before,
        "radius_after": radius_of(model, first[:16]) if alive else None,
        "noise_before": noise,
        "noise_after": noise_after,
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
