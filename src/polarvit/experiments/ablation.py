"""The component ablation (paper, appendix "Component Ablation"): each row adds one change to the row above.

Where the paper is silent: the centroid readout enters with the second row; rows before Polar-FC use the general Lorentz
layer of Chen et al.; "boost residual" is the two exact boosts in ambient coordinates, uncentred (docs/systems.md).
"""

from __future__ import annotations

from polarvit.experiments.cifar100.table import FOLDER
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, Stated, study

TINY = "cifar100_polar_vit_tiny"
NOTE = (
    "The second row is more than one change: besides the arithmetic and the norm, readout, final norm, head gains and "
    "product precision (docs/systems.md)."
)
ROWS = (
    Row(
        "lorentz_vit",
        "Split-head Lorentz ViT, class-token readout",
        "cifar100_lorentz_vit_tiny",
        (),
        Stated(73.99, 1.03),
        "lorentz_vit_tiny",
    ),
    Row("polar_ops", "+ polar operations, gyro layer norm, centroid", f"{TINY}_space", (), Stated(76.27, 0.81)),
    Row("boost_residual", "+ boost residual", f"{TINY}_ambient_boost", (), Stated(77.06, 0.43)),
    Row("polar_boost_residual", "+ polar boost residual", f"{TINY}_lorentz_fc", (), Stated(77.20, 0.13)),
    Row("polar_fc", "+ polar fully connected layer", f"{TINY}_none", (), Stated(78.04, 0.53), "none"),
    Row("polar_vit", "+ horospherical positions (Polar-ViT)", TINY, (), Stated(80.15, 0.26), "polar_vit_tiny"),
    Row("boost_encoding", "Polar-ViT with boost positions", f"{TINY}_boost", (), Stated(79.82, 0.13), "boost"),
)


def run(settings: Settings) -> list[str]:
    """Train every row, print the table, write `ablation.json`; returns the rows that diverged."""
    records = settings.out / FOLDER
    return study("ablation", "Component ablation, CIFAR-100", ROWS, settings, note=NOTE, records=records, folder=FOLDER)
