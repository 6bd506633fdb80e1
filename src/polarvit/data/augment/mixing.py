"""MixUp and CutMix of a global batch, and the soft targets that go with them.

Whether, how and how much a step mixes is drawn once for the step, so every process knows it. The
partner of a sample is its neighbour in the global batch, which is already a random permutation. In
`pairs` 0 mixes with 1 and 1 with 0, as in timm: a process whose share is even has all partners at
home. In a `ring` 0 mixes with 1, 1 with 2 and the last with 0: no two samples are mixed from the same
two images, as with partners drawn from a permutation (HexFormer).
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from polarvit.data.augment.draws import Draws, Stream, gaussian, integer
from polarvit.data.augment.pixels import inside

Partners = Literal["pairs", "ring"]
_FIXED = 4  # numbers of a step that are not for Beta: mix at all, which way, centre of the cut


@dataclass(frozen=True)
class Mixes:
    """How k steps mix: keep `weight` of the image outside `boxes`, all of the partner inside them.

    `share` is the part of the target that stays with the image.
    """

    weight: np.ndarray  #: float64 [k]
    boxes: np.ndarray  #: int64 [k, 4] (top, left, height, width)
    share: np.ndarray  #: float64 [k]

    @property
    def active(self) -> np.ndarray:
        """Steps that mix at all: bool [k]."""
        return self.share < 1.0


@dataclass(frozen=True)
class Mixer:
    """What a step may do: settings of `Augmentation`, and the size of the images."""

    mixup_alpha: float
    cutmix_alpha: float
    probability: float
    switch: float
    partners: Partners
    height: int
    width: int

    def sample(self, seed: int, steps: np.ndarray) -> Mixes:
        """The mixes of steps int64 [k]."""
        count = len(steps)
        mixes = Mixes(np.ones(count), np.zeros((count, 4), np.int64), np.ones(count))
        if self.probability == 0 or (self.mixup_alpha == 0 and self.cutmix_alpha == 0):
            return mixes
        draws = Draws(seed, steps, np.full(count, -1))
        apply, switch, y, x = draws.uniform(Stream.MIX, _FIXED).T
        active = apply < self.probability
        cuts = active & ((self.mixup_alpha == 0) | ((self.cutmix_alpha > 0) & (switch < self.switch)))
        cut, blend = np.flatnonzero(cuts), np.flatnonzero(active & ~cuts)
        if len(cut):
            kept = beta(self.cutmix_alpha, draws.of(cut))
            mixes.boxes[cut], mixes.share[cut] = self._cut(kept, y[cut], x[cut])
        if len(blend):
            mixes.weight[blend] = mixes.share[blend] = beta(self.mixup_alpha, draws.of(blend))
        return mixes

    def _cut(self, kept: np.ndarray, y: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Boxes of about 1 - kept of the area, their centres anywhere, clipped; shares are the true pixel ratios."""
        ratio = np.sqrt(1 - kept)
        half_y, half_x = integer(ratio, self.height) // 2, integer(ratio, self.width) // 2
        centre_y, centre_x = integer(y, self.height), integer(x, self.width)
        top, bottom = np.maximum(centre_y - half_y, 0), np.minimum(centre_y + half_y, self.height)
        left, right = np.maximum(centre_x - half_x, 0), np.minimum(centre_x + half_x, self.width)
        boxes = np.stack([top, left, bottom - top, right - left], -1)
        return boxes, 1 - boxes[:, 2] * boxes[:, 3] / (self.height * self.width)


def beta(alpha: float, draws: Draws) -> np.ndarray:
    """One draw of Beta(alpha, alpha) for each key: float64 [k]. In logarithms, so any alpha will do."""
    if alpha == 1:
        return draws.uniform(Stream.MIX, 1, _FIXED)[:, 0]
    first, second = (_log_gamma(alpha, draws.uniform(Stream.MIX, 126, start)) for start in (_FIXED, _FIXED + 126))
    return np.array([1.0 / (1.0 + math.exp(min(b - a, 700.0))) for a, b in zip(first, second, strict=True)])


def _log_gamma(alpha: float, uniform: np.ndarray) -> list[float]:
    """Logarithms of draws of Gamma(alpha, 1): Marsaglia and Tsang at alpha + 1, taken down by u^(1/alpha)."""
    u = torch.from_numpy(uniform[:, 1:124]).unflatten(1, (-1, 3))
    d = alpha + 1 - 1 / 3
    x = gaussian(u[..., 0], u[..., 1])
    v = (1 + x / math.sqrt(9 * d)) ** 3
    log_v = torch.log(v.clamp(min=1e-300))
    accepted = (v > 0) & (torch.log1p(-u[..., 2]) < 0.5 * x * x + d - d * v + d * log_v)
    first = accepted.to(torch.uint8).argmax(1)  # each try passes with 95 % or more; there are about forty
    found = log_v.gather(1, first[:, None])[:, 0].tolist()
    return [math.log(d) + y + math.log1p(-b) / alpha for y, b in zip(found, uniform[:, 0].tolist(), strict=True)]


def partners(size: int, kind: Partners) -> np.ndarray:
    """Position of each sample's partner in a global batch: int64 [size]. In pairs an odd one takes the one before."""
    if kind == "ring":
        return (np.arange(size) + 1) % size
    other = np.arange(size) ^ 1
    other[other >= size] = max(size - 2, 0)
    return other


def mix_images(images: Tensor, partner: Tensor, weight: Tensor, boxes: Tensor) -> Tensor:
    """Blend and paste k batches: images, partner float32 [k, b, 3, H, W], weight float32 [k], boxes int64 [k, 4]."""
    hole = inside(boxes, *images.shape[-2:])[:, None, None]
    kept = torch.where(hole, 0.0, weight.view(-1, 1, 1, 1, 1))
    return torch.lerp(partner, images, kept)


def soft_targets(label: Tensor, partner: Tensor, share: Tensor, classes: int, smoothing: float) -> Tensor:
    """Smoothed one-hot targets of two labels int64 [n], mixed by share float32 [n]: float32 [n, classes]."""
    names = torch.arange(classes, device=label.device)
    share = share[:, None]
    mixed = (names == label[:, None]) * share + (names == partner[:, None]) * (1 - share)
    return mixed.mul_(1 - smoothing).add_(smoothing / classes)
