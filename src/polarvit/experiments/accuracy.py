"""Whole models beyond Tiny on CIFAR-100: the other rows of the main table, ImageNet-1k and fine-tuning.

Every row of these tables in the catalogue whose key is a shipped recipe is that recipe. Runs on CIFAR-100 lie with
those of the other tables on it, which may have the same ones.
"""

from __future__ import annotations

from dataclasses import replace

from polarvit.experiments.catalogue import EXPERIMENTS
from polarvit.experiments.cifar100.table import FOLDER
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, Stated, study
from polarvit.training.recipe import shipped


def rows_of(name: str) -> tuple[Row, ...]:
    """The rows of a table that this module trains."""
    recipes = shipped()
    return tuple(trained(row.key, row.label, row.paper) for row in EXPERIMENTS[name].rows if row.key in recipes)


def trained(recipe: str, label: str, paper: str) -> Row:
    """A row that is a recipe, called like it."""
    data, _, model = recipe.partition("_")
    row = Row(recipe, label, recipe, paper=stated(paper))
    return replace(row, run=model, folder=FOLDER) if data == "cifar100" else row


def stated(text: str) -> Stated:
    """The paper's value from its text, `74.64 ± 0.41` or `42.77`."""
    mean, _, std = text.partition(" ± ")
    return Stated(float(mean), float(std) if std else None)


def run(settings: Settings) -> list[str]:
    """Train the rows of the table that was asked for, print it, write its JSON; returns the rows that diverged."""
    name = settings.experiment
    title = EXPERIMENTS[name].reproduces
    return study(name, title, rows_of(name), settings, records=settings.out / name)
