"""Which samples a process needs at a step, and how the rows of its batch are made from them."""

from dataclasses import dataclass

import numpy as np

from polarvit.data.augment.mixing import Mix, Mixer, partners
from polarvit.data.sampler import BatchPlan, SequentialPlan, share


@dataclass(frozen=True)
class Layout:
    """The samples of a step on one process.

    Attributes:
        samples: dataset indices int64 [n]: first the batch of this process, then partners from elsewhere.
        partner: row of `samples` that each of the first b rows mixes with, int64 [b].
        mix: how the step mixes.
    """

    samples: np.ndarray
    partner: np.ndarray
    mix: Mix


@dataclass(frozen=True)
class TrainingRequest:
    """The batches of one process in training."""

    plan: BatchPlan
    rank: int
    world: int
    mixer: Mixer

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def steps(self) -> None:
        return None

    def layout(self, step: int) -> Layout:
        """Rows and samples of a step; a partner of another process is a sample of ours too."""
        batch = self.plan.indices(step)
        mine = self.plan.local(self.rank, self.world)
        size = mine.stop - mine.start
        mix = self.mixer.sample(self.seed, step)
        if not mix.active:
            return Layout(batch[mine], np.arange(size), mix)
        partner = partners(len(batch))[mine]
        away = (partner < mine.start) | (partner >= mine.stop)
        rows = partner - mine.start
        rows[away] = size + np.arange(away.sum())
        return Layout(np.concatenate([batch[mine], batch[partner[away]]]), rows, mix)

    def indices(self, step: int) -> np.ndarray:
        return self.layout(step).samples


@dataclass(frozen=True)
class EvaluationRequest:
    """The batches of one process in evaluation."""

    plan: SequentialPlan
    rank: int
    world: int

    seed = 0

    @property
    def steps(self) -> int:
        return self.plan.steps

    def indices(self, step: int) -> np.ndarray:
        batch = self.plan.indices(step)
        return batch[share(len(batch), self.rank, self.world)]
