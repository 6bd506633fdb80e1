"""The table of experiments. To add one, write its file with `run(settings) -> list of failures` and name it here."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


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


@dataclass(frozen=True)
class Experiment:
    """An experiment: `home` is the module whose `run(settings)` does it and returns the claims that did not hold."""

    name: str
    title: str
    reproduces: str
    home: str

    def run(self, settings: Settings) -> list[str]:
        failures: list[str] = import_module(self.home).run(settings)
        return failures


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "precision",
            "float32 error against radius: polar, ambient, geoopt, hypll",
            "the table of appendix 'Numerical Precision' and the numbers stated around it",
            "polarvit.experiments.precision",
        ),
        Experiment(
            "corrections",
            "eleven places where the paper's formulas are wrong or unsafe, and what is used instead",
            "formulas of sections 3 and 4 and appendices B to D",
            "polarvit.experiments.corrections",
        ),
        Experiment(
            "radius-rule",
            "rules for the output radius of the polar layer, Polar-ViT-Tiny without horoshift on CIFAR-100",
            "the table of appendix 'Radius Rule of the Polar Fully Connected Layer'",
            "polarvit.experiments.radius_rule",
        ),
        Experiment(
            "position",
            "relative positional encodings of Polar-ViT-Tiny on CIFAR-100",
            "the last rows of the table of appendix 'Component Ablation', and two encodings beside them",
            "polarvit.experiments.position",
        ),
    )
}
