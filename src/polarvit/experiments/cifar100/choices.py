"""Choices the paper leaves open, at a tenth or a quarter of the steps, judged on a tenth of the training images.

The test split takes no part in what is chosen here.
"""

from __future__ import annotations

from polarvit.experiments.catalogue import EXPERIMENTS
from polarvit.experiments.cifar100.sweep import OFFSET, RATE_1, SHORT, placed
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, study

NAME = "cifar100-choices"
POLAR, TWIN = "cifar100_polar_vit_tiny", "cifar100_vit_tiny"
JOINT, NONE = f"{POLAR}_joint", f"{POLAR}_none"
SPREAD = ("model.options.rate=2.0", "model.options.rate_spread=4.0")
TABLE = "model.options.position_std=1.0"
"""HexFormer's position table, which decays as ours does."""
RADIUS = "model.options.target_radius=3.32"
"""One radius for layers and heads of every width."""
WEIGHTS = "model.options.calibration=weights"
"""Calibration scales W, so that the radius rule starts with phi_0 = 0, to the letter of the paper: the default since
the rows without horoshift were compared. Rows that ran before it name `OFFSET`."""
MIXED = "augment.mix_probability=1.0"
RING = "augment.mix_partners=ring"
"""Partners in MixUp and CutMix as HexFormer draws them: no two images of a batch are mixed from the same two."""
QUARTER = ("train.steps=29275", "optim.warmup=2928")
"""A quarter of the recipe, for what a tenth would not show."""


def choice(name: str, recipe: str, *changes: str, length: tuple[str, ...] = SHORT) -> Row:
    """A row: the recipe with some settings changed. What it is called stands in the catalogue."""
    return Row(name, EXPERIMENTS[NAME].label(name), recipe, (*length, "data.holdout=0.1", *changes))


ROWS = (
    choice("rate-1", POLAR, RATE_1),
    choice("rate-4", POLAR),
    choice("spread", POLAR, *SPREAD),
    choice("joint", JOINT),
    choice("table", POLAR, TABLE, OFFSET),
    choice("kept", POLAR, "optim.decay_tables=false"),
    choice("time-zero", POLAR, "model.options.time_init=zero"),
    choice("none", NONE, OFFSET, length=QUARTER),
    choice("none-radius", NONE, RADIUS, OFFSET, length=QUARTER),
    choice("none-weights", NONE, WEIGHTS, length=QUARTER),
    choice("none-radius-weights", NONE, RADIUS, WEIGHTS, length=QUARTER),
    choice("none-mixed", NONE, MIXED, length=QUARTER),
    choice("none-ring", NONE, RING, length=QUARTER),
)


def run(settings: Settings) -> list[str]:
    """Train every choice, print the table, write records; returns which diverged."""
    settings, records = placed(settings, "choices")
    note = "Accuracy on 5,000 images held out of the training split; the test split is not looked at."
    return study(NAME, "CIFAR-100, open choices", ROWS, settings, note=note, records=records)
