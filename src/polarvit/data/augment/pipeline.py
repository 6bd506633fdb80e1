"""From samples to training batches: draws on the host, pixels on the device.

The draws of a batch depend on nothing but (seed, step, sample), all known to the host. So the host draws
everything, sorts the images by what they ask for and sends the parameters in one copy; the device only
moves and computes pixels, and the host never waits for it. It runs ahead of the training step, outside
any captured graph; small images are prepared several steps at a time, because a kernel for 128 images
of 32 x 32 costs as much to start as one for 2,000.
"""

import torch
from torch import Tensor

from polarvit.data.augment.config import Augmentation
from polarvit.data.augment.crop import flip_and_crop, resized_crop, sample_crops
from polarvit.data.augment.draws import Draws, Stream, integer
from polarvit.data.augment.erasing import erase_with, erase_with_noise, sample_erasing
from polarvit.data.augment.layout import EvaluationRequest, TrainingRequest
from polarvit.data.augment.mixing import mix_images, soft_targets
from polarvit.data.augment.operations import Group, group
from polarvit.data.augment.transfer import ship
from polarvit.data.dataset import ImageDataset
from polarvit.data.errors import DataError
from polarvit.data.sampler import BatchPlan, SequentialPlan

Batch = tuple[Tensor, Tensor]

#: Pixels that are prepared at once: enough to be worth starting the kernels.
_PIXELS_AHEAD = {"cpu": 2**20, "cuda": 2**21}
_STEPS_AHEAD = 16


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
        self._scale = torch.tensor([1 / (255 * s) for s in config.std])
        self._shift = torch.tensor([-m / s for m, s in zip(config.mean, config.std, strict=True)])
        self._mean = torch.tensor(config.mean)
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
        device = torch.device(device)
        request = TrainingRequest(plan, rank, world, self._mixer)
        if self._ready_for is None or self._ready_for[0] is not dataset or self._ready_for[1:] != (request, device):
            self._check(dataset, plan)
            self._ready, self._ready_for = {}, (dataset, request, device)
        if step not in self._ready:
            pixels = plan.batch_size // world * self.image_size**2
            ahead = min(max(1, _PIXELS_AHEAD.get(device.type, 0) // pixels), _STEPS_AHEAD)
            batches = self._prepare(dataset, request, range(step, step + ahead), device)
            self._ready = dict(zip(range(step, step + ahead), batches, strict=True))
        return self._ready.pop(step)

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
        device = torch.device(device)
        request = EvaluationRequest(plan, rank, world)
        images = dataset.fetch(request, step, device)
        labels = torch.from_numpy(dataset.labels[request.indices(step)])
        (labels,) = ship([labels], device)
        if not dataset.crops:
            images = self._central(images)
        return self._normalise(images), labels

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
                f"{self.image_size}: prepare the data with image_size={self.image_size} or switch on resized_crop"
            )

    def _prepare(
        self, dataset: ImageDataset, request: TrainingRequest, steps: range, device: torch.device
    ) -> list[Batch]:
        """The batches of several steps, made together."""
        layouts = [request.layout(step) for step in steps]
        images = [dataset.fetch(request, step, device) for step in steps]
        counts = torch.tensor([len(layout.samples) for layout in layouts])
        samples = torch.cat([torch.from_numpy(layout.samples) for layout in layouts])
        draws = Draws(request.seed, torch.repeat_interleave(torch.tensor(list(steps)), counts), samples)
        augmented = self._augment(images[0] if len(images) == 1 else torch.cat(images), draws, dataset.crops)

        local = request.plan.batch_size // request.world
        start = torch.repeat_interleave(counts.cumsum(0) - counts, local)
        own = start + torch.arange(local).repeat(len(layouts))
        partner = start + torch.cat([torch.from_numpy(layout.partner) for layout in layouts])
        labels = torch.from_numpy(dataset.labels)[samples]
        weight, share = (
            torch.tensor([[x.mix.weight, x.mix.share] for x in layouts]).repeat_interleave(local, 0).unbind(1)
        )
        boxes = torch.tensor([layout.mix.box for layout in layouts]).repeat_interleave(local, 0)
        own_labels, partner_labels = labels[own], labels[partner]
        own, partner, own_labels, partner_labels, weight, share, boxes = ship(
            [own, partner, own_labels, partner_labels, weight, share, boxes], device
        )
        if any(layout.mix.active for layout in layouts):
            augmented = mix_images(augmented[own], augmented[partner], weight, boxes)
        targets = soft_targets(own_labels, partner_labels, share, self.num_classes, self.config.label_smoothing)
        return list(zip(augmented.split(local), targets.split(local), strict=True))

    def _augment(self, images: Tensor, draws: Draws, cropped: bool) -> Tensor:
        """uint8 [n, H, W, 4] on the device and draws on the host -> normalised float32 [n, 3, size, size]."""
        config, size, device = self.config, self.image_size, images.device
        crop = self._sample_crop(draws, images.shape[1], images.shape[2], cropped)
        requests = self._policy.sample(draws) if self._policy else []
        slots = [group(r, size, size, self._policy.rendering) for r in requests] if self._policy else []
        erase = self._sample_erasing(draws)

        plan = [*crop, *erase]
        groups = [g for slot in slots for g in slot]
        shipped = ship([*plan, *(t for g in groups for t in (g.rows, g.parameters) if t is not None)], device)
        crop, erase, rest = shipped[: len(crop)], shipped[len(crop) : len(plan)], iter(shipped[len(plan) :])

        if config.resized_crop and not cropped:
            images = resized_crop(images, crop[1], crop[0], (size, size), config.interpolation)
        else:
            images = flip_and_crop(images, crop[0], crop[1], crop[2], config.crop_padding)
        for g in groups:
            Group(g.kernel, next(rest), None if g.parameters is None else next(rest)).run(images)
        normal = self._normalise(images)
        if not config.erase_probability:
            return normal
        boxes, keys = erase
        if config.erase_mode == "mean":
            return erase_with(normal, boxes, self._on(device)[2])
        return erase_with_noise(normal, boxes, Draws.of_keys(keys))

    def _sample_crop(self, draws: Draws, height: int, width: int, cropped: bool) -> list[Tensor]:
        """[flip, boxes] of a resized crop, else [flip, top, left]."""
        config = self.config
        u = draws.uniform(Stream.CROP, 3)
        flip = u[:, 0] < config.flip
        if config.resized_crop and not cropped:
            return [flip, sample_crops(draws, height, width, config.crop_scale, config.crop_ratio)]
        places = 2 * config.crop_padding + 1
        return [flip, integer(u[:, 1], places), integer(u[:, 2], places)]

    def _sample_erasing(self, draws: Draws) -> list[Tensor]:
        config = self.config
        if not config.erase_probability:
            return []
        size = self.image_size
        boxes = sample_erasing(
            draws, size, size, config.erase_probability, config.erase_area, config.erase_aspect, config.erase_mode
        )
        return [boxes, draws.key]

    def _central(self, images: Tensor) -> Tensor:
        """Resize the shorter side to `resize` and cut the centre: one linear map, uint8 [n, size, size, 4]."""
        n, height, width, _ = images.shape
        if (height, width) == (self.image_size, self.image_size) and self.resize == self.image_size:
            return images
        short = min(height, width)
        size = (round(height * self.resize / short), round(width * self.resize / short))
        whole = torch.tensor([[0, 0, height, width]]).expand(n, 4)
        boxes, still = ship([whole.contiguous(), torch.zeros(n, dtype=torch.bool)], images.device)
        resized = resized_crop(images, boxes, still, size, self.config.interpolation)
        top, left = round((size[0] - self.image_size) / 2), round((size[1] - self.image_size) / 2)
        return resized[:, top : top + self.image_size, left : left + self.image_size]

    def _normalise(self, images: Tensor) -> Tensor:
        """uint8 [n, H, W, 4] -> float32 [n, 3, H, W], (v / 255 - mean) / std."""
        scale, shift, _ = self._on(images.device)
        planes = images[..., :3].permute(0, 3, 1, 2)
        planes = planes.to(torch.float32, memory_format=torch.contiguous_format)
        return planes.mul_(scale.view(3, 1, 1)).add_(shift.view(3, 1, 1))

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        if self._scale.device != device:
            self._scale, self._shift, self._mean = ship([self._scale, self._shift, self._mean], device)
        return self._scale, self._shift, self._mean
