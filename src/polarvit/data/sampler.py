"""Which samples a step sees: a pure function of (seed, step), so the step number is the position in the data."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from polarvit.data.augment.draws import Draws, Stream
from polarvit.data.errors import DataError


@lru_cache(maxsize=4)
def _permutation(length: int, seed: int, turn: int) -> np.ndarray:
    """The order of one pass over the data: int64 [length]. A hash of each index is a bijection, so no ties."""
    draws = Draws(seed, np.array([turn]), np.array([-1]))
    order = np.argsort(draws.bits(Stream.ORDER, length)[0])
    order.flags.writeable = False
    return order


def share(size: int, rank: int, world: int) -> slice:
    """The contiguous part of a batch that belongs to one of `world` processes; parts differ by one at most."""
    if not 0 <= rank < world:
        raise DataError(f"rank {rank} is not one of {world} processes (0..{world - 1})")
    return slice(rank * size // world, (rank + 1) * size // world)


@dataclass(frozen=True)
class BatchPlan:
    """Batches for training: every pass over the data has its own permutation; the incomplete last batch is dropped.

    Args:
        length: number of samples of the data set.
        batch_size: samples of all processes together in one step.
        seed: of the run; it also keys the augmentation.
    """

    length: int
    batch_size: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.batch_size <= self.length:
            raise DataError(
                f"batch size {self.batch_size} is not between 1 and the {self.length} samples of the data set; "
                "set train.batch_size"
            )

    @property
    def steps_per_pass(self) -> int:
        """Steps in one pass over the data."""
        return self.length // self.batch_size

    def indices(self, step: int) -> np.ndarray:
        """The samples of the global batch at a step: int64 [batch_size]."""
        return self.batches(range(step, step + 1))[0]

    def batches(self, steps: range) -> np.ndarray:
        """The samples of the global batches of consecutive steps: int64 [steps, batch_size]."""
        if steps.start < 0:
            raise DataError(f"step {steps.start} is negative")
        parts, step = [], steps.start
        while step < steps.stop:
            turn, within = divmod(step, self.steps_per_pass)
            stop = min(steps.stop, step + self.steps_per_pass - within)
            order = _permutation(self.length, self.seed, turn)
            parts.append(order[within * self.batch_size : (within + stop - step) * self.batch_size])
            step = stop
        return np.concatenate(parts).reshape(len(steps), self.batch_size)

    def local(self, rank: int, world: int) -> slice:
        """The part of every global batch that one process trains on."""
        if self.batch_size % world:
            raise DataError(f"batch size {self.batch_size} is not divisible by {world} processes")
        return share(self.batch_size, rank, world)


def evaluation_order(length: int, which: int = 0) -> np.ndarray:
    """One of many random orders of a data set, the same in every run: int64 [length].

    For scores of whole batches: files sorted by name would put images of one kind together.
    """
    return _permutation(length, 0, which).copy()


@dataclass(frozen=True)
class SequentialPlan:
    """Batches for evaluation: every sample once, in order; the last batch may be smaller."""

    length: int
    batch_size: int

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise DataError(f"batch size {self.batch_size} is not positive")

    @property
    def steps(self) -> int:
        """Steps that cover the data set."""
        return -(-self.length // self.batch_size)

    def indices(self, step: int) -> np.ndarray:
        """The samples of the global batch at a step: int64, at most batch_size."""
        if not 0 <= step < self.steps:
            raise DataError(f"step {step} is outside the evaluation of {self.steps} steps")
        return np.arange(step * self.batch_size, min((step + 1) * self.batch_size, self.length))
