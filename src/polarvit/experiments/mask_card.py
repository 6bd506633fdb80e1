"""The card of a segmentation model's packaged weights: data, recipe, Dice, IoU, distances, limits, licence.

Everything on it is read from the run or measured here, in strict float32, on every test image.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from polarvit.data.sources.mask_sets import MASK_SETS
from polarvit.experiments.weights_card import opened, written
from polarvit.models import VisionModel
from polarvit.models.packaging import full_tag
from polarvit.models.weights import WeightsError
from polarvit.provenance import provenance
from polarvit.training import MaskScores
from polarvit.training.distributed import place
from polarvit.training.recipe import Recipe
from polarvit.training.segmentation import ORDERS
from polarvit.training.sets import image_size, open_split
from polarvit.training.step import set_precision
from polarvit.training.task import make_augmenter
from polarvit.training.task import measure as score

TOLERANCE = 0.01
"""By how much Dice may differ from that at the end of training, where products were TF32."""
ABOUT = {
    "Kvasir-SEG": "Kvasir-SEG (Jha et al., 2020): 1,000 colonoscopy images of polyps with their outlines, given for "
    "research and education; ask its authors about any other use.",
    "PraNet collection (SANET)": "The PraNet collection: 1,450 training images of Kvasir-SEG and CVC-ClinicDB, 798 "
    "test images of these two, CVC-300, CVC-ColonDB and ETIS-LaribPolypDB. The sets have terms of their own.",
    "BUSI": "BUSI (Al-Dhabyani et al., 2020): 780 ultrasound images of breasts, normal, with benign and with "
    "malignant lesions. Many images are near copies of others, which a test split "
    "drawn at random does not keep apart.",
}
"""By what prepared data says it was made from."""


def measure(run: Path, data: str | None, device: torch.device) -> tuple[VisionModel, Recipe, dict[str, Any]]:
    """The model of a finished run, its recipe, and what was measured on every image of its test split."""
    model, recipe, metrics = opened(run, data)
    trained = metrics.get("test_scores")
    if recipe.data.test is None or trained is None:
        raise WeightsError(f"{run}: the run measured no test split (data.test), so its card would be empty")
    set_precision("fp32")
    with place(str(device)) as here:
        images = open_split(recipe, recipe.data.test, here.device, training=False)
        augmenter = make_augmenter(recipe, model.num_classes, image_size(recipe))
        scores = score(recipe, model.to(here.device), images, augmenter, here, thorough=True)
    assert isinstance(scores, MaskScores)
    model.to("cpu")
    if abs(scores.dice - trained["dice"]) > TOLERANCE:
        raise WeightsError(
            f"{run}: measured a Dice of {scores.dice:.3f}, the run ended with {trained['dice']:.3f}; "
            "are these its images?"
        )
    found = {**scores.to_dict(), "device": device.type, "source": source_of(recipe.data.path)}
    return model, recipe, {**found, "provenance": provenance(seed=0), "run": metrics}


def source_of(path: str) -> str:
    """What prepared data says it was made from; else the name of its folder."""
    meta = Path(path) / "meta.json"
    return json.loads(meta.read_text(encoding="utf-8"))["source"] if meta.is_file() else Path(path).name


def headline(found: dict[str, Any]) -> str:
    """What was measured, in a few words."""
    return f"Dice {found['dice']:.3f}, {found['image_dice']:.3f} per image, on {found['count']:,} images"


def card(model: VisionModel, tag: str, recipe: Recipe, found: dict[str, Any]) -> str:
    """The card as Markdown."""
    name, run = full_tag(model, tag), found["run"]
    data = ABOUT.get(found["source"], "")
    size, drop = recipe.watch.eval_batch, recipe.watch.drop_last
    last = ", the incomplete last batch left out" if drop else ""
    lines = [
        ("Dice, the benchmark's", f"**{found['dice']:.3f}**", f"soft, of batches of {size}, foreground and background"),
        (f"the same, {ORDERS} orders", f"{found['orders_mean']:.3f} ± {found['orders_std']:.3f}", "of the test images"),
        ("Dice per image", f"{found['image_dice']:.3f}", "of the foreground"),
        ("IoU per image", f"{found['iou']:.3f}", "of the foreground"),
        (
            "HD95",
            f"{found['hausdorff95']:.1f} px",
            f"{found['missed']} of {found['count']} count the diagonal: one mask empty",
        ),
    ]
    table = "\n".join("| " + " | ".join(line) + " |" for line in (("score", "value", "of"), ("---",) * 3, *lines))
    command = f"polarvit eval {name} --data ...{' --drop-last' if drop else ''}"
    results = (
        f"On all {found['count']:,} test images{last}, products in strict float32 (`{command}` prints it). At the end "
        f"of training, products in {run['product_precision']}: Dice {run['test_scores']['dice']:.3f}.\n\n{table}"
    )
    which = f"those of step {run['kept_step']:,}, the best in validation; the test images had no say"
    return written(
        model,
        name,
        recipe,
        run,
        data=data or f"`{found['source']}`, images with masks.",
        which=which,
        results=results,
        limits=limits(model, medical=found["source"] in {published.title for published in MASK_SETS.values()}),
    )


def limits(model: VisionModel, *, medical: bool) -> str:
    """What these weights cannot do."""
    height, width = model.config.image
    lines = [
        f"- An image is padded to a square and brought to {height} x {width} pixels; what is smaller than a pixel then "
        "is not found.",
        "- Trained and tested on one data set. What it does on images of another kind was not measured.",
        "- One training run: it says nothing about the spread over seeds.",
    ]
    if medical:
        lines.insert(0, "- **For research. Not a medical device: decide nothing about a patient by it.**")
    return "\n".join(lines)
