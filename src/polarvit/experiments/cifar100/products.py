"""The control of products: the same run with matrix products in TF32, strict float32 and bf16, a tenth as long."""

from __future__ import annotations

from polarvit.experiments.cifar100.sweep import SHORT, THEN, placed
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, study

NAME, POLAR = "cifar100-precision", "cifar100_polar_vit_tiny"
ROWS = tuple(
    Row(precision, f"Polar-ViT-Tiny, {label}", POLAR, (*SHORT, f"train.precision={precision}", *THEN))
    for precision, label in (
        ("tf32", "products in TF32"),
        ("fp32", "products in strict float32"),
        ("bf16", "products in bf16"),
    )
)


def run(settings: Settings) -> list[str]:
    """Train all three, print the table, write records; returns which diverged."""
    settings, records = placed(settings, "precision")
    note = "Geometry is float32 in all; only matrix products differ."
    return study(NAME, "CIFAR-100, TF32, float32 or bf16", ROWS, settings, note=note, records=records)
