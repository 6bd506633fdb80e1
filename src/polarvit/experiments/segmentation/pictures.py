"""What the nets see: image, truth, Euclidean, polar, and how far from the origin the polar bottleneck puts each place.

What does distance from the origin mean in a segmentation? Beside the picture, the radii of the bottleneck are averaged
over the test set: inside the object, across its edge, outside it, and where the net is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from polarvit.data.sampler import SequentialPlan
from polarvit.data.square import padding_of
from polarvit.experiments.catalogue.segmentation import SETS
from polarvit.experiments.pictures import GREY, NoPictures, figure
from polarvit.experiments.registry import Settings
from polarvit.experiments.segmentation.rows import Trained, at, trained
from polarvit.provenance import provenance, write_json
from polarvit.tables import console, table
from polarvit.training import SettingsError
from polarvit.training.distributed import Place, place
from polarvit.training.overlays import evenly, overlay
from polarvit.training.segmentation import mask_logits
from polarvit.training.sets import image_size, open_split
from polarvit.training.step import products, set_precision
from polarvit.training.task import make_augmenter

NAME = "segmentation-pictures"
EXAMPLES = 3
INSIDE = 0.9
"""Share of a cell that is foreground from which on it counts as inside; outside below the rest."""
PLACES = ("inside", "edge", "outside", "right", "wrong", "padding")


@dataclass(frozen=True)
class Example:
    """One test image and what was made of it."""

    image: np.ndarray
    """uint8 [H, W, 3]"""
    truth: np.ndarray
    """bool [H, W]"""
    masks: dict[str, np.ndarray]
    """bool [H, W] of every net."""
    radius: np.ndarray
    """[h, w]: the polar bottleneck."""


def run(settings: Settings) -> list[str]:
    """A picture and a line of numbers for every set on which the polar and the Euclidean net were trained."""
    found = {
        key: nets
        for key in SETS
        if (nets := {net: one for net in ("euclidean", "polar") if (one := trained(net, key, settings))}).keys()
        == {"euclidean", "polar"}
    }
    if not found:
        raise SettingsError(f"no trained nets under {settings.runs}; run first: polarvit reproduce segmentation")
    record: dict[str, Any] = {}
    settings = at(settings)[1]
    with place(settings.device) as here:
        for key, nets in found.items():
            record[key] = {net: radii(one, here) for net, one in nets.items()}
            try:
                draw(examples(nets, here), settings.file(f"segmentation-{key}", "png"), SETS[key])
            except NoPictures as error:
                console().print(str(error))
        used = {products(one.recipe.train.precision, here.device) for nets in found.values() for one in nets.values()}
    write_json(
        settings.file(NAME),
        {
            "experiment": NAME,
            "command": settings.command(NAME),
            "provenance": provenance(
                seed=settings.seed, quick=settings.quick, product_precision=",".join(sorted(used))
            ),
            "summary": {key: sentence(nets["polar"]) for key, nets in record.items()},
            "sets": record,
        },
    )
    show(record)
    return []


@torch.no_grad()
def radii(one: Trained, here: Place) -> dict[str, float]:
    """Mean bottleneck radius (norm, of a Euclidean net) of cells inside, across the edge, outside; right and wrong.

    Cells that see nothing but what an image was padded with are counted apart.
    """
    sums = {name: [0.0, 0.0] for name in PLACES}
    for images, masks, model in batches(one, here):
        seen = model.trace(images)
        radius = seen.bottleneck
        share = F.adaptive_avg_pool2d((masks > 0).float()[:, None], radius.shape[-2:])[:, 0]
        missed = ((seen.logits.argmax(1) > 0) != (masks > 0)).float()
        error = F.adaptive_avg_pool2d(missed[:, None], radius.shape[-2:])[:, 0]
        real = F.adaptive_max_pool2d((~padding_of(images)).float()[:, None], radius.shape[-2:])[:, 0] > 0
        inside, outside, wrong = share >= INSIDE, share <= 1 - INSIDE, error > 0.5
        cells = {"inside": inside, "outside": outside, "edge": ~inside & ~outside, "wrong": wrong, "right": ~wrong}
        for name, chosen in {**{name: where & real for name, where in cells.items()}, "padding": ~real}.items():
            sums[name][0] += radius[chosen].double().sum().item()
            sums[name][1] += chosen.sum().item()
    return {name: total / count if count else float("nan") for name, (total, count) in sums.items()}


def batches(one: Trained, here: Place) -> Any:
    """(images, masks, model) of the test split, batch by batch."""
    recipe = one.recipe
    set_precision(recipe.train.precision)
    model: Any = one.model().to(here.device)
    assert recipe.data.test is not None
    split = open_split(recipe, recipe.data.test, here.device, training=False)
    augmenter = make_augmenter(recipe, model.num_classes, image_size(recipe))
    plan = SequentialPlan(len(split), recipe.watch.eval_batch)
    for step in range(plan.steps):
        yield *augmenter.evaluation_batch(split, plan, step, device=here.device), model


@torch.no_grad()
def examples(nets: dict[str, Trained], here: Place, count: int = EXAMPLES) -> list[Example]:
    """Some test images, evenly spaced among those with a foreground."""
    recipe = nets["polar"].recipe
    models: dict[str, Any] = {net: one.model().to(here.device) for net, one in nets.items()}
    assert recipe.data.test is not None
    split = open_split(recipe, recipe.data.test, here.device, training=False)
    augmenter = make_augmenter(recipe, 2, image_size(recipe))
    plan = SequentialPlan(len(split), 1)
    full = [i for i in range(len(split)) if augmenter.evaluation_batch(split, plan, i, device=here.device)[1].any()]
    found = []
    for place_ in evenly(len(full), count):
        x, mask = augmenter.evaluation_batch(split, plan, full[place_], device=here.device)
        masks = {net: (mask_logits(m, x, here.device).argmax(1)[0] > 0).cpu().numpy() for net, m in models.items()}
        radius = models["polar"].trace(x).bottleneck[0].cpu().numpy()
        found.append(
            Example(pixels(x[0], recipe.augment.mean, recipe.augment.std), mask[0].cpu().numpy() > 0, masks, radius)
        )
    return found


def pixels(image: Tensor, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """A normalised image [3, H, W] as uint8 [H, W, 3]."""
    plain = image.cpu() * torch.tensor(std).view(3, 1, 1) + torch.tensor(mean).view(3, 1, 1)
    return (plain * 255).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()


def draw(found: Sequence[Example], path: Path, title: str) -> None:
    """A row for each image: image, truth, Euclidean, polar, radius map."""
    names = ("image", "truth", "Euclidean", "polar", "polar bottleneck: radius")
    with figure(path, 11.5, 2.25 * len(found) + 0.3, len(names), rows=len(found), dpi=100, squeeze=False) as axes:
        for row, one in zip(axes, found, strict=True):
            tiles = [one.image, overlay(one.image, one.truth)]
            tiles += [overlay(one.image, one.masks[net], one.truth) for net in ("euclidean", "polar")]
            for ax, tile in zip(row, tiles, strict=False):
                ax.imshow(tile)
            side = one.image.shape[0]
            shown = row[-1].imshow(one.radius, cmap="viridis", extent=(0, side, side, 0), interpolation="nearest")
            row[-1].contour(
                np.arange(side) + 0.5, np.arange(side) + 0.5, one.truth, [0.5], colors="white", linewidths=1
            )
            row[-1].figure.colorbar(shown, ax=row[-1], fraction=0.046, pad=0.03)
            for ax in row:
                ax.set_axis_off()
        for ax, name in zip(axes[0], names, strict=True):
            ax.set_title(name, fontsize=10.5)
        axes[0][0].set_title(f"{title}: image", fontsize=10.5)
        legend = "green: found    vermilion: only the net sees it    blue: missed    white line: the truth"
        axes[0][0].figure.supxlabel(legend, fontsize=9.5, color=GREY)


def sentence(found: dict[str, float]) -> str:
    """The numbers of a net in words."""
    return f"radius {found['inside']:.2f} inside, {found['edge']:.2f} at the edge, {found['outside']:.2f} outside"


def show(record: dict[str, Any]) -> None:
    """Print the mean radii."""
    rows = [
        [SETS[key], net, *(f"{found[name]:.3f}" if math.isfinite(found[name]) else "-" for name in PLACES)]
        for key, nets in record.items()
        for net, found in nets.items()
    ]
    heading = "Mean radius (of the Euclidean net: norm) at the bottleneck, by where the cell lies"
    console().print(table(heading, ["set", "net", *PLACES], rows, text=("net",)))
