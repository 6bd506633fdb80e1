"""The table of experiments. To add one, write its file with `run(settings) -> list of failures` and name it here."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """What every experiment is told: where to write, whether a small sample will do, and the seed."""

    out: Path = Path("results")
    quick: bool = False
    seed: int = 0


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
    )
}
