"""Random numbers without a state: every one is a hash of what it is for.

A number is keyed by (seed, step, sample, stream, position). It does not matter which process asks, in
what order, on which device or in what company: the answer is the same. So the data a run sees is a
pure function of the step, a run resumes exactly, and any number of processes see the same batch. And a
number nobody needs is never computed: later attempts are drawn only for those whose first one failed.

The hash is the finaliser of splitmix64, a bijection of 64-bit words, applied once for each word of the
key. The host hashes with NumPy, whole chunks of steps at once. Torch has no unsigned 64-bit arithmetic on
every device; there int64 wraps the same way, and only the right shift needs care.
"""

import math
from collections.abc import Callable
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


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


def mix64(x: np.ndarray) -> np.ndarray:
    """A bijection of uint64 words, in place, whose outputs look independent."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(_FIRST)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_SECOND)
    x ^= x >> np.uint64(31)
    return x


class Draws:
    """The random numbers of n samples.

    Args:
        seed: of the run, any integer.
        step: optimizer step of each sample, int64 [n].
        sample: index of each sample in the whole data set, int64 [n]; -1 for what a step draws once.
    """

    def __init__(self, seed: int, step: np.ndarray, sample: np.ndarray) -> None:
        key = mix64(np.array([(seed + _GOLDEN) % 2**64], np.uint64))
        key = mix64((key ^ _words(step)) + np.uint64(_GOLDEN))
        self.key = mix64((key ^ _words(sample)) + np.uint64(_GOLDEN))  #: uint64 [n]

    def of(self, rows: np.ndarray) -> "Draws":
        """The draws of some of the samples."""
        part = Draws.__new__(Draws)
        part.key = self.key[rows]
        return part

    def bits(self, stream: Stream, count: int, first: int = 0) -> np.ndarray:
        """Numbers first..first+count-1 of a stream for every sample: 64 random bits each, int64 [n, count]."""
        return self._bits(stream, count, first).view(np.int64)

    def uniform(self, stream: Stream, count: int, first: int = 0) -> np.ndarray:
        """The same numbers uniform in [0, 1) with 53 bits: float64 [n, count]."""
        bits = self._bits(stream, count, first)
        bits >>= np.uint64(11)
        return bits.astype(np.float64) * 2.0**-53

    def _bits(self, stream: Stream, count: int, first: int) -> np.ndarray:
        start = (int(stream) << 32) + first
        position = np.arange(start, start + count, dtype=np.uint64) * np.uint64(_GOLDEN)
        return mix64(self.key[:, None] + position)


def _words(integers: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(integers, np.int64).view(np.uint64)


def integer(uniform: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """Uniform numbers as integers in 0..count-1: int64, same shape."""
    return np.floor(uniform * count).astype(np.int64)


def first_that_fits(
    draws: Draws,
    stream: Stream,
    first: int,
    attempts: int,
    propose: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    otherwise: tuple[int, int, int, int],
) -> np.ndarray:
    """For every sample the first proposal that fits, else `otherwise`: int64 [n, 4].

    Each attempt takes four numbers of the stream, from `first` on. `propose` makes of them, float64 [m, 4],
    what is proposed, int64 [m, 4], and whether it fits, bool [m].
    """
    chosen = np.tile(np.array(otherwise, np.int64), (len(draws.key), 1))
    waiting = np.arange(len(chosen))
    for attempt in range(attempts):
        if not len(waiting):
            break
        proposed, fits = propose(draws.of(waiting).uniform(stream, 4, first + 4 * attempt))
        chosen[waiting[fits]] = proposed[fits]
        waiting = waiting[~fits]
    return chosen


def gaussian(first: Tensor, second: Tensor) -> Tensor:
    """Two uniform numbers as one standard normal (Box and Muller), elementwise."""
    return torch.sqrt(-2.0 * torch.log1p(-first)) * torch.cos(2.0 * math.pi * second)


def device_bits(key: Tensor, stream: Stream, count: int) -> Tensor:
    """`Draws.bits` of keys int64 [n], on their device: int64 [n, count]."""
    position = torch.arange(count, device=key.device) + (int(stream) << 32)
    x = key[:, None] + position * (_GOLDEN - 2**64)
    x = (x ^ _shift(x, 30)) * (_FIRST - 2**64)
    x = (x ^ _shift(x, 27)) * (_SECOND - 2**64)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
