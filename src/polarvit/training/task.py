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


def measure(
    recipe: Recipe,
    model: nn.Module,
    dataset: ImageDataset,
    augmenter: Augmenter,
    place: Place,
    *,
    batch_size: int | None = None,
    thorough: bool = False,
    walk: Walk = iter,
) -> AnyScores:
    """Scores of `model` as the recipe evaluates; `thorough` adds what is too slow to measure on the way."""
    told: dict[str, Any] = {"batch_size": batch_size, "thorough": thorough}
    return together(recipe, by_image(recipe, model, dataset, augmenter, place, walk=walk, **told), **told)


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
    """What `measure` is made of: the scores of every image."""
    options: dict[str, Any] = {"batch_size": batch_size or recipe.watch.eval_batch, "walk": walk}
    told = (model, dataset, augmenter, place)
    if recipe.task == "classification":
        return score_images(*told, precision=recipe.train.precision, **options)
    return score_masks(*told, precision=recipe.train.precision, thorough=thorough, **options)


def together(
    recipe: Recipe, seen: AnyImageScores, *, batch_size: int | None = None, thorough: bool = False
) -> AnyScores:
    """The scores of all these images."""
    if isinstance(seen, ImageScores):
        return seen.scores()
    size, drop_last = batch_size or recipe.watch.eval_batch, recipe.watch.drop_last
    return seen.scores(batch_size=size, drop_last=drop_last, thorough=thorough)
