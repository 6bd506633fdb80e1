"""Segmentation: the loss of a batch of masks, and the scores of a model over a data set."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.dataset import ImageDataset
from polarvit.data.sampler import SequentialPlan
from polarvit.training.distributed import Place
from polarvit.training.evaluate import Walk
from polarvit.training.mask_metrics import dice_and_iou, hausdorff95, one_hot, soft_dice
from polarvit.training.recipe import Precision
from polarvit.training.step import autocast

AT_ONCE = {"cuda": 64}
"""Images that pass the net together while it is evaluated: batches of eight would leave a GPU waiting for launches."""


@dataclass(frozen=True)
class MaskScores:
    """Results over `count` images; all but the loss and the distance are between 0 and 1."""

    loss: float
    """Dice plus cross entropy, mean over batches."""
    dice: float
    """The benchmark's: soft, of each batch, mean of foreground and background, mean over batches."""
    image_dice: float
    """Of the foreground, hard, mean over images."""
    iou: float
    """Of the foreground, hard, mean over images."""
    count: int
    hausdorff95: float | None = None
    """In pixels, mean over images; None where it was not measured."""
    missed: int | None = None
    """Images whose Hausdorff distance is the diagonal, because one of the two masks is empty."""

    @property
    def best(self) -> float:
        """What the best checkpoint is the best in."""
        return self.dice

    def to_dict(self) -> dict[str, float | int | None]:
        return asdict(self)

    def logged(self) -> dict[str, float | int | None]:
        """What the log of a run says."""
        return {"val_loss": self.loss, "dice": self.dice, "image_dice": self.image_dice, "iou": self.iou}

    def line(self) -> str:
        """For people."""
        distance = f", HD95 {self.hausdorff95:.1f} px" if self.hausdorff95 is not None else ""
        return f"Dice {self.dice:.4f}, per image {self.image_dice:.4f}, IoU {self.iou:.4f}{distance}"


def dice_cross_entropy(logits: Tensor, masks: Tensor) -> Tensor:
    """1 - soft Dice (`mask_metrics.soft_dice`) plus mean cross entropy; logits [B, C, H, W], masks [B, H, W]."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logs = F.log_softmax(logits, 1)
    cross_entropy = -(logs * one_hot(masks, logs)).sum(1).mean()
    return 1 - soft_dice(logs.exp(), masks) + cross_entropy


@torch.no_grad()
def evaluate_masks(
    model: nn.Module,
    dataset: ImageDataset,
    augmenter: Augmenter,
    place: Place,
    *,
    batch_size: int = 8,
    precision: Precision = "fp32",
    drop_last: bool = False,
    distances: bool = False,
    walk: Walk = iter,
) -> MaskScores:
    """Scores of `model` on every image of `dataset` once; processes share the batches.

    Args:
        batch_size: of the soft Dice, which is one number a batch; the net sees several such batches at once on a GPU.
        drop_last: leave an incomplete last batch out of loss and soft Dice, as the benchmark does; images still all
            count in the scores by image.
        distances: measure the Hausdorff distance too.
    """
    together = max(1, AT_ONCE.get(place.device.type, 1) // batch_size)
    plan = SequentialPlan(len(dataset), batch_size * together)
    sums = torch.zeros(8, dtype=torch.float64, device=place.device)
    was_training = model.training
    model.eval()
    for step in walk(range(place.rank, plan.steps, place.world)):
        images, truth = augmenter.evaluation_batch(dataset, plan, step, device=place.device)
        several = mask_logits(model, images, place.device, precision)
        for logits, masks in zip(several.split(batch_size), truth.split(batch_size), strict=True):
            if not drop_last or len(masks) == batch_size or len(dataset) < batch_size:
                sums[0] += dice_cross_entropy(logits, masks).double()
                sums[1] += soft_dice(logits.softmax(1), masks).double()
                sums[2] += 1
        predicted, objects = several.argmax(1) > 0, truth > 0
        dice, iou = dice_and_iou(predicted, objects)
        sums[3] += dice.sum()
        sums[4] += iou.sum()
        sums[5] += len(images)
        if distances:
            sums[6] += hausdorff95(predicted, objects).sum()
            sums[7] += (predicted.any((1, 2)) != objects.any((1, 2))).sum()
    model.train(was_training)
    loss, soft, batches, dice_sum, iou_sum, count, distance, missed = place.sum(sums).tolist()
    return MaskScores(
        loss / batches,
        soft / batches,
        dice_sum / count,
        iou_sum / count,
        int(count),
        distance / count if distances else None,
        int(missed) if distances else None,
    )


def mask_logits(model: nn.Module, images: Tensor, device: torch.device, precision: Precision = "fp32") -> Tensor:
    """Logits [B, C, H, W] of a batch, in float32, or float64 for a model that is."""
    if next(model.parameters()).dtype == torch.float64:
        images = images.double()
    with autocast(precision, device):
        logits: Tensor = model(images)
    return logits if logits.dtype == torch.float64 else logits.float()
