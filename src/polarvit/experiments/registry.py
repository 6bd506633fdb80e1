"""What an experiment is. `polarvit.experiments.catalogue` declares them all: every table and figure of the paper.

To add one: write its module with `run(settings) -> list of claims that did not hold`, declare it in the file of
`catalogue/` it belongs to (one `Experiment(...)` with a `Row` for each of the paper's values), and let `run` write
`settings.out / experiment.result` with `provenance` and a `summary` that gives our value for each row's key:

    {"experiment": "ablation", "provenance": provenance(seed=0), "summary": {"polar_fc": "45.2 (1 seed, 11,710 steps)"}}

Where rows were measured at different times, a row's entry is {"value": "...", "provenance": {...}}. `polarvit reproduce
--list` and docs/reproduction.md read nothing else. This module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from polarvit.provenance import commit, without_paths

if TYPE_CHECKING:
    from polarvit.experiments.together import Queue


@dataclass(frozen=True)
class Settings:
    """What every experiment is told. Those that train look at all of it, those that measure at the first three."""

    out: Path = Path("results")
    quick: bool = False
    seed: int = 0
    seeds: int = 1
    """How many seeds, counted from `seed`."""
    steps: int | None = None
    """Length of every run; None: that of its recipe."""
    only: tuple[str, ...] = ()
    """Rows to run; empty: all."""
    runs: Path = Path("runs")
    """Where run folders go."""
    data: str | None = None
    """Data in place of the recipe's."""
    device: str | None = None
    sets: tuple[str, ...] = ()
    """Further `key.path=value` overrides of every recipe."""
    seed_list: tuple[int, ...] = ()
    """These seeds, in place of `seed` and `seeds`."""
    side_by_side: int = 1
    """Runs at the same time on one device."""
    minutes: float | None = None
    """Stop, saved, after so long; None: at the end."""
    weights: tuple[str, ...] = ()
    """Trained models to look at, for experiments that train none."""
    images: int | None = None
    """How many test images such an experiment looks at; None: all."""
    experiment: str = ""
    """Its name, for a module that is the home of several."""
    queue: Queue | None = None
    """Where tables that are made together put their runs."""

    def file(self, name: str, ending: str = "json") -> Path:
        """Where an experiment writes what it found; a quick look never overwrites a real result."""
        return self.out / f"{name}{'-quick' if self.quick else ''}.{ending}"

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Every seed that was asked for."""
        return self.seed_list or tuple(range(self.seed, self.seed + self.seeds))

    def command(self, name: str) -> str:
        """The command line that makes the same table of trained models."""
        words = ["polarvit", "reproduce", name]
        words += ["--quick"] if self.quick else []
        words += ["--steps", str(self.steps)] if self.steps is not None else []
        if self.seed_list:
            words += ["--seeds", ",".join(map(str, self.seed_list)) + ("," if len(self.seed_list) == 1 else "")]
        else:
            words += ["--seeds", str(self.seeds)] if self.seeds != 1 else []
            words += ["--seed", str(self.seed)] if self.seed else []
        return " ".join(words + [word for pair in self.sets for word in ("--set", without_paths(pair))])


TRAINING = frozenset({"seeds", "steps", "only", "runs", "data", "device", "sets", "side_by_side", "minutes"})
"""What a table of trained models can be told, beside `out`, `quick` and `seed`, which everything takes."""


@dataclass(frozen=True)
class Row:
    """One value of the paper: `key` names it in our JSON, `label` and `paper` are what the paper prints.

    `command` runs this row where the experiment's does not; `result` is its file if not the experiment's.
    """

    key: str
    label: str
    paper: str
    command: str = ""
    result: str = ""


@dataclass(frozen=True)
class Experiment:
    """A table, a figure or a statement of the paper, or a question of our own (rows with an empty `paper`).

    `home` is the module whose `run(settings)` does it and returns the claims that did not hold. `result` is its JSON
    under the results folder, `<name>.json` if empty. `cost` says what a full run takes. `takes` names the settings it
    looks at beside `out`, `quick` and `seed`. With `any_length` the list shows every length that ran, the one with
    most rows first, because what matters is how rows of one length compare.
    """

    name: str
    title: str
    reproduces: str
    home: str
    rows: tuple[Row, ...] = ()
    cost: str = ""
    result: str = ""
    takes: frozenset[str] = frozenset()
    any_length: bool = False

    @property
    def command(self) -> str:
        return f"polarvit reproduce {self.name}"

    @property
    def table(self) -> str:
        """Its JSON, relative to the results folder."""
        return self.result or f"{self.name}.json"

    def label(self, key: str) -> str:
        """What a row is called."""
        return next(row.label for row in self.rows if row.key == key)

    def command_of(self, row: Row) -> str:
        """What runs a row alone; empty where rows come together."""
        if row.command or "only" not in self.takes:
            return row.command
        return f"{self.command} --only {row.key}"

    def run(self, settings: Settings) -> list[str]:
        commit()  # that of the code as it is now, also for what is written at the end
        failures: list[str] = import_module(self.home).run(replace(settings, experiment=self.name))
        return failures
