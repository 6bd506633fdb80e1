"""Evaluation: loss, top-1 and top-5 accuracy over a data set, and where its embeddings lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.dataset import ImageDataset
from polarvit.data.sampler import SequentialPlan, share
from polarvit.models import VisionModel
from polarvit.training.distributed import Place
from polarvit.training.recipe import Precision
from polarvit.training.step import autocast

Walk = Callable[[range], Iterable[int]]
"""Goes through the batches one by one; a progress bar is one."""


@dataclass(frozen=True)
class Scores:
    """Results over `count` images; accuracies in percent."""

    loss: float
    top1: float
    top5: float
    count: int
    radius: float | None = None
    """Mean radius of the final tokens (hyperbolic models)."""

    @property
    def best(self) -> float:
        """What the best checkpoint is the best in."""
        return self.top1

    def to_dict(self) -> dict[str, float | int | None]:
        return {"loss": self.loss, "top1": self.top1, "top5": self.top5, "count": self.count, "radius": self.radius}

    def logged(self) -> dict[str, float | int | None]:
        """What the log of a run says."""
        return {"val_loss": self.loss, "top1": self.top1, "top5": self.top5, "radius": self.radius}

    def line(self) -> str:
        """For people."""
        return f"top-1 {self.top1:.2f} %, top-5 {self.top5:.2f} %, loss {self.loss:.4f}"


class ImageScores(NamedTuple):
    """What is known of every image of a data set, in its order: float64 [N] each, on the host."""

    loss: Tensor
    top1: Tensor
    """1 where the answer is right, else 0."""
    top5: Tensor
    """1 where the right answer is among the first five."""
    answer: Tensor
    """Number of the most probable class."""
    confidence: Tensor
    """Its probability."""
    radius: Tensor | None
    """Mean radius of the final tokens (hyperbolic models)."""

    def part(self, rows: Tensor) -> ImageScores:
        """Those of some images."""
        return ImageScores(*(None if x is None else x[rows] for x in self))  # type: ignore[arg-type]

    def scores(self) -> Scores:
        """All images together."""
        loss, top1, top5, _, _, radius = (None if x is None else x.mean().item() for x in self)
        return Scores(loss, 100 * top1, 100 * top5, len(self.loss), radius)  # type: ignore[arg-type, operator]


@torch.no_grad()
def score_images(
    model: nn.Module,
    dataset: ImageDataset,
    augmenter: Augmenter,
    place: Place,
    *,
    batch_size: int = 512,
    precision: Precision = "fp32",
    walk: Walk = iter,
) -> ImageScores:
    """The scores of `model` on every image of `dataset` once; processes share every batch."""
    plan = even_plan(len(dataset), batch_size)
    largest = -(-plan.batch_size // place.world)
    hyperbolic = isinstance(model, VisionModel) and model.hyperbolic
    table = torch.zeros(len(dataset), 6, dtype=torch.float64, device=place.device)
    was_training = model.training
    model.eval()
    for step in walk(range(plan.steps)):
        images, labels = augmenter.evaluation_batch(dataset, plan, step, place.rank, place.world, place.device)
        if not len(images):
            continue
        features, logits = outputs(model, _filled(images, largest), place.device, precision)
        logits = logits[: len(labels)]
        first = step * plan.batch_size
        rows = table[first : min(first + plan.batch_size, len(dataset))]
        rows = rows[share(len(rows), place.rank, place.world)]
        first_five = logits.topk(min(5, logits.shape[-1])).indices
        right = first_five == labels[:, None]
        rows[:, 0] = F.cross_entropy(logits, labels, reduction="none")
        rows[:, 1], rows[:, 2] = right[:, 0], right.any(-1)
        rows[:, 3], rows[:, 4] = first_five[:, 0], logits.softmax(-1).amax(-1)
        if hyperbolic:
            rows[:, 5] = model.as_points(features).radius[: len(labels)].double().flatten(1).mean(1)  # type: ignore[operator]
    model.train(was_training)
    loss, top1, top5, answer, confidence, radius = place.sum(table).cpu().unbind(1)
    return ImageScores(loss, top1, top5, answer, confidence, radius if hyperbolic else None)


def outputs(
    model: nn.Module, images: Tensor, device: torch.device, precision: Precision = "fp32"
) -> tuple[Any, Tensor]:
    """Features and logits of a batch; logits in float32, or float64 for a model that is."""
    if next(model.parameters()).dtype == torch.float64:
        images = images.double()
    with autocast(precision, device):
        features = model.forward_features(images)  # type: ignore[operator]
        logits: Tensor = model.forward_head(features)  # type: ignore[operator]
    return features, logits if logits.dtype == torch.float64 else logits.float()


def even_plan(length: int, batch_size: int) -> SequentialPlan:
    """As few batches as `batch_size` allows, as even as they can be: a compiled model sees one shape."""
    batches = -(-length // batch_size)
    return SequentialPlan(length, -(-length // batches))


def _filled(images: Tensor, size: int) -> Tensor:
    """The last batch brought to the size of the others with empty images."""
    missing = size - len(images)
    return torch.cat([images, images.new_zeros(missing, *images.shape[1:])]) if missing else images
