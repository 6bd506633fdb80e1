"""Masks drawn over their images, for people to look at.

Green where model and truth agree, vermilion where only the model says foreground, blue where only the truth does (hues
of Okabe and Ito, which colour-blind people can tell apart). Without a truth, what the model found is green.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.dataset import ImageDataset
from polarvit.data.sampler import SequentialPlan
from polarvit.training.distributed import Place
from polarvit.training.mask_metrics import edges
from polarvit.training.recipe import Precision
from polarvit.training.segmentation import mask_logits

GREEN, VERMILION, BLUE = (0, 158, 115), (213, 94, 0), (0, 114, 178)
OPACITY = 0.45
GAP = 4
"""White pixels between the tiles of a sheet."""
SMALLEST = 128
"""Pixels that a tile of a sheet has at least, about: smaller images are enlarged by a whole number."""


def overlay(pixels: np.ndarray, predicted: np.ndarray, truth: np.ndarray | None = None) -> np.ndarray:
    """An image uint8 [H, W, 3] with masks bool [H, W] over it: tinted areas with solid edges."""
    truth = predicted if truth is None else truth
    out = pixels.astype(np.float32)
    edge = edges(torch.from_numpy(np.stack([predicted, truth]))).any(0).numpy()
    for area, colour in ((predicted & truth, GREEN), (predicted & ~truth, VERMILION), (truth & ~predicted, BLUE)):
        out[area] += OPACITY * (np.array(colour, np.float32) - out[area])
        out[area & edge] = colour
    return out.round().astype(np.uint8)


def sheet(rows: Sequence[Sequence[np.ndarray]]) -> Image.Image:
    """Tiles uint8 [h, w, 3] of one size in rows; small ones are enlarged."""
    times = max(1, SMALLEST // max(rows[0][0].shape[:2]))
    height, width = (times * side for side in rows[0][0].shape[:2])
    columns = max(map(len, rows))
    page = np.full((len(rows) * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), 255, np.uint8)
    for y, row in enumerate(rows):
        for x, tile in enumerate(row):
            top, left = y * (height + GAP), x * (width + GAP)
            page[top : top + height, left : left + width] = tile.repeat(times, 0).repeat(times, 1)
    return Image.fromarray(page)


@torch.no_grad()
def predictions(
    model: nn.Module,
    dataset: ImageDataset,
    augmenter: Augmenter,
    place: Place,
    *,
    precision: Precision = "fp32",
    count: int | None = None,
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """(index, image uint8 [H, W, 3], predicted bool [H, W], truth bool [H, W]) of all images, or of `count` of them."""
    plan = SequentialPlan(len(dataset), 1)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (augmenter.config.mean, augmenter.config.std))
    was_training = model.training
    model.eval()
    for index in evenly(len(dataset), count):
        images, masks = augmenter.evaluation_batch(dataset, plan, index, device=place.device)
        predicted = mask_logits(model, images, place.device, precision).argmax(1)[0] > 0
        pixels = ((images[0].cpu() * std + mean) * 255).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
        yield index, pixels, predicted.cpu().numpy(), (masks[0] > 0).cpu().numpy()
    model.train(was_training)


def evenly(length: int, count: int | None) -> list[int]:
    """`count` places evenly spaced over a length, or all."""
    return np.unique(np.linspace(0, length - 1, min(count or length, length)).round().astype(int)).tolist()


def write_sheet(
    path: Path,
    model: nn.Module,
    dataset: ImageDataset,
    augmenter: Augmenter,
    place: Place,
    *,
    precision: Precision = "fp32",
    count: int = 12,
    pairs: int = 3,
) -> None:
    """A picture of `count` images, each beside itself with the masks over it, `pairs` of them in a row."""
    found = predictions(model, dataset, augmenter, place, precision=precision, count=count)
    tiles = [tile for _, pixels, predicted, truth in found for tile in (pixels, overlay(pixels, predicted, truth))]
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet([tiles[i : i + 2 * pairs] for i in range(0, len(tiles), 2 * pairs)]).save(path)
