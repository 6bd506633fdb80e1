"""Segmentation: the loss of a batch of masks, and the scores of a model over a data set."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.dataset import ImageDataset
from polarvit.data.sampler import SequentialPlan, evaluation_order
from polarvit.training.distributed import Place
from polarvit.training.evaluate import Walk
from polarvit.training.mask_metrics import dice_and_iou, dice_of, hausdorff95, one_hot, pixel_sums, soft_dice
from polarvit.training.recipe import Precision
from polarvit.training.step import autocast

AT_ONCE = {"cuda": 64}
"""Images that pass the net together while it is evaluated: batches of eight would leave a GPU waiting for launches."""
ORDERS = 20
"""Random orders of the images over which the soft Dice is averaged, to tell how much it owes to its batches."""


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
    orders_mean: float | None = None
    """Of `dice` over `ORDERS` random orders of the images; None where it was not measured."""
    orders_std: float | None = None
    """Its standard deviation over these orders."""

    @property
    def best(self) -> float:
        """What the best checkpoint is the best in."""
        return self.dice

    @property
    def orders(self) -> str:
        """The soft Dice over random orders, with its spread."""
        return "-" if self.orders_mean is None else f"{self.orders_mean:.4f} ± {self.orders_std:.4f}"

    def to_dict(self) -> dict[str, float | int | None]:
        return asdict(self)

    def logged(self) -> dict[str, float | int | None]:
        """What the log of a run says."""
        return {"val_loss": self.loss, "dice": self.dice, "image_dice": self.image_dice, "iou": self.iou}

    def line(self) -> str:
        """For people."""
        distance = f", HD95 {self.hausdorff95:.1f} px" if self.hausdorff95 is not None else ""
        orders = f" ({self.orders} over {ORDERS} orders)" if self.orders_mean is not None else ""
        return f"Dice {self.dice:.4f}{orders}, per image {self.image_dice:.4f}, IoU {self.iou:.4f}{distance}"


def dice_cross_entropy(logits: Tensor, masks: Tensor) -> Tensor:
    """1 - soft Dice (`mask_metrics.soft_dice`) plus mean cross entropy; logits [B, C, H, W], masks [B, H, W]."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logs = F.log_softmax(logits, 1)
    return 1 - soft_dice(logs.exp(), masks) + cross_entropy(logs, masks).mean()


def cross_entropy(logs: Tensor, masks: Tensor) -> Tensor:
    """Of every pixel [B, H, W]; log-probabilities [B, C, H, W], masks [B, H, W]."""
    return -(logs * one_hot(masks, logs)).sum(1)


@dataclass(frozen=True)
class ImageMaskScores:
    """What is known of every image of a data set, in its order: float64 [N] each, on the host."""

    sums: Tensor
    """`pixel_sums` [N, 3, C]."""
    entropy: Tensor
    """Mean cross entropy over the pixels."""
    dice: Tensor
    iou: Tensor
    found: Tensor
    """Share of the pixels that the model calls foreground."""
    true: Tensor
    """Share of the pixels that are."""
    hausdorff95: Tensor | None
    """This and what follows is None where it was not measured."""
    missed: Tensor | None
    batch_size: int
    drop_last: bool

    def part(self, rows: Tensor) -> ImageMaskScores:
        """Those of some images."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        some: dict[str, Any] = {name: x[rows] for name, x in known.items() if isinstance(x, Tensor)}
        return replace(self, **some)

    def scores(self) -> MaskScores:
        """All images together."""
        order = torch.from_numpy(evaluation_order(len(self.dice)))
        soft = batch_dice(self.sums[order], self.batch_size, self.drop_last)
        entropy = torch.stack(
            [part.mean() for part in in_batches(self.entropy[order], self.batch_size, self.drop_last)]
        )
        loss, dice, image_dice, iou = (each.mean().item() for each in (1 - soft + entropy, soft, self.dice, self.iou))
        scores = MaskScores(loss, dice, image_dice, iou, len(self.dice))
        if self.hausdorff95 is None or self.missed is None:
            return scores
        orders = (torch.from_numpy(evaluation_order(len(self.dice), which)) for which in range(1, 1 + ORDERS))
        spread = torch.stack([batch_dice(self.sums[order], self.batch_size, self.drop_last).mean() for order in orders])
        return replace(
            scores,
            hausdorff95=self.hausdorff95.mean().item(),
            missed=int(self.missed.sum()),
            orders_mean=spread.mean().item(),
            orders_std=spread.std().item(),
        )


@torch.no_grad()
def score_masks(
    model: nn.Module,
    dataset: ImageDataset,
    augmenter: Augmenter,
    place: Place,
    *,
    batch_size: int = 8,
    precision: Precision = "fp32",
    drop_last: bool = False,
    thorough: bool = False,
    walk: Walk = iter,
) -> ImageMaskScores:
    """The scores of `model` on every image of `dataset` once; processes share the steps.

    Args:
        batch_size: of the soft Dice, which is one number a batch of images in a random order that is always the same;
            on a GPU the net sees several such batches at once.
        drop_last: leave an incomplete last batch out of loss and soft Dice, as the benchmark does; images still all
            count in the scores by image.
        thorough: measure the Hausdorff distance and the spread over orders too.
    """
    together = max(1, AT_ONCE.get(place.device.type, 1) // batch_size)
    plan = SequentialPlan(len(dataset), batch_size * together)
    classes = len(dataset.classes)
    table = torch.zeros(len(dataset), 7 + 3 * classes, dtype=torch.float64, device=place.device)
    was_training = model.training
    model.eval()
    for step in walk(range(place.rank, plan.steps, place.world)):
        images, truth = augmenter.evaluation_batch(dataset, plan, step, device=place.device)
        logits = mask_logits(model, images, place.device, precision)
        predicted, objects = logits.argmax(1) > 0, truth > 0
        rows = table[step * plan.batch_size :][: len(images)]
        rows[:, 0] = cross_entropy(F.log_softmax(logits, 1), truth).mean((1, 2))
        rows[:, 1], rows[:, 2] = dice_and_iou(predicted, objects)
        rows[:, 3], rows[:, 4] = predicted.double().mean((1, 2)), objects.double().mean((1, 2))
        if thorough:
            rows[:, 5] = hausdorff95(predicted, objects)
            rows[:, 6] = predicted.any((1, 2)) != objects.any((1, 2))
        rows[:, 7:] = pixel_sums(logits.softmax(1), truth).flatten(1)
    model.train(was_training)
    table = place.sum(table).cpu()
    entropy, dice, iou, found, true, distance, missed = table[:, :7].unbind(1)
    return ImageMaskScores(
        table[:, 7:].unflatten(1, (3, classes)),
        entropy,
        dice,
        iou,
        found,
        true,
        distance if thorough else None,
        missed if thorough else None,
        batch_size,
        drop_last,
    )


def batch_dice(sums: Tensor, batch_size: int, drop_last: bool) -> Tensor:
    """The soft Dice of every batch of images with these `pixel_sums` [N, 3, C]: float64 [batches]."""
    return torch.stack([dice_of(*part.sum(0)) for part in in_batches(sums, batch_size, drop_last)])


def in_batches(rows: Tensor, batch_size: int, drop_last: bool) -> tuple[Tensor, ...]:
    """Rows [N, ...] batch by batch; an incomplete last one may be left out, unless it is the only one."""
    parts = rows.split(batch_size)
    return parts[:-1] if drop_last and len(parts) > 1 and len(parts[-1]) < batch_size else parts


def mask_logits(model: nn.Module, images: Tensor, device: torch.device, precision: Precision = "fp32") -> Tensor:
    """Logits [B, C, H, W] of a batch, in float32, or float64 for a model that is."""
    if next(model.parameters()).dtype == torch.float64:
        images = images.double()
    with autocast(precision, device):
        logits: Tensor = model(images)
    return logits if logits.dtype == torch.float64 else logits.float()
