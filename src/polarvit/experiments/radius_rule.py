"""Rules for the output radius of the polar layer (paper, appendix "Radius Rule of the Polar Fully Connected Layer").

The paper does not say which model the table belongs to. Its anchored row (78.45, one seed) lies within the spread of
the ablation's row before the horoshift (78.04 ± 0.53), so the rows here are Polar-ViT-Tiny without it.
"""

from __future__ import annotations

from polarvit.experiments.cifar100.table import FOLDER
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, Stated, study

_RULES = (
    ("anchored", "Anchored gain", Stated(78.45)),
    ("anchored_0.1", "Anchored gain, sigma = 0.1", Stated(78.02)),
    ("anchored_0.2", "Anchored gain, sigma = 0.2", Stated(77.36)),
    ("free_power", "Free power of the pre-activation norm", Stated(75.22)),
    ("affine_klein", "Affine in the input radius, Klein input", Stated(75.06)),
    ("affine_direction", "Affine in the input radius, unit-direction input", Stated(74.42)),
    ("sigmoid", "Sigmoid-bounded radius (Chen et al.)", Stated(74.04)),
    ("hard_bound", "Hard radius bound", Stated(word="diverged")),
)
NONE = "cifar100_polar_vit_tiny_none"
ROWS = tuple(
    Row(name, label, NONE, (), stated, "none")  # the rule of the model as it is
    if name == "anchored"
    else Row(name, label, NONE, (f"model.options.rule={name}",), stated, f"rule-{name}")
    for name, label, stated in _RULES
)


def run(settings: Settings) -> list[str]:
    """Train every rule, print the table, write `radius-rule.json`; returns the rows that diverged and should not."""
    title, records = "Radius rules of the polar layer, CIFAR-100", settings.out / FOLDER
    return study("radius-rule", title, ROWS, settings, records=records, folder=FOLDER)
