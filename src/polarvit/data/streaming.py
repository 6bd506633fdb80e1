"""Large data sets, decoded from their files by worker processes while the device trains.

A worker decodes an image and cuts it to the model's size, the part of the work that must see the whole
image; everything after it happens on the device. The cut of sample i at step s is drawn from
(seed, s, i), as everywhere, so the number of workers changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from polarvit.data.augment.config import Augmentation
from polarvit.data.augment.crop import Interpolation, sample_crops
from polarvit.data.augment.draws import Draws
from polarvit.data.augment.pixels import pad_pixels
from polarvit.data.central import RESAMPLING, central_square
from polarvit.data.dataset import Request
from polarvit.data.errors import DataError
from polarvit.data.sources.source import Source, require_split

Key = tuple[int, int, int]  # seed, step, index


class StreamingDataset:
    """One split of a source, read from its files batch by batch.

    Args:
        source: where the images are.
        split: which of its splits.
        image_size: height and width of what arrives.
        augmentation: settings of the random resized crop for training; None: resize and cut the centre.
        resize: without augmentation, the shorter side before the central cut; None: `image_size`.
        workers: processes that decode; 0 decodes in this one.
        prefetch: batches that each worker prepares ahead.
    """

    crops = True

    def __init__(
        self,
        source: Source,
        split: str,
        image_size: int,
        *,
        augmentation: Augmentation | None = None,
        resize: int | None = None,
        workers: int = 4,
        prefetch: int = 2,
    ) -> None:
        require_split(source, split)
        if augmentation is not None and not augmentation.resized_crop:
            raise DataError(
                f"{source.description}: images of any size are streamed with augment.resized_crop=true; "
                f"set it, or prepare the data with --image-size {image_size}"
            )
        self.name = f"{source.description} ({split})"
        self.classes = source.classes
        self.labels = source.labels(split)
        self.image_size = (image_size, image_size)
        self._decoder = _Decoder(source, split, image_size, augmentation, resize)
        self._workers, self._prefetch = workers, prefetch
        self._batches: Iterator[Tensor] | None = None
        self._request: Request | None = None
        self._next = -1

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, request: Request, step: int, device: torch.device) -> Tensor:
        """Images of a step: uint8 [n, H, W, 4]. Steps in order are read ahead; a jump starts anew."""
        if (request.steps is None) != (self._decoder.augmentation is not None):
            opened, wanted = ("training", "evaluation") if self._decoder.augmentation else ("evaluation", "training")
            raise DataError(f"{self.name}: was opened for {opened} but is read for {wanted}; open it twice")
        if self._batches is None or request != self._request or step != self._next:
            self._batches = iter(self._loader(request, step, pin=device.type == "cuda"))
            self._request = request
        self._next = step + 1
        return next(self._batches).to(device, non_blocking=True)

    def _loader(self, request: Request, step: int, pin: bool) -> DataLoader:
        return DataLoader(
            replace(self._decoder, interpolation=request.interpolation),
            batch_sampler=_KeysOfSteps(request, step),
            num_workers=self._workers,
            prefetch_factor=self._prefetch if self._workers else None,
            collate_fn=self._decoder.stack,
            pin_memory=pin,
        )


class _KeysOfSteps:
    """What the workers are told: the keys of a batch, step after step."""

    def __init__(self, request: Request, start: int) -> None:
        self.request, self.start = request, start

    def __iter__(self) -> Iterator[list[Key]]:
        step = self.start
        while self.request.steps is None or step < self.request.steps:
            yield [(self.request.seed, step, index) for index in self.request.indices(step).tolist()]
            step += 1


@dataclass(frozen=True)
class _Decoder(Dataset[Tensor]):
    """Key -> image uint8 [size, size, 3]."""

    source: Source
    split: str
    size: int
    augmentation: Augmentation | None
    resize: int | None
    interpolation: Interpolation = "bicubic"

    def __getitem__(self, key: Key) -> Tensor:
        image = self.source.image(self.split, key[2])
        if self.augmentation is None:
            image = central_square(image, self.size, resize=self.resize, interpolation=self.interpolation)
        else:
            image = self._random(image, self.augmentation, key)
        return torch.from_numpy(np.array(image))

    def stack(self, images: list[Tensor]) -> Tensor:
        """A batch uint8 [n, size, size, 4], also of no images."""
        if not images:
            return torch.empty((0, self.size, self.size, 4), dtype=torch.uint8)
        return pad_pixels(torch.stack(images))

    def _random(self, image: Image.Image, augmentation: Augmentation, key: Key) -> Image.Image:
        seed, step, index = key
        draws = Draws(seed, np.array([step]), np.array([index]))
        boxes = sample_crops(draws, image.height, image.width, augmentation.crop_scale, augmentation.crop_ratio)
        top, left, height, width = boxes[0].tolist()
        part = image.crop((left, top, left + width, top + height))
        return part.resize((self.size, self.size), RESAMPLING[self.interpolation])
