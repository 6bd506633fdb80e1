"""Relative positional encodings of queries and keys: the paper's three rows, and siblings it does not have.

The paper does not say where rates start. Horoshift and boost are compared from the same rate, 4, and from 1, where
attention starts almost blind to positions; a rotation turns neighbours by one radian, as rotary encodings do.
"""

from __future__ import annotations

from polarvit.experiments.cifar100.table import FOLDER
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, Stated, study

RATE_1 = "model.options.rate=1.0"
ROWS = (
    Row("none", "No relative encoding", "cifar100_polar_vit_tiny_none", paper=Stated(78.04, 0.53)),
    Row(
        "separate",
        "Horoshift, one ideal point for each axis (paper)",
        "cifar100_polar_vit_tiny",
        (),
        Stated(80.15, 0.26),
        "polar_vit_tiny",
    ),
    Row(
        "boost", "Lorentz boost on the same axes (after HoPE)", "cifar100_polar_vit_tiny_boost", (), Stated(79.82, 0.13)
    ),
    Row("joint", "Horoshift, one ideal point for both axes (ours)", "cifar100_polar_vit_tiny_joint"),
    Row("separate-rate-1", "Horoshift, rates start at 1", "cifar100_polar_vit_tiny", (RATE_1,)),
    Row("boost-rate-1", "Lorentz boost, rates start at 1", "cifar100_polar_vit_tiny_boost", (RATE_1,)),
    Row("rotary", "Rotation of space axes (after HELM)", "cifar100_polar_vit_tiny", ("model.options.position=rotary",)),
)


def run(settings: Settings) -> list[str]:
    """Train every encoding, print the table, write `position.json`; returns the rows that diverged."""
    records = settings.out / FOLDER
    return study("position", "Positional encodings, CIFAR-100", ROWS, settings, records=records, folder=FOLDER)
