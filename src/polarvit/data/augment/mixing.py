"""MixUp and CutMix of a global batch, and the soft targets that go with them.

Whether, how and how much a step mixes is drawn once for the step, so every process knows it. The
partner of a sample is its neighbour in the global batch: 0 with 1, 2 with 3, and so on. The batch is
already a random permutation, so a neighbour is as random as any other partner; and a process whose
share is even has all partners at home.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from polarvit.data.augment.draws import Stream, batch_draws, gaussian
from polarvit.data.augment.pixels import inside

_NOTHING = (0, 0, 0, 0)


@dataclass(frozen=True)
class Mix:
    """How one step mixes: keep `weight` of the image outside `box`, all of the partner inside it.

    `share` is the part of the target that stays with the image.
    """

    weight: float = 1.0
    box: tuple[int, int, int, int] = _NOTHING
    share: float = 1.0

    @property
    def active(self) -> bool:
        return self.share < 1.0


@dataclass(frozen=True)
class Mixer:
    """What a step may do: settings of `Augmentation`, and the size of the images."""

    mixup_alpha: float
    cutmix_alpha: float
    probability: float
    switch: float
    height: int
    width: int

    def sample(self, seed: int, step: int) -> Mix:
        """The mix of a step."""
        return _sample(self, seed, step)

    def _sample(self, seed: int, step: int) -> Mix:
        if self.probability == 0 or (self.mixup_alpha == 0 and self.cutmix_alpha == 0):
            return Mix()
        u = batch_draws(seed, step).uniform(Stream.MIX, 256)[0]
        apply, switch, y, x = u[:4].tolist()
        if apply >= self.probability:
            return Mix()
        if self.mixup_alpha == 0 or (self.cutmix_alpha > 0 and switch < self.switch):
            return self._cut(beta(self.cutmix_alpha, u[4:]), y, x)
        kept = beta(self.mixup_alpha, u[4:])
        return Mix(weight=kept, share=kept)

    def _cut(self, kept: float, y: float, x: float) -> Mix:
        """A box of about 1 - kept of the area, its centre anywhere, clipped; the share is the true pixel ratio."""
        ratio = math.sqrt(1 - kept)
        half_y, half_x = int(self.height * ratio) // 2, int(self.width * ratio) // 2
        centre_y, centre_x = int(self.height * y), int(self.width * x)
        top, bottom = max(centre_y - half_y, 0), min(centre_y + half_y, self.height)
        left, right = max(centre_x - half_x, 0), min(centre_x + half_x, self.width)
        box = (top, left, bottom - top, right - left)
        return Mix(box=box, share=1 - box[2] * box[3] / (self.height * self.width))


@lru_cache(maxsize=256)
def _sample(mixer: Mixer, seed: int, step: int) -> Mix:
    """A step is asked for more than once: for its samples, then for its mix."""
    return mixer._sample(seed, step)


def beta(alpha: float, uniform: Tensor) -> float:
    """One draw of Beta(alpha, alpha) from uniform numbers float64 [m]; in logarithms, so any alpha will do."""
    if alpha == 1:
        return float(uniform[0])
    half = uniform.shape[0] // 2
    first, second = _log_gamma_draw(alpha, uniform[:half]), _log_gamma_draw(alpha, uniform[half:])
    return 1.0 / (1.0 + math.exp(min(second - first, 700.0)))


def _log_gamma_draw(alpha: float, uniform: Tensor) -> float:
    """Logarithm of a draw of Gamma(alpha, 1): Marsaglia and Tsang at alpha + 1, taken down by u^(1/alpha)."""
    boost, u = uniform[0], uniform[1:]
    u = u[: u.shape[0] // 3 * 3].view(-1, 3)
    d = alpha + 1 - 1 / 3
    x = gaussian(u[:, 0], u[:, 1])
    v = (1 + x / math.sqrt(9 * d)) ** 3
    log_v = torch.log(v.clamp(min=1e-300))
    accepted = (v > 0) & (torch.log1p(-u[:, 2]) < 0.5 * x * x + d - d * v + d * log_v)
    first = int(accepted.to(torch.uint8).argmax())  # each try passes with 95 % or more; there are about forty
    return math.log(d) + float(log_v[first]) + math.log1p(-float(boost)) / alpha


def partners(size: int) -> np.ndarray:
    """Position of each sample's partner in a global batch: int64 [size]. An odd one out takes the one before it."""
    other = np.arange(size) ^ 1
    other[other >= size] = max(size - 2, 0)
    return other


def mix_images(images: Tensor, partner: Tensor, weight: Tensor, boxes: Tensor) -> Tensor:
    """Blend and paste: images, partner float32 [n, 3, H, W], weight float32 [n], boxes int64 [n, 4]."""
    hole = inside(boxes, *images.shape[-2:])[:, None]
    kept = torch.where(hole, 0.0, weight.view(-1, 1, 1, 1))
    return torch.lerp(partner, images, kept)


def soft_targets(label: Tensor, partner: Tensor, share: Tensor, classes: int, smoothing: float) -> Tensor:
    """Smoothed one-hot targets of two labels int64 [n], mixed by share float32 [n]: float32 [n, classes]."""
    names = torch.arange(classes, device=label.device)
    share = share[:, None]
    mixed = (names == label[:, None]) * share + (names == partner[:, None]) * (1 - share)
    return mixed.mul_(1 - smoothing).add_(smoothing / classes)
