"""From samples to training batches: draws on the host, pixels on the device.

The draws of a batch depend on nothing but (seed, step, sample), all known to the host. So the host draws
everything, sorts the images by what they ask for and sends the parameters in one copy; the device only
moves and computes pixels, and the host never waits for it. It runs ahead of the training step, outside
any captured graph; small images are prepared many steps at a time, because a kernel for 128 images of
32 x 32 costs as much to start as one for 8,000.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polarvit.data.augment.config import Augmentation
from polarvit.data.augment.crop import flip_and_crop, resized_crop, sample_crops
from polarvit.data.augment.draws import Draws, Stream, integer
from polarvit.data.augment.erasing import erase_with, erase_with_noise, sample_erasing
from polarvit.data.augment.layout import EvaluationRequest, Layout, TrainingRequest
from polarvit.data.augment.mixing import mix_images, soft_targets
from polarvit.data.augment.operations import Group, group
from polarvit.data.augment.transfer import ship
from polarvit.data.central import central_cut
from polarvit.data.dataset import ImageDataset
from polarvit.data.errors import DataError
from polarvit.data.resident import ResidentDataset
from polarvit.data.sampler import BatchPlan, SequentialPlan

Batch = tuple[Tensor, Tensor]

#: Pixels and steps that are prepared at once, at most: enough to be worth starting the kernels.
_AHEAD = {"cpu": (2**20, 16), "cuda": (2**23, 64)}
_AHEAD_OF_FILES = (2**20, 16)  # images that are read or decoded on the host: it is busy enough


@dataclass(frozen=True)
class Drawn:
    """What the host decides about some steps, before a pixel is touched.

    Attributes:
        layout: samples, and who mixes with whom.
        crop: [flip, boxes] of a resized crop, else [flip, top, left].
        groups: operations of the policy, in order.
        erase: [rows, boxes, keys] of the images that lose a box; empty: none.
        mix: [partner, labels, labels of the partners, share, weight, boxes].
    """

    layout: Layout
    crop: list[np.ndarray]
    groups: list[Group]
    erase: list[np.ndarray]
    mix: list[np.ndarray]


class Augmenter:
    """Makes batches of a data set.

    Args:
        config: what happens to an image.
        num_classes: of the model.
        image_size: height and width the model takes, in pixels.
        resize: evaluation resizes the shorter side to this before the central crop; None: to `image_size`.
    """

    def __init__(self, config: Augmentation, num_classes: int, image_size: int, *, resize: int | None = None) -> None:
        self.config = config
        self.num_classes = num_classes
        self.image_size = image_size
        self.resize = resize or image_size
        if self.resize < image_size:
            raise DataError(f"Augmenter: resize {resize} is smaller than the image size {image_size}")
        self._policy = config.policy()
        self._mixer = config.mixer(image_size, image_size)
        scale = [1 / (255 * s) for s in config.std]
        shift = [-m / s for m, s in zip(config.mean, config.std, strict=True)]
        self._colors = np.array([scale, shift, config.mean], np.float32)
        self._ready: dict[int, Batch] = {}
        self._ready_for: tuple[ImageDataset, TrainingRequest, torch.device] | None = None

    def __call__(
        self,
        dataset: ImageDataset,
        plan: BatchPlan,
        step: int,
        rank: int = 0,
        world: int = 1,
        device: torch.device | str = "cpu",
    ) -> Batch:
        """The training batch of a step: images float32 [b, 3, H, W] and soft targets float32 [b, classes].

        A pure function of its arguments; b is the plan's batch size over `world`.
        """
        device = indexed(device)
        request = TrainingRequest(plan, rank, world, self._mixer, self.config.interpolation)
        if self._ready_for is None or self._ready_for[0] is not dataset or self._ready_for[1:] != (request, device):
            self._check(dataset, plan)
            self._ready, self._ready_for = {}, (dataset, request, device)
        if step not in self._ready:
            steps = range(step, step + self.steps_at_once(dataset, request.size, device))
            drawn = self.draw(dataset, request, steps)
            self._ready = dict(zip(steps, self.render(dataset, request, steps, drawn, device), strict=True))
        return self._ready.pop(step)

    def prepare(
        self,
        dataset: ImageDataset,
        plan: BatchPlan,
        steps: range,
        rank: int = 0,
        world: int = 1,
        device: torch.device | str = "cpu",
    ) -> list[Batch]:
        """The training batches of consecutive steps, made together; each equals that of a call."""
        self._check(dataset, plan)
        request = TrainingRequest(plan, rank, world, self._mixer, self.config.interpolation)
        return self.render(dataset, request, steps, self.draw(dataset, request, steps), indexed(device))

    def steps_at_once(self, dataset: ImageDataset, size: int, device: torch.device | str) -> int:
        """How many steps of `size` images are best prepared together."""
        resident = isinstance(dataset, ResidentDataset)
        pixels, most = _AHEAD.get(torch.device(device).type, (0, 1)) if resident else _AHEAD_OF_FILES
        height, width = dataset.image_size
        return min(max(1, pixels // (size * max(height * width, self.image_size**2))), most)

    def evaluation_batch(
        self,
        dataset: ImageDataset,
        plan: SequentialPlan,
        step: int,
        rank: int = 0,
        world: int = 1,
        device: torch.device | str = "cpu",
    ) -> Batch:
        """An evaluation batch: resized, centre-cropped, normalised float32 [b, 3, H, W], and labels int64 [b]."""
        self._check(dataset, plan)
        device = indexed(device)
        request = EvaluationRequest(plan, rank, world, self.config.interpolation)
        images = dataset.fetch(request, step, device)
        labels, colors = ship([dataset.labels[request.indices(step)].astype(np.int64), self._colors], device)
        if not dataset.crops:
            images = self._central(images)
        return self._normalise(images, colors), labels

    def _check(self, dataset: ImageDataset, plan: BatchPlan | SequentialPlan) -> None:
        if len(dataset.classes) != self.num_classes:
            raise DataError(
                f"{dataset.name} has {len(dataset.classes)} classes but the model has {self.num_classes}: "
                f"create the model with num_classes={len(dataset.classes)} or give the matching data"
            )
        if plan.length != len(dataset):
            raise DataError(f"the plan is for {plan.length} samples but {dataset.name} has {len(dataset)}")
        fixed = isinstance(plan, BatchPlan) and not self.config.resized_crop
        if (fixed or dataset.crops) and dataset.image_size != (self.image_size, self.image_size):
            height, width = dataset.image_size
            raise DataError(
                f"{dataset.name} has images of {height} x {width} but the model takes {self.image_size} x "
                f"{self.image_size}: prepare the data with --image-size {self.image_size} "
                "or set augment.resized_crop=true"
            )

    def draw(self, dataset: ImageDataset, request: TrainingRequest, steps: range) -> Drawn:
        """Everything about consecutive steps but their pixels; only the host works."""
        size, layout = self.image_size, request.layout(steps)
        draws = Draws(request.seed, layout.steps, layout.samples)
        crop = self._sample_crop(draws, *dataset.image_size, cropped=dataset.crops)
        groups: list[Group] = []
        if self._policy:
            rendering = self._policy.rendering
            groups = [g for r in self._policy.sample(draws) for g in group(r, size, size, rendering)]
        mixes, labels = layout.mixes, dataset.labels[layout.samples].astype(np.int64)
        mix = [
            layout.partner,
            labels[: len(layout.partner)],
            labels[layout.partner],
            np.repeat(mixes.share.astype(np.float32), request.size),
            mixes.weight.astype(np.float32),
            mixes.boxes,
        ]
        return Drawn(layout, crop, groups, self._sample_erasing(draws), mix)

    def render(
        self, dataset: ImageDataset, request: TrainingRequest, steps: range, drawn: Drawn, device: torch.device
    ) -> list[Batch]:
        """The batches that were drawn; the host only starts kernels."""
        per_group = [(g.rows, *g.parameters) for g in drawn.groups]
        parts = [[self._colors, drawn.layout.samples], drawn.crop, *per_group, drawn.erase, drawn.mix]
        shipped = iter(ship([array for part in parts for array in part], device))
        (colors, samples), crop, *of_groups, erase, mix = ([next(shipped) for _ in part] for part in parts)

        images = self._fetch(dataset, request, steps, samples, device)
        if self.config.resized_crop and not dataset.crops:
            size = (self.image_size, self.image_size)
            images = resized_crop(images, crop[1], crop[0], size, self.config.interpolation)
        else:
            images = flip_and_crop(images, crop[0], crop[1], crop[2], self.config.crop_padding)
        for g, tensors in zip(drawn.groups, of_groups, strict=True):
            g.run(images, *tensors)
        normal = self._normalise(images, colors)
        if erase:
            rows, holes, keys = erase
            self._erase(normal, rows, holes, keys, colors[2])

        partner, labels, partner_labels, share, weight, boxes = mix
        shape = (len(steps), request.size, *normal.shape[1:])
        batches = normal[: len(partner)].view(shape)
        if drawn.layout.mixes.active.any():
            batches = mix_images(batches, normal.index_select(0, partner).view(shape), weight, boxes)
        targets = soft_targets(labels, partner_labels, share, self.num_classes, self.config.label_smoothing)
        return list(zip(batches.unbind(0), targets.split(request.size), strict=True))

    def _fetch(
        self, dataset: ImageDataset, request: TrainingRequest, steps: range, samples: Tensor, device: torch.device
    ) -> Tensor:
        """Images uint8 [n, H, W, 4] of all samples, in the order of the layout."""
        if isinstance(dataset, ResidentDataset) and dataset.images.device == device:
            return dataset.gather(samples)
        parts = [dataset.fetch(request, step, device) for step in steps]
        if len(parts) == 1:
            return parts[0]
        return torch.cat([*(p[: request.size] for p in parts), *(p[request.size :] for p in parts)])

    def _erase(self, images: Tensor, rows: Tensor, boxes: Tensor, keys: Tensor, color: Tensor) -> None:
        """Overwrite boxes int64 [m, 4] of rows int64 [m] of float32 [n, 3, H, W], in place."""
        chosen = images.index_select(0, rows)
        if self.config.erase_mode == "mean":
            chosen = erase_with(chosen, boxes, color)
        else:
            chosen = erase_with_noise(chosen, boxes, keys)
        images.index_copy_(0, rows, chosen)

    def _sample_crop(self, draws: Draws, height: int, width: int, cropped: bool) -> list[np.ndarray]:
        """[flip, boxes] of a resized crop, else [flip, top, left]."""
        config = self.config
        u = draws.uniform(Stream.CROP, 3)
        flip = u[:, 0] < config.flip
        if config.resized_crop and not cropped:
            return [flip, sample_crops(draws, height, width, config.crop_scale, config.crop_ratio)]
        places = 2 * config.crop_padding + 1
        return [flip, integer(u[:, 1], places), integer(u[:, 2], places)]

    def _sample_erasing(self, draws: Draws) -> list[np.ndarray]:
        """[rows, boxes, keys] of the images that lose a box."""
        config, size = self.config, self.image_size
        if not config.erase_probability:
            return []
        boxes = sample_erasing(
            draws, size, size, config.erase_probability, config.erase_area, config.erase_aspect, config.erase_mode
        )
        rows = np.flatnonzero(boxes[:, 2])
        return [rows, boxes[rows], draws.key[rows].view(np.int64)] if len(rows) else []

    def _central(self, images: Tensor) -> Tensor:
        """Resize the shorter side to `resize` and cut the centre: one linear map, uint8 [n, size, size, 4]."""
        n, height, width, _ = images.shape
        if (height, width) == (self.image_size, self.image_size) and self.resize == self.image_size:
            return images
        rows, columns, top, left = central_cut(height, width, self.resize, self.image_size)
        boxes, still = ship([np.tile([0, 0, height, width], (n, 1)), np.zeros(n, bool)], images.device)
        resized = resized_crop(images, boxes, still, (rows, columns), self.config.interpolation)
        return resized[:, top : top + self.image_size, left : left + self.image_size]

    @staticmethod
    def _normalise(images: Tensor, colors: Tensor) -> Tensor:
        """uint8 [n, H, W, 4] -> float32 [n, 3, H, W], (v / 255 - mean) / std; `colors` are rows of scale, shift."""
        planes = images[..., :3].permute(0, 3, 1, 2)
        planes = planes.to(torch.float32, memory_format=torch.contiguous_format)
        return planes.mul_(colors[0].view(3, 1, 1)).add_(colors[1].view(3, 1, 1))


def indexed(device: torch.device | str) -> torch.device:
    """The device with its number, as its tensors name it."""
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
