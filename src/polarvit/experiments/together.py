"""Several tables of trained models in one go: all their runs in one queue, and what tables share is run once.

First every table says which of its runs are missing; then these are made, one seed of every row before the second seed
of any, several at a time if asked for; then every table is written from what is finished. Table after table would leave
the GPU to the last run of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    def take(self, wanted: Callable[[], Sequence[tuple[int, Job]]]) -> None:
        """Add the runs of a table that no other has asked for, and stop it there; nothing once they were made."""
        if self.closed:
            return
        known = {job.folder: job for _, job in self.wanted}
        for seed, job in wanted():
            if job.folder in known:
                known[job.folder].keep = both(known[job.folder].keep, job.keep)
            else:
                self.wanted.append((seed, job))
        raise Planned


def both(*keeps: Callable[[], object] | None) -> Callable[[], object]:
    """Write a run down in every table that has it."""

    def keep() -> None:
        for each in keeps:
            if each is not None:
                each()

    return keep


def together(names: Sequence[str], settings: Settings) -> list[str]:
    """Make what these tables lack and write them; returns what does not hold, raises if runs are left."""
    from polarvit.experiments.runs import make
    from polarvit.experiments.side_by_side import Unfinished

    queue = Queue()
    tables = {name: replace(told, queue=queue) for name, told in each_its_rows(names, settings).items()}
    for name, told in tables.items():
        before = len(queue.wanted)
        try:
            EXPERIMENTS[name].run(told)
        except Planned:
            for _, job in queue.wanted[before:]:
                job.name = f"{name} {job.name}"
    jobs = [job for _, job in sorted(queue.wanted, key=lambda pair: settings.all_seeds.index(pair[0]))]
    missing = f"{len(jobs)} run{' is' if len(jobs) == 1 else 's are'} missing"
    print(f"{', '.join(tables)}: {missing}; what is finished is not run again")
    make(jobs, settings)
    queue.closed = True
    failures = [f"{name}: {each}" for name, told in tables.items() for each in EXPERIMENTS[name].run(told)]
    if left := Unfinished.of(jobs):
        raise left
    return failures + [f"{job.name}: {job.why()}" for job in jobs if job.state == "dead"]


def each_its_rows(names: Sequence[str], settings: Settings) -> dict[str, Settings]:
    """Settings of every table, with those of the rows asked for that it has; one that has none is left out."""
    from polarvit.training import SettingsError

    if not settings.only:
        return dict.fromkeys(names, settings)
    keys = {name: {row.key for row in EXPERIMENTS[name].rows if not row.result} for name in names}
    for row in settings.only:
        if not any(row in own for own in keys.values()):
            raise SettingsError(f"--only: neither {' nor '.join(names)} has a row '{row}'")
    own = {name: tuple(row for row in settings.only if row in keys[name]) for name in names}
    return {name: replace(settings, only=rows) for name, rows in own.items() if rows}
