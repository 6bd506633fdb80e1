"""Which samples a process needs at some steps, and how the rows of its batches are made from them."""

from dataclasses import dataclass

import numpy as np

from polarvit.data.augment.crop import Interpolation
from polarvit.data.augment.mixing import Mixer, Mixes, partners
from polarvit.data.sampler import BatchPlan, SequentialPlan, share


@dataclass(frozen=True)
class Layout:
    """The samples of k consecutive steps on one process, b of each step.

    Attributes:
        samples: dataset indices int64 [n]: first the k b of this process, then partners from elsewhere.
        steps: step of each sample, int64 [n].
        partner: row of `samples` that each of the first k b rows mixes with, int64 [k b].
        mixes: how the steps mix.
    """

    samples: np.ndarray
    steps: np.ndarray
    partner: np.ndarray
    mixes: Mixes


@dataclass(frozen=True)
class TrainingRequest:
    """The batches of one process in training."""

    plan: BatchPlan
    rank: int
    world: int
    mixer: Mixer
    interpolation: Interpolation = "bicubic"

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def steps(self) -> None:
        return None

    @property
    def size(self) -> int:
        """Samples of this process in a step."""
        return self.plan.batch_size // self.world

    def layout(self, steps: range) -> Layout:
        """Rows and samples of the steps; a partner of another process is a sample of ours too."""
        batches, numbers = self.plan.batches(steps), np.arange(steps.start, steps.stop)
        mine = self.plan.local(self.rank, self.world)
        own = batches[:, mine]
        mixes = self.mixer.sample(self.seed, numbers)
        partner = partners(self.plan.batch_size, self.mixer.partners)[mine]
        away = np.flatnonzero((partner < mine.start) | (partner >= mine.stop))
        active = np.flatnonzero(mixes.active)
        rows = np.arange(own.size).reshape(own.shape)
        rows[active] = rows[active, :1] + (partner - mine.start)
        samples, at = own.reshape(-1), np.repeat(numbers, own.shape[1])
        if len(away) and len(active):
            others = batches[np.ix_(active, partner[away])]
            rows[np.ix_(active, away)] = own.size + np.arange(others.size).reshape(others.shape)
            samples = np.concatenate([samples, others.reshape(-1)])
            at = np.concatenate([at, np.repeat(numbers[active], len(away))])
        return Layout(samples, at, rows.reshape(-1), mixes)

    def indices(self, step: int) -> np.ndarray:
        return self.layout(range(step, step + 1)).samples


@dataclass(frozen=True)
class EvaluationRequest:
    """The batches of one process in evaluation."""

    plan: SequentialPlan
    rank: int
    world: int
    interpolation: Interpolation = "bicubic"

    seed = 0

    @property
    def steps(self) -> int:
        return self.plan.steps

    def indices(self, step: int) -> np.ndarray:
        batch = self.plan.indices(step)
        return batch[share(len(batch), self.rank, self.world)]
