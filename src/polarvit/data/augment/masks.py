"""Training batches of images with masks.

A mask travels in the fourth byte of its pixels (see `pixels`), so whatever moves pixels moves the mask with them: flips
and padded crops. What blends or recolours pixels would not leave it alone and is refused.
"""

from dataclasses import fields

import torch
from torch import Tensor

from polarvit.data.augment.config import Augmentation
from polarvit.data.augment.crop import flip_and_crop
from polarvit.data.augment.layout import EvaluationRequest, TrainingRequest
from polarvit.data.augment.pipeline import Augmenter, Batch, Drawn, indexed
from polarvit.data.augment.transfer import ship
from polarvit.data.dataset import ImageDataset
from polarvit.data.errors import DataError
from polarvit.data.sampler import BatchPlan, SequentialPlan

_ALLOWED = frozenset({"mean", "std", "flip", "crop_padding", "interpolation"})


class MaskAugmenter(Augmenter):
    """Makes batches of images float32 [b, 3, H, W] and masks uint8 [b, H, W]."""

    def __init__(self, config: Augmentation, num_classes: int, image_size: int) -> None:
        usual = Augmentation()
        wrong = [f.name for f in fields(config) if getattr(config, f.name) != getattr(usual, f.name)]
        wrong = [name for name in wrong if name not in _ALLOWED]
        if wrong:
            raise DataError(
                f"augment.{wrong[0]} would change the pixels but not their masks; "
                "segmentation takes flip and crop_padding only"
            )
        super().__init__(config, num_classes, image_size)

    def render(
        self, dataset: ImageDataset, request: TrainingRequest, steps: range, drawn: Drawn, device: torch.device
    ) -> list[Batch]:
        """The batches that were drawn; the host only starts kernels."""
        arrays = [self._colors, drawn.layout.samples, *drawn.crop]
        colors, samples, flip, top, left = ship(arrays, device)
        images = self._fetch(dataset, request, steps, samples, device)
        if self.config.flip or self.config.crop_padding:
            images = flip_and_crop(images, flip, top, left, self.config.crop_padding)
        normal, masks = self._normalise(images, colors), split_mask(images)
        return list(zip(normal.split(request.size), masks.split(request.size), strict=True))

    def evaluation_batch(
        self,
        dataset: ImageDataset,
        plan: SequentialPlan,
        step: int,
        rank: int = 0,
        world: int = 1,
        device: torch.device | str = "cpu",
    ) -> Batch:
        """An evaluation batch: normalised float32 [b, 3, H, W], and masks uint8 [b, H, W]."""
        self._check(dataset, plan)
        device = indexed(device)
        images = dataset.fetch(EvaluationRequest(plan, rank, world), step, device)
        (colors,) = ship([self._colors], device)
        return self._normalise(images, colors), split_mask(images)

    def _check(self, dataset: ImageDataset, plan: BatchPlan | SequentialPlan) -> None:
        if not getattr(dataset, "masked", False):
            raise DataError(f"{dataset.name}: has labels instead of masks; prepare it from images with masks")
        if dataset.image_size != (self.image_size, self.image_size):
            height, width = dataset.image_size
            raise DataError(
                f"{dataset.name} has images of {height} x {width} but the model takes {self.image_size} x "
                f"{self.image_size}: prepare the data with --image-size {self.image_size}, "
                f"or set model.options.img_size={height}"
            )
        super()._check(dataset, plan)


def split_mask(images: Tensor) -> Tensor:
    """The masks of uint8 [n, H, W, 4]: uint8 [n, H, W]."""
    return images[..., 3].contiguous()
