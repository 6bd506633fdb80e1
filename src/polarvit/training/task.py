"""What a run trains for. The model decides: one answer for an image, or one for each of its pixels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from polarvit.data.augment.masks import MaskAugmenter
from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.dataset import ImageDataset
from polarvit.training.distributed import Place
from polarvit.training.evaluate import ImageScores, Scores, Walk, score_images
from polarvit.training.recipe import Recipe
from polarvit.training.segmentation import ImageMaskScores, MaskScores, dice_cross_entropy, score_masks
from polarvit.training.step import soft_cross_entropy

AnyScores = Scores | MaskScores
AnyImageScores = ImageScores | ImageMaskScores
SCORES: dict[str, type[Scores] | type[MaskScores]] = {"classification": Scores, "segmentation": MaskScores}
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "classification": soft_cross_entropy,
    "segmentation": dice_cross_entropy,
}


def make_augmenter(recipe: Recipe, num_classes: int, image_size: int) -> Augmenter:
    """What makes batches for the recipe."""
    if recipe.task == "segmentation":
        return MaskAugmenter(recipe.augment, num_classes, image_size)
    return Augmenter(recipe.augment, num_classes, image_size, resize=recipe.data.resize)


def by_image(
    recipe: Recipe,
    model: nn.Module,
    dataset: ImageDataset,
    augmenter: Augmenter,
    place: Place,
    *,
    batch_size: int | None = None,
    thorough: bool = False,
    walk: Walk = iter,
) -> AnyImageScores:
    """The scores of `model` on every image as the recipe evaluates; its `scores()` are those of all together.

    `thorough` adds what is too slow to measure on the way.
    """
    told = (model, dataset, augmenter, place)
    options: dict[str, Any] = {"batch_size": batch_size or recipe.watch.eval_batch, "walk": walk}
    options["precision"] = recipe.train.precision
    if recipe.task == "classification":
        return score_images(*told, **options)
    return score_masks(*told, drop_last=recipe.watch.drop_last, thorough=thorough, **options)
