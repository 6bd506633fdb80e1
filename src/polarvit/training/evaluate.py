"""Evaluation: loss, top-1 and top-5 accuracy over a data set, and where its embeddings lie."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.dataset import ImageDataset
from polarvit.data.sampler import SequentialPlan
from polarvit.geometry import PolarPoint
from polarvit.training.distributed import Place
from polarvit.training.recipe import Precision
from polarvit.training.step import autocast


@dataclass(frozen=True)
class Scores:
    """Results over `count` images; accuracies in percent."""

    loss: float
    top1: float
    top5: float
    count: int
    radius: float | None = None
    """Mean radius of the final tokens (polar models), over the first batch."""

    def to_dict(self) -> dict[str, float | int | None]:
        return {"loss": self.loss, "top1": self.top1, "top5": self.top5, "count": self.count, "radius": self.radius}


@torch.no_grad()
def evaluate(
    model: nn.Module,
    dataset: ImageDataset,
    augmenter: Augmenter,
    place: Place,
    *,
    batch_size: int = 512,
    precision: Precision = "fp32",
) -> Scores:
    """Scores of `model` on every image of `dataset` once; processes share the work."""
    plan = SequentialPlan(len(dataset), batch_size)
    sums = torch.zeros(4, dtype=torch.float64, device=place.device)
    radius: Tensor | None = None
    was_training = model.training
    model.eval()
    dtype = next(model.parameters()).dtype
    for step in range(plan.steps):
        images, labels = augmenter.evaluation_batch(dataset, plan, step, place.rank, place.world, place.device)
        if not len(images):
            continue
        with autocast(precision, place.device):
            features = model.forward_features(_as(images, dtype))  # type: ignore[operator]
            logits = model.forward_head(features).float()  # type: ignore[operator]
        if radius is None and isinstance(features, PolarPoint):
            radius = features.radius.mean().double()
        top = logits.topk(min(5, logits.shape[-1])).indices == labels[:, None]
        loss = F.cross_entropy(logits, labels, reduction="sum")
        sums += torch.stack(
            [loss.double(), top[:, 0].sum().double(), top.any(-1).sum().double(), sums.new_tensor(len(labels))]
        )
    model.train(was_training)
    loss, top1, top5, count = place.sum(sums).tolist()
    return Scores(
        loss / count, 100 * top1 / count, 100 * top5 / count, int(count), None if radius is None else radius.item()
    )


def _as(images: Tensor, dtype: torch.dtype) -> Tensor:
    return images.to(dtype) if dtype == torch.float64 else images
