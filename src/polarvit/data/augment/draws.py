"""Random numbers without a state: every one is a hash of what it is for.

A number is keyed by (seed, step, sample, stream, position). It does not matter which process asks, in
what order, on which device or in what company: the answer is the same. So the data a run sees is a
pure function of the step, a run resumes exactly, and any number of processes see the same batch.

The hash is the finaliser of splitmix64, a bijection of 64-bit words, applied once for each word of the
key. Torch has no unsigned 64-bit arithmetic on every device; int64 wraps the same way, and only the
right shift needs care.
"""

import math
from enum import IntEnum

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


class Stream(IntEnum):
    """What a number is for. Streams of one key are independent; each has room for 2^32 numbers."""

    ORDER = 0
    CROP = 1
    RESIZED_CROP = 2
    POLICY = 3
    ERASING = 4
    NOISE = 5
    MIX = 6
    SPLIT = 7


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (x >> bits) & (2 ** (64 - bits) - 1)


def mix64(x: Tensor) -> Tensor:
    """A bijection of int64 words, elementwise, whose outputs look independent."""
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def word(number: int) -> int:
    """An integer of any size as a signed 64-bit word."""
    return (number + 2**63) % 2**64 - 2**63


class Draws:
    """The random numbers of n samples.

    Args:
        seed: of the run, any integer.
        step: optimizer step of each sample, int64 [n].
        sample: index of each sample in the whole data set, int64 [n].
    """

    def __init__(self, seed: int, step: Tensor, sample: Tensor) -> None:
        key = mix64(torch.full_like(sample, word(seed)) + _GOLDEN)
        key = mix64((key ^ step) + _GOLDEN)
        self.key = mix64((key ^ sample) + _GOLDEN)

    @classmethod
    def of_keys(cls, key: Tensor) -> "Draws":
        """The same draws from their keys int64 [n], on the keys' device."""
        draws = cls.__new__(cls)
        draws.key = key
        return draws

    def bits(self, stream: Stream, count: int) -> Tensor:
        """Numbers 0..count-1 of a stream for every sample: 64 random bits each, int64 [n, count]."""
        position = torch.arange(count, device=self.key.device) + (int(stream) << 32)
        return mix64(self.key[:, None] + position * _GOLDEN)

    def uniform(self, stream: Stream, count: int) -> Tensor:
        """Uniform in [0, 1) with 53 bits: float64 [n, count]."""
        return _shift(self.bits(stream, count), 11).to(torch.float64) * 2.0**-53


def batch_draws(seed: int, step: int) -> Draws:
    """What is drawn once for a whole step, by no sample: the key of sample -1."""
    return Draws(seed, torch.tensor([step]), torch.tensor([-1]))


def integer(uniform: Tensor, count: Tensor | int) -> Tensor:
    """A uniform number as an integer in 0..count-1: int64, same shape."""
    return (uniform * count).floor().to(torch.int64)


def gaussian(first: Tensor, second: Tensor) -> Tensor:
    """Two uniform numbers as one standard normal (Box and Muller), elementwise."""
    return torch.sqrt(-2.0 * torch.log1p(-first)) * torch.cos(2.0 * math.pi * second)
