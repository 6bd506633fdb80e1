"""Several tables of trained models in one go: all their runs in one queue, and what tables share is run once.

First every table says which of its runs are missing; then these are made, one seed of every row before the second seed
of any, several at a time if asked for; then every table is written from what is finished. Table after table would leave
the GPU to the last run of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from polarvit.experiments.catalogue import EXPERIMENTS

if TYPE_CHECKING:
    from polarvit.experiments.registry import Settings
    from polarvit.experiments.side_by_side import Job


class Planned(Exception):
    """A table has said what it would run, and goes no further."""


@dataclass
class Queue:
    """The missing runs of several tables."""

    wanted: list[tuple[int, Job]] = field(default_factory=list)
    """Seed and run."""
    closed: bool = False
    """Whether they were made: tables are then written from what is finished."""

    def add(self, wanted: Sequence[tuple[int, Job]]) -> None:
        """Add the runs of a table that no other has asked for."""
        known = {job.folder for _, job in self.wanted}
        self.wanted += [(seed, job) for seed, job in wanted if job.folder not in known]

    @property
    def jobs(self) -> list[Job]:
        """All of them, first seeds first."""
        return [job for _, job in sorted(self.wanted, key=lambda pair: pair[0])]


def together(names: Sequence[str], settings: Settings) -> list[str]:
    """Make what these tables lack and write them; returns what does not hold, raises if runs are left."""
    from polarvit.experiments.runs import make
    from polarvit.experiments.side_by_side import Unfinished

    queue = Queue()
    for name in names:
        try:
            EXPERIMENTS[name].run(replace(settings, queue=queue))
        except Planned:
            continue
    make(queue.jobs, settings)
    queue.closed = True
    failures = [each for name in names for each in EXPERIMENTS[name].run(replace(settings, queue=queue))]
    if left := Unfinished.of(queue.jobs):
        raise left
    return failures + [f"{job.name}: {job.why()}" for job in queue.jobs if job.state == "dead"]
