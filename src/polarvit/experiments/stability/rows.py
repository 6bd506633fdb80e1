"""What runs: every system in float32, and a twin in float64 of those that can be pushed far out."""

from __future__ import annotations

from dataclasses import replace

from polarvit.experiments.runs import Row
from polarvit.models.registry import entry
from polarvit.training.recipe import Precision

RADII = (None, 2.0, 4.0, 8.0, 12.0)
"""Where systems start; None: where they start by themselves."""
FAR = (8.0, 12.0)
"""Radii from which a twin in float64 starts too."""
TWIN = "-fp64"
"""How the name of a twin ends."""
SHORT = (
    "model.options.depth=3",
    "model.options.patch_size=8",
    "model.options.drop_path=0",
    "train.batch_size=32",
    "augment.auto_augment=null",
    "augment.erase_probability=0",
    "augment.mix_probability=0",
    "augment.label_smoothing=0",
)
"""Three blocks of the full width, 16 tokens, images cropped and flipped only: a system can learn in a run on a CPU."""


def system(name: str, label: str) -> Row:
    """A system, called like its model."""
    return Row(name, label, f"cifar100_{name}", overrides=SHORT)


SYSTEMS = (
    system("polar_vit_tiny", "Polar-ViT"),
    system("vit_tiny", "Euclidean ViT"),
    system("lorentz_vit_tiny", "Lorentz ViT, ambient"),
    system("hexformer_tiny", "HexFormer"),
    system("hexformer_hybrid_tiny", "HexFormer-Hybrid"),
    system("lvit_tiny", "LViT"),
    system("hvt_tiny", "HVT"),
)


def system_of(row: Row) -> str:
    """The system of a row, also of a twin."""
    return row.name.removesuffix(TWIN)


def precision_of(row: Row) -> Precision:
    """What a row computes in."""
    return "fp64" if row.name.endswith(TWIN) else "fp32"


def edge(system: str) -> float:
    """The radius at which the points of a system end."""
    return entry(system).model.largest_radius


def radii_of(row: Row) -> list[float | None]:
    """Where the runs of a row start: a Euclidean system is never pushed, a bounded one not beyond its edge."""
    model = entry(system_of(row)).model
    if not model.hyperbolic:
        return [None]
    radii = RADII if precision_of(row) == "fp32" else FAR
    return [radius for radius in radii if radius is None or radius <= model.largest_radius]


def twin_of(row: Row) -> Row:
    """The same system in float64."""
    return replace(row, name=f"{row.name}{TWIN}", label=f"{row.label}, float64")


ROWS = (
    *SYSTEMS,
    *(twin_of(row) for row in SYSTEMS if entry(row.name).model.hyperbolic and edge(row.name) >= min(FAR)),
)
"""Every system, then the twins, which take longer: where the time runs out, all systems are there. `--only` chooses."""
