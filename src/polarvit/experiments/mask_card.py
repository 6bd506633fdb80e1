"""The card of a segmentation model's packaged weights: data, recipe, Dice, IoU, distances, limits, licence.

Everything on it is read from the run or measured here, in strict float32, on every test image.
"""

from __future__ import annotations

import json
from dataclasses import replace
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
from polarvit.training.task import by_image, make_augmenter

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
MORE = {
    "PraNet collection (SANET)": "Three of the five sources of its test images have no image in training: scores "
    "differ from source to source, and are not measured apart here.",
    "BUSI": "Many images without a lesion get a mask all the same: look at Dice per image, and at HD95, beside Dice.",
}
"""What else their weights cannot do."""


def measure(run: Path, data: str | None, device: torch.device) -> tuple[VisionModel, Recipe, dict[str, Any]]:
    """The model of a finished run, its recipe, and what was measured on every image of its test split."""
    model, recipe, metrics = opened(run, data)
    trained = metrics.get("test_scores")
    if recipe.data.test is None or trained is None:
        raise WeightsError(f"{run}: the run measured no test split (data.test), so its card would be empty")
    strict = replace(recipe, train=replace(recipe.train, precision="fp32"))
    set_precision("fp32")
    with place(str(device)) as here:
        images = open_split(recipe, recipe.data.test, here.device, training=False)
        augmenter = make_augmenter(recipe, model.num_classes, image_size(recipe))
        scores = by_image(strict, model.to(here.device), images, augmenter, here, thorough=True).scores()
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
    name, run, source = full_tag(model, tag), found["run"], found["source"]
    size, rest = recipe.watch.eval_batch, left_out(recipe, found["count"])
    batches = f"soft, of batches of {size}, foreground and background" + (f"; the last {rest} left out" if rest else "")
    diagonal = f"{found['missed']} of {found['count']} count the diagonal: one mask empty"
    lines = [
        ("Dice, the benchmark's", f"**{found['dice']:.3f}**", batches),
        (f"the same, {ORDERS} orders", f"{found['orders_mean']:.3f} ± {found['orders_std']:.3f}", "of the test images"),
        ("Dice per image", f"{found['image_dice']:.3f}", "of the foreground"),
        ("IoU per image", f"{found['iou']:.3f}", "of the foreground"),
        ("HD95", f"{found['hausdorff95']:.1f} px", diagonal),
    ]
    table = "\n".join("| " + " | ".join(line) + " |" for line in (("score", "value", "of"), ("---",) * 3, *lines))
    options = [f"--batch {size}"] * (size != 8) + ["--drop-last"] * bool(rest)
    command = " ".join(["polarvit eval", name, "--data ...", *options])
    results = (
        f"On the {found['count']:,} test images, products in strict float32 (`{command}` prints it). At the end of "
        f"training, products in {run['product_precision']}: Dice {run['test_scores']['dice']:.3f}.\n\n{table}"
    )
    return written(
        model,
        name,
        recipe,
        run,
        data=ABOUT.get(source, f"`{source}`, images with masks."),
        results=results,
        limits=limits(model, source),
    )


def left_out(recipe: Recipe, count: int) -> int:
    """Images of an incomplete last batch that the Dice of batches leaves out; never of the only batch."""
    size = recipe.watch.eval_batch
    return count % size if recipe.watch.drop_last and count > size else 0


def limits(model: VisionModel, source: str) -> str:
    """What these weights cannot do."""
    height, width = model.config.image
    lines = [
        f"- An image is padded to a square and brought to {height} x {width} pixels; what is smaller than a pixel then "
        "is not found.",
        "- Measured on the test images of its own data set alone; what it does on others was not measured.",
        "- One training run: it says nothing about the spread over seeds.",
    ]
    if source in {published.title for published in MASK_SETS.values()}:
        lines = [
            "- **For research. Not a medical device: decide nothing about a patient by it.**",
            *lines,
            "- The licence below is that of the weights; the terms of the data stand above.",
        ]
    if source in MORE:
        lines.append(f"- {MORE[source]}")
    return "\n".join(lines)
