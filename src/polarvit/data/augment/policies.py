"""Learned and random policies: which operation, with which value, an image gets.

AutoAugment (Cubuk et al. 2019): one of 25 sub-policies uniformly; its two operations each happen with
their own probability, at a fixed level 0-9 of the ranges below; a sign is drawn where a range is signed.
Ranges and rendering are those of the implementation most recipes use: shear bicubic, translation and
rotation nearest neighbour, grey (128, 128, 128) from outside.

RandAugment (Cubuk et al. 2020) exists in two readings:

`timm` ("rand-m9-mstd0.5-inc1"): each layer draws one of 15 operations and applies it with probability
1/2, at a level drawn from N(magnitude, noise^2) and clipped to 0..10; every operation grows stronger
with the level; geometry is bicubic and fills with the data's mean colour.

`big_vision` ("randaug(2, 10)"): each layer draws one of 16 operations (the 15 and a cutout) and always
applies it at the magnitude; enhancements only go up (factor 1.9 at 10), solarize and posterize grow
*weaker* with the level (at 10 solarize changes nothing and posterize keeps 4 bits); geometry is nearest
neighbour on grey. Translation and cutout are its 100 and 40 pixels at 224, as a part of the size. Its
contrast blends with a constant instead of the mean grey, which is a slip; here it is Pillow's.
"""

from dataclasses import dataclass

import numpy as np
import torch

from polarvit.data.augment.draws import Draws, Stream, gaussian, integer
from polarvit.data.augment.operations import Op, Rendering, Requests

_SIGNED_RANGE = {
    Op.SHEAR_X: 0.3,
    Op.SHEAR_Y: 0.3,
    Op.TRANSLATE_X: 150 / 331,
    Op.TRANSLATE_Y: 150 / 331,
    Op.ROTATE: 30.0,
}
_ENHANCEMENTS = (Op.BRIGHTNESS, Op.CONTRAST, Op.COLOR, Op.SHARPNESS)

Step = tuple[Op, float, int]  # operation, probability, level 0-9

# fmt: off
CIFAR10: tuple[tuple[Step, Step], ...] = (
    ((Op.INVERT, 0.1, 7), (Op.CONTRAST, 0.2, 6)),
    ((Op.ROTATE, 0.7, 2), (Op.TRANSLATE_X, 0.3, 9)),
    ((Op.SHARPNESS, 0.8, 1), (Op.SHARPNESS, 0.9, 3)),
    ((Op.SHEAR_Y, 0.5, 8), (Op.TRANSLATE_Y, 0.7, 9)),
    ((Op.AUTOCONTRAST, 0.5, 8), (Op.EQUALIZE, 0.9, 2)),
    ((Op.SHEAR_Y, 0.2, 7), (Op.POSTERIZE, 0.3, 7)),
    ((Op.COLOR, 0.4, 3), (Op.BRIGHTNESS, 0.6, 7)),
    ((Op.SHARPNESS, 0.3, 9), (Op.BRIGHTNESS, 0.7, 9)),
    ((Op.EQUALIZE, 0.6, 5), (Op.EQUALIZE, 0.5, 1)),
    ((Op.CONTRAST, 0.6, 7), (Op.SHARPNESS, 0.6, 5)),
    ((Op.COLOR, 0.7, 7), (Op.TRANSLATE_X, 0.5, 8)),
    ((Op.EQUALIZE, 0.3, 7), (Op.AUTOCONTRAST, 0.4, 8)),
    ((Op.TRANSLATE_Y, 0.4, 3), (Op.SHARPNESS, 0.2, 6)),
    ((Op.BRIGHTNESS, 0.9, 6), (Op.COLOR, 0.2, 8)),
    ((Op.SOLARIZE, 0.5, 2), (Op.INVERT, 0.0, 3)),
    ((Op.EQUALIZE, 0.2, 0), (Op.AUTOCONTRAST, 0.6, 0)),
    ((Op.EQUALIZE, 0.2, 8), (Op.EQUALIZE, 0.6, 4)),
    ((Op.COLOR, 0.9, 9), (Op.EQUALIZE, 0.6, 6)),
    ((Op.AUTOCONTRAST, 0.8, 4), (Op.SOLARIZE, 0.2, 8)),
    ((Op.BRIGHTNESS, 0.1, 3), (Op.COLOR, 0.7, 0)),
    ((Op.SOLARIZE, 0.4, 5), (Op.AUTOCONTRAST, 0.9, 3)),
    ((Op.TRANSLATE_Y, 0.9, 9), (Op.TRANSLATE_Y, 0.7, 9)),
    ((Op.AUTOCONTRAST, 0.9, 2), (Op.SOLARIZE, 0.8, 3)),
    ((Op.EQUALIZE, 0.8, 8), (Op.INVERT, 0.1, 3)),
    ((Op.TRANSLATE_Y, 0.7, 9), (Op.AUTOCONTRAST, 0.9, 1)),
)

IMAGENET: tuple[tuple[Step, Step], ...] = (
    ((Op.POSTERIZE, 0.4, 8), (Op.ROTATE, 0.6, 9)),
    ((Op.SOLARIZE, 0.6, 5), (Op.AUTOCONTRAST, 0.6, 5)),
    ((Op.EQUALIZE, 0.8, 8), (Op.EQUALIZE, 0.6, 3)),
    ((Op.POSTERIZE, 0.6, 7), (Op.POSTERIZE, 0.6, 6)),
    ((Op.EQUALIZE, 0.4, 7), (Op.SOLARIZE, 0.2, 4)),
    ((Op.EQUALIZE, 0.4, 4), (Op.ROTATE, 0.8, 8)),
    ((Op.SOLARIZE, 0.6, 3), (Op.EQUALIZE, 0.6, 7)),
    ((Op.POSTERIZE, 0.8, 5), (Op.EQUALIZE, 1.0, 2)),
    ((Op.ROTATE, 0.2, 3), (Op.SOLARIZE, 0.6, 8)),
    ((Op.EQUALIZE, 0.6, 8), (Op.POSTERIZE, 0.4, 6)),
    ((Op.ROTATE, 0.8, 8), (Op.COLOR, 0.4, 0)),
    ((Op.ROTATE, 0.4, 9), (Op.EQUALIZE, 0.6, 2)),
    ((Op.EQUALIZE, 0.0, 7), (Op.EQUALIZE, 0.8, 8)),
    ((Op.INVERT, 0.6, 4), (Op.EQUALIZE, 1.0, 8)),
    ((Op.COLOR, 0.6, 4), (Op.CONTRAST, 1.0, 8)),
    ((Op.ROTATE, 0.8, 8), (Op.COLOR, 1.0, 2)),
    ((Op.COLOR, 0.8, 8), (Op.SOLARIZE, 0.8, 7)),
    ((Op.SHARPNESS, 0.4, 7), (Op.INVERT, 0.6, 8)),
    ((Op.SHEAR_X, 0.6, 5), (Op.EQUALIZE, 1.0, 9)),
    ((Op.COLOR, 0.4, 0), (Op.EQUALIZE, 0.6, 3)),
    ((Op.EQUALIZE, 0.4, 7), (Op.SOLARIZE, 0.2, 4)),
    ((Op.SOLARIZE, 0.6, 5), (Op.AUTOCONTRAST, 0.6, 5)),
    ((Op.INVERT, 0.6, 4), (Op.EQUALIZE, 1.0, 8)),
    ((Op.COLOR, 0.6, 4), (Op.CONTRAST, 1.0, 8)),
    ((Op.EQUALIZE, 0.8, 8), (Op.EQUALIZE, 0.6, 3)),
)
# fmt: on

RAND_OPS = (
    Op.AUTOCONTRAST, Op.EQUALIZE, Op.INVERT, Op.ROTATE, Op.POSTERIZE, Op.SOLARIZE, Op.SOLARIZE_ADD, Op.COLOR,
    Op.CONTRAST, Op.BRIGHTNESS, Op.SHARPNESS, Op.SHEAR_X, Op.SHEAR_Y, Op.TRANSLATE_X, Op.TRANSLATE_Y,
)  # fmt: skip


def level_value(op: Op, level: int) -> tuple[float, float]:
    """(base, swing) of an AutoAugment level 0-9: the value is base + swing times a random sign."""
    if op in _SIGNED_RANGE:
        return 0.0, _at(level, 0.0, _SIGNED_RANGE[op])
    if op in _ENHANCEMENTS:
        return 1.0, _at(level, 0.0, 0.9)
    if op is Op.POSTERIZE:
        return float(round(_at(level, 8.0, 4.0))), 0.0
    if op is Op.SOLARIZE:
        return _at(level, 256.0, 0.0), 0.0
    return 0.0, 0.0


def _at(level: int, weakest: float, strongest: float) -> float:
    return float(np.linspace(weakest, strongest, 10)[level])


class AutoAugment:
    """One of 25 sub-policies of two operations each."""

    slots = 2
    rendering = Rendering()

    def __init__(self, policy: tuple[tuple[Step, Step], ...]) -> None:
        self._op = np.array([[int(op) for op, _, _ in pair] for pair in policy])
        self._probability = np.array([[p for _, p, _ in pair] for pair in policy])
        values = np.array([[level_value(op, level) for op, _, level in pair] for pair in policy])
        self._base, self._swing = values[..., 0], values[..., 1]

    def sample(self, draws: Draws) -> list[Requests]:
        """What each of n images gets, slot after slot."""
        u = draws.uniform(Stream.POLICY, 1 + 2 * self.slots)
        chosen = integer(u[:, 0], len(self._op))
        apply = u[:, 1::2] < self._probability[chosen]
        value = self._base[chosen] + np.where(u[:, 2::2] < 0.5, -1.0, 1.0) * self._swing[chosen]
        op = self._op[chosen] * apply
        return [Requests(op[:, slot], value[:, slot]) for slot in range(self.slots)]


@dataclass(frozen=True)
class RandAugment:
    """Layers of one random operation each, in timm's reading.

    Args:
        layers: operations in a row.
        magnitude: level 0-10.
        noise: standard deviation of the level.
        fill: colour from outside.
    """

    layers: int
    magnitude: float
    noise: float
    fill: tuple[int, int, int]

    @property
    def rendering(self) -> Rendering:
        return Rendering("bicubic", "bicubic", "bicubic", self.fill)

    def sample(self, draws: Draws) -> list[Requests]:
        """What each of n images gets, layer after layer."""
        u = draws.uniform(Stream.POLICY, 5 * self.layers).reshape(-1, self.layers, 5)
        normal = gaussian(torch.from_numpy(u[..., 2]), torch.from_numpy(u[..., 3])).numpy()
        level = (self.magnitude + self.noise * normal).clip(0, 10) / 10
        choice, apply = integer(u[..., 0], len(RAND_OPS)), u[..., 1] < 0.5
        sign = np.where(u[..., 4] < 0.5, -1.0, 1.0)
        op = np.array([int(op) for op in RAND_OPS])[choice] * apply
        value = _rand_values(op, level, sign, translate=0.45, growing=True)
        return [Requests(op[:, layer], value[:, layer]) for layer in range(self.layers)]


@dataclass(frozen=True)
class BigVisionRandAugment:
    """Layers of one random operation each, in big_vision's reading.

    Args:
        layers: operations in a row.
        magnitude: level 0-10.
    """

    layers: int
    magnitude: float

    rendering = Rendering("nearest", "nearest", "nearest")

    def sample(self, draws: Draws) -> list[Requests]:
        """What each of n images gets, layer after layer."""
        u = draws.uniform(Stream.POLICY, 4 * self.layers).reshape(-1, self.layers, 4)
        ops = (*RAND_OPS, Op.CUTOUT)
        op = np.array([int(op) for op in ops])[integer(u[..., 0], len(ops))]
        level = np.full(op.shape, self.magnitude / 10)
        sign = np.where(u[..., 1] < 0.5, -1.0, 1.0)
        value = _rand_values(op, level, sign, translate=100 / 224, growing=False)
        return [Requests(op[:, k], value[:, k], u[:, k, 2:]) for k in range(self.layers)]


def _rand_values(op: np.ndarray, level: np.ndarray, sign: np.ndarray, translate: float, growing: bool) -> np.ndarray:
    """Values of operations int64 [...] at levels float64 [...] in [0, 1]: float64 [...]."""
    solarize, bits = np.floor(level * 256), np.floor(level * 4)
    enhance = 1 + sign * level * 0.9 if growing else 0.1 + 1.8 * level
    value = {
        Op.SHEAR_X: sign * level * 0.3,
        Op.SHEAR_Y: sign * level * 0.3,
        Op.TRANSLATE_X: sign * level * translate,
        Op.TRANSLATE_Y: sign * level * translate,
        Op.ROTATE: sign * level * 30,
        Op.SOLARIZE: 256 - solarize if growing else solarize,
        Op.POSTERIZE: 4 - bits if growing else bits,
        Op.SOLARIZE_ADD: np.floor(level * 110),
        Op.CUTOUT: level * (40 / 224),
        **dict.fromkeys(_ENHANCEMENTS, enhance),
    }
    out = np.zeros_like(level)
    for kind, values in value.items():
        np.copyto(out, values, where=op == int(kind))
    return out


Policy = AutoAugment | RandAugment | BigVisionRandAugment
