"""Images made worse, step by step: blur, noise, contrast. Values stay between 0 and 1; masks stay as they are.

So does what was padded to make an image square: it is no part of what a camera saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from polarvit.data.augment.layout import EvaluationRequest
from polarvit.data.augment.masks import MaskAugmenter
from polarvit.data.augment.pipeline import Batch
from polarvit.data.dataset import ImageDataset
from polarvit.data.sampler import SequentialPlan
from polarvit.data.square import padding_of

Corrupt = Callable[[Tensor, float, Sequence[int]], Tensor]
"""From images [B, 3, H, W], a strength and a seed for every image."""


def blur(images: Tensor, sigma: float, _: Sequence[int]) -> Tensor:
    """A Gaussian of `sigma` pixels over what lies in the image, not in its padding.

    In float64: float32 could be TF32 on a GPU.
    """
    radius = max(1, round(3 * sigma))
    places = torch.arange(-radius, radius + 1, device=images.device, dtype=torch.float64)
    kernel = torch.exp(-places.square() / (2 * sigma**2)).view(1, 1, 1, -1)
    real = (~padding_of(images)).double().unsqueeze(1)
    planes = torch.cat([images * real, real], 1).flatten(0, 1).unsqueeze(1)
    for each, pad in ((kernel, (0, radius)), (kernel.transpose(2, 3), (radius, 0))):
        planes = F.conv2d(planes, each, padding=pad)
    sums = planes.view(len(images), 4, *images.shape[-2:])
    seen = sums[:, 3:] > 0
    return torch.where(seen, sums[:, :3] / torch.where(seen, sums[:, 3:], 1.0), images).to(images.dtype)


def noise(images: Tensor, sigma: float, seeds: Sequence[int]) -> Tensor:
    """Gaussian noise of standard deviation `sigma`, for an image the same on every machine, cut to [0, 1]."""
    drawn = [torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return (images + sigma * torch.stack(drawn).to(images)).clamp(0, 1)


def contrast(images: Tensor, factor: float, _: Sequence[int]) -> Tensor:
    """Every value moved away from (factor > 1) or towards (< 1) the mean of its image, cut to [0, 1]."""
    real = ~padding_of(images).unsqueeze(1)
    mean = (images * real).sum((1, 2, 3), keepdim=True) / (3 * real.sum((1, 2, 3), keepdim=True)).clamp_min(1)
    return (mean + factor * (images - mean)).clamp(0, 1)


CORRUPTIONS: dict[str, tuple[Corrupt, str, tuple[float, ...]]] = {
    "blur": (blur, "standard deviation, px", (1.0, 2.0, 3.0, 4.0, 6.0)),
    "noise": (noise, "standard deviation", (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (contrast, "factor", (0.25, 0.5, 0.75, 1.5, 2.0)),
}
"""Name: what is done, what the number means, the numbers; without any corruption, blur and noise are 0, contrast 1."""
CLEAN = {"blur": 0.0, "noise": 0.0, "contrast": 1.0}


class CorruptingAugmenter(MaskAugmenter):
    """Evaluation batches with one corruption of one strength, drawn from a seed and the place of the image."""

    def __init__(self, plain: MaskAugmenter, corrupt: Corrupt, strength: float, seed: int = 0) -> None:
        super().__init__(plain.config, plain.num_classes, plain.image_size)
        self.corrupt, self.strength, self.seed = corrupt, strength, seed

    def evaluation_batch(
        self,
        dataset: ImageDataset,
        plan: SequentialPlan,
        step: int,
        rank: int = 0,
        world: int = 1,
        device: torch.device | str = "cpu",
    ) -> Batch:
        images, masks = super().evaluation_batch(dataset, plan, step, rank, world, device)
        mean, std = (torch.tensor(v, device=images.device).view(3, 1, 1) for v in (self.config.mean, self.config.std))
        places = EvaluationRequest(plan, rank, world).indices(step).tolist()
        seeds = [1_000_003 * self.seed + place for place in places]
        worse = (self.corrupt(images * std + mean, self.strength, seeds) - mean) / std
        return torch.where(padding_of(images).unsqueeze(1), images, worse), masks
