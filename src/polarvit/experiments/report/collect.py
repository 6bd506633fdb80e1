"""What a report is made of: the log and metrics of a run, and what its model says about the images it is judged by."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.dataset import ImageDataset
from polarvit.data.errors import DataError
from polarvit.data.sampler import SequentialPlan
from polarvit.geometry import PolarPoint
from polarvit.models.weights import load_pretrained
from polarvit.training.recipe import Recipe, load
from polarvit.training.run_folder import RunFolder
from polarvit.training.sets import divided, image_size, open_split

LIMIT = 2000
"""Images that are looked at one by one; of a larger split, that many evenly spaced."""


@dataclass(frozen=True)
class Seen:
    """What a model makes of n images."""

    classes: tuple[str, ...]
    labels: np.ndarray
    """int [n]"""
    probabilities: np.ndarray
    """[n, classes]"""
    features: np.ndarray
    """Pooled features [n, dim]; of a polar model the pooled point in the tangent space at the origin, v = r u."""
    images: np.ndarray
    """uint8 [n, H, W, 3]"""
    k: float | None
    """Curvature is -1/k; None for a Euclidean model."""
    of: int
    """Images in the split."""

    @property
    def predicted(self) -> np.ndarray:
        return self.probabilities.argmax(1)

    @property
    def radius(self) -> np.ndarray:
        """Distance of each pooled point from the origin [n]."""
        return np.linalg.norm(self.features, axis=1)


@dataclass(frozen=True)
class Run:
    """One run folder."""

    name: str
    recipe: Recipe
    log: list[dict[str, Any]]
    metrics: dict[str, Any]
    seen: Seen | None
    """None for a run that evaluated on no images."""

    @property
    def images(self) -> str:
        """What the images of its scores are called in a sentence: test, validation, held-out."""
        return "held-out" if self.recipe.data.holdout else self.recipe.data.validation or "no"

    def curve(self, key: str) -> tuple[list[float], list[float]]:
        """Steps and values of one entry of the log."""
        lines = [line for line in self.log if key in line]
        return [line["step"] for line in lines], [line[key] for line in lines]


def read_run(folder: Path, *, look_at_images: bool = True) -> Run:
    """Read a finished run and, unless told otherwise, look at the images it was evaluated on."""
    if not (folder / "metrics.json").is_file():
        raise FileNotFoundError(f"{folder} holds no finished run: there is no metrics.json in it")
    recipe = load(folder / "recipe.yaml")
    if recipe.task == "segmentation":
        raise DataError(
            f"{folder}: reports are of classifiers; look at {folder / 'overlays.png'}, or use polarvit eval"
        )
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    seen = look(folder, recipe) if recipe.data.evaluated and look_at_images else None
    return Run(recipe.title, recipe, RunFolder.read_log(folder), metrics, seen)


def open_evaluated(recipe: Recipe, device: torch.device) -> ImageDataset:
    """The images that `data.evaluated` names."""
    if recipe.data.holdout:
        return divided(recipe, device)[1]
    assert recipe.data.validation is not None
    return open_split(recipe, recipe.data.validation, device, training=False)


@torch.no_grad()
def look(folder: Path, recipe: Recipe, batch: int = 256) -> Seen:
    """Run the model of a folder over (at most `LIMIT` of) the images it was evaluated on, on the CPU."""
    cpu = torch.device("cpu")
    model = load_pretrained(folder / "model")
    dataset = open_evaluated(recipe, cpu)
    augmenter = Augmenter(recipe.augment, len(dataset.classes), image_size(recipe), resize=recipe.data.resize)
    count, dtype = len(dataset), next(model.parameters()).dtype
    plan = SequentialPlan(count, min(batch, count))
    chosen = set(np.linspace(0, count - 1, min(LIMIT, count)).round().astype(int).tolist())
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (recipe.augment.mean, recipe.augment.std))
    labels, probabilities, features, images = [], [], [], []
    polar = False
    for step in range(plan.steps):
        rows = [row for row, index in enumerate(plan.indices(step)) if int(index) in chosen]
        if not rows:
            continue
        batch_images, batch_labels = augmenter.evaluation_batch(dataset, plan, step, device=cpu)
        x = batch_images[rows]
        tokens = model.forward_features(x.to(dtype))
        polar = isinstance(tokens, PolarPoint)
        probabilities.append(torch.softmax(model.forward_head(tokens).double(), -1).numpy())
        features.append(model.forward_head(tokens, pre_logits=True).double().numpy())
        labels.append(batch_labels[rows].numpy())
        images.append(((x * std + mean) * 255).round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy())
    return Seen(
        dataset.classes,
        np.concatenate(labels),
        np.concatenate(probabilities),
        np.concatenate(features),
        np.concatenate(images),
        float(model.k) if polar else None,  # type: ignore[arg-type]
        count,
    )
