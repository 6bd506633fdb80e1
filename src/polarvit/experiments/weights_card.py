"""The card of a classifier's packaged weights: data, recipe, accuracy, calibration, every class, limits, licence.

Everything on it is read from the run or measured here, in strict float32, on every image of its test split, or of the
validation split where the run had no other. That of segmentation models is in `mask_card`; what both have in common is
here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from polarvit.data.cifar100 import CLASSES as CIFAR100
from polarvit.experiments.reliability import reliability
from polarvit.experiments.report.collect import Seen
from polarvit.experiments.same_run import portable
from polarvit.experiments.seen import open_images, ready, see
from polarvit.models import VisionModel
from polarvit.models.model_card import model_card
from polarvit.models.packaging import full_tag
from polarvit.models.weights import WeightsError, load_pretrained
from polarvit.provenance import provenance
from polarvit.text import unmarked
from polarvit.training.recipe import Recipe, dump, load
from polarvit.training.step import set_precision

TOLERANCE = 0.5
"""Points of accuracy by which a measurement may differ from that at the end of training, where products were TF32."""
ABOUT_CIFAR100 = (
    "CIFAR-100 (Krizhevsky, 2009): 50,000 training and 10,000 test images of 32 x 32 pixels in 100 classes. Its images "
    "are a labelled part of the 80 Million Tiny Images, which were gathered from the web and withdrawn in 2020; the "
    "data set states no licence. The package holds none of its images."
)


def model_of(run: Path) -> VisionModel:
    """The model of a finished run, in float32."""
    for file in ("metrics.json", "recipe.yaml", "model/config.json"):
        if not (run / file).is_file():
            raise WeightsError(f"{run}: holds no finished run, there is no {file} in it")
    return load_pretrained(run / "model").float()


def opened(run: Path, data: str | None) -> tuple[VisionModel, Recipe, dict[str, Any]]:
    """The model of a finished run, its recipe with its data where it is now, and what its metrics.json holds."""
    recipe = load(run / "recipe.yaml")
    if data is not None:
        recipe = replace(recipe, data=replace(recipe.data, path=data))
    return model_of(run), recipe, json.loads((run / "metrics.json").read_text(encoding="utf-8"))


def measure(run: Path, data: str | None, device: torch.device) -> tuple[VisionModel, Recipe, dict[str, Any]]:
    """The model of a finished run, its recipe, and what was measured on every image of a split."""
    model, recipe, metrics = opened(run, data)
    split, trained = quoted(run, recipe, metrics)
    images = open_images(recipe.data.path, model, split)
    model.class_names = images.classes
    set_precision("fp32")
    ready(model, device, len(images))
    seen = see(model, images, device)
    model.to("cpu").forget_compiled()
    found = facts(seen)
    if abs(found["top1"] - trained) > TOLERANCE:
        raise WeightsError(
            f"{run}: measured {found['top1']:.2f} %, the run ended with {trained:.2f} %; are these its images?"
        )
    about = {"split": split, "at_end": trained, "device": device.type, "provenance": provenance(seed=0), "run": metrics}
    return model, recipe, {**found, **about}


def quoted(run: Path, recipe: Recipe, metrics: dict[str, Any]) -> tuple[str, float]:
    """The split that a card is about, and the top-1 accuracy on it at the end of training."""
    data = recipe.data
    split = data.test or (None if data.holdout else data.validation)
    scores = metrics.get("test_scores" if data.test else "scores")
    if split is None or scores is None:
        raise WeightsError(
            f"{run}: the run measured no test split (data.test) and no whole validation split (data.validation, "
            "without data.holdout), so its card would be empty"
        )
    return split, scores["top1"]


def headline(found: dict[str, Any]) -> str:
    """What was measured, in a few words."""
    return f"top-1 {found['top1']:.2f} % on {found['images']:,} images"


def facts(seen: Seen) -> dict[str, Any]:
    """Accuracy, calibration and the accuracy of every class, in percent."""
    order = (-seen.probabilities).argsort(1)
    top5 = (order[:, :5] == seen.labels[:, None]).any(1)
    right = seen.predicted == seen.labels
    own = {index: right[seen.labels == index] for index in range(len(seen.classes))}
    return {
        "images": len(seen.labels),
        "top1": 100 * float(right.mean()),
        "top5": 100 * float(top5.mean()),
        "calibration": reliability(seen.probabilities, seen.labels).record(),
        "classes": {seen.classes[i]: round(100 * float(hits.mean()), 2) for i, hits in own.items() if len(hits)},
    }


def card(model: VisionModel, tag: str, recipe: Recipe, found: dict[str, Any]) -> str:
    """The card as Markdown."""
    name, run, split = full_tag(model, tag), found["run"], found["split"]
    command = f"polarvit eval {name} --data ..." + (f" --split {split}" if split != "test" else "")
    known = set(found["classes"]) == set(CIFAR100)
    data = ABOUT_CIFAR100 if known else f"`{Path(recipe.data.path).name}`, {len(found['classes'])} classes."
    tables = f"{calibration(found)}\n\n{per_class(found)}"
    results = (
        f"On all {found['images']:,} images of the split `{split}`, products in strict float32: **top-1 "
        f"{found['top1']:.2f} %**, top-5 {found['top5']:.2f} % (`{command}` prints it). At the end of training, "
        f"products in {run['product_precision']}: {found['at_end']:.2f} %.\n\n{tables}"
    )
    return written(model, name, recipe, run, data=data, results=results, limits=limits(model, known))


def written(
    model: VisionModel,
    name: str,
    recipe: Recipe,
    run: dict[str, Any],
    *,
    data: str,
    results: str,
    limits: str,
) -> str:
    """A card from its parts: about the data, what was measured, what the weights cannot do."""
    machine = ", ".join(run["machine"]["gpus"]) or run["machine"]["processor"]
    commits = ", then ".join(dict.fromkeys(str(part["commit"]) for part in run.get("parts", [run])))
    first = ": the first, not the best of several" if run["seed"] == 0 else ""
    summary = (
        f"{unmarked(recipe.title)}. Weights of one training run, seed {run['seed']}{first}.\n\n"
        f"**Data.** {data}\n\n"
        f"**Recipe.** {run['steps']:,} steps of {run['batch_size']} images, products in {run['product_precision']}, "
        f"{run['seconds'] / 60:.1f} minutes on {machine}, commit {commits}. "
        f"{begun(recipe)}The weights are {kept(recipe, run)}. All settings stand below."
    )
    results = f"{results}\n\n## Limits\n\n{limits}\n\n## Licence\n\nThe weights: Apache-2.0, as the code."
    text = model_card(model, summary=summary, results=results).replace("<this folder or repository>", name)
    text = text.replace(f"\n# {model.architecture}\n", f"\n# {name}\n", 1)
    settings = dump(portable(recipe))
    return f"{text}\n## Recipe\n\n```yaml\n{settings}```\n"


def begun(recipe: Recipe) -> str:
    """What training started from, if not from nothing."""
    start = portable(recipe).model.pretrained
    return f"Training started from the weights `{start}`. " if start else ""


def kept(recipe: Recipe, run: dict[str, Any]) -> str:
    """Which step's weights these are, and what chose it."""
    step = f"those of step {run.get('kept_step', run['steps']):,}"
    if not recipe.watch.keep_best or "best_lost" in run:
        return f"{step}, the last, not the best in validation"
    if recipe.data.evaluated == (recipe.data.test or recipe.data.validation):
        return f"{step}, the best on the images they are measured on: their scores are a little too good"
    return f"{step}, the best in validation; the test images had no say"


def calibration(found: dict[str, Any]) -> str:
    """ECE and the reliability table."""
    one = found["calibration"]
    bins, count = one["bins"], len(one["bins"]["count"])
    side = "overconfident" if one["gap"] > 0 else "underconfident"
    head = "| confidence | images | mean confidence % | accuracy % |\n| --- | --- | --- | --- |\n"
    rows = [
        f"| {i / count:.2f}-{(i + 1) / count:.2f} | {images:,} | {100 * sure:.1f} | {100 * hit:.1f} |"
        for i, (images, sure, hit) in enumerate(zip(bins["count"], bins["confidence"], bins["accuracy"], strict=True))
        if images
    ]
    return (
        f"### Calibration\n\nExpected calibration error {100 * one['ece']:.2f} % ({count} bins of equal width); "
        f"{side} by {100 * abs(one['gap']):.2f} points on average; negative log-likelihood {one['nll']:.4f}, Brier "
        f"score {one['brier']:.4f}.\n\n{head}" + "\n".join(rows)
    )


def per_class(found: dict[str, Any]) -> str:
    """Accuracy of every class, the best first."""
    ranked = sorted(found["classes"].items(), key=lambda pair: (-pair[1], pair[0]))
    rows = "\n".join(f"| {name} | {value:.0f} |" for name, value in ranked)
    return f"### Every class\n\n| class | top-1 % |\n| --- | --- |\n{rows}"


def limits(model: VisionModel, cifar100: bool) -> str:
    """What these weights cannot do."""
    height, width = model.config.image
    lines = [
        f"- An image is brought to {height} x {width} pixels, and whatever it shows, the answer is one of "
        f"{model.num_classes} classes: there is no `none of these`.",
        "- Trained and tested on one data set. What it does on images of another kind was not measured.",
        "- One training run: it says nothing about the spread over seeds.",
    ]
    if cifar100:
        lines.append("- Five classes are people by age and sex. Use no answer of this model to decide about a person.")
    return "\n".join(lines)
