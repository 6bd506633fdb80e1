"""The rows of the table: four nets on five sets, with the paper's test Dice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from polarvit.experiments.catalogue.segmentation import CLIPPED, PAPER, SETS
from polarvit.experiments.registry import Settings
from polarvit.experiments.runs import Row, Stated, place, resolved
from polarvit.models import VisionModel
from polarvit.models.weights import load_pretrained
from polarvit.training import Recipe

NAME = "segmentation"
NETS = {"polar": "unet_polar", "euclidean": "unet", "ambient": "unet_lorentz", "poincare": "unet_poincare"}
"""In the order in which they are run, where time is short: what the table is about first, what is slowest last."""
RECIPES = {key: {"kvasir": "kvasir_seg"}.get(key, key) for key in SETS}
"""How the recipes of a set begin."""

ROWS = tuple(
    Row(f"{net}_{key}", f"{PAPER[net][0]}, {SETS[key]}", f"{RECIPES[key]}_{model}", paper=Stated(float(value)))
    for net, model in NETS.items()
    for key, value in zip(SETS, PAPER[net][1], strict=True)
) + tuple(
    Row(f"{CLIPPED[0]}_{key}", f"{CLIPPED[1]}, {SETS[key]}", f"{RECIPES[key]}_unet_lorentz", ("optim.clip=1",))
    for key in SETS
)


def at(settings: Settings) -> tuple[tuple[Row, ...], Settings]:
    """Rows and settings with `--data`, which here is the folder that holds the prepared sets, put into the rows.

    What comes of runs of another length than the paper's goes into a folder of its own.
    """
    if settings.steps is not None and not settings.quick:
        settings = replace(settings, out=settings.out / NAME / f"{settings.steps}-steps")
    if settings.data is None or settings.quick:
        return ROWS, settings  # with --quick, --data is refused where rows are resolved
    root = settings.data
    rows = tuple(replace(row, overrides=(*row.overrides, f"data.path={Path(root) / folder_of(row)}")) for row in ROWS)
    return rows, replace(settings, data=None)


def folder_of(row: Row) -> str:
    """Name of the folder of a row's prepared set."""
    return RECIPES[row.name.rpartition("_")[2]].replace("_", "-")


def usual(row: Row, settings: Settings) -> bool:
    """Whether a row is run without being named: it is one of the paper's and its data is here.

    A quick look has the same toy data for every set, so that one of them is enough.
    """
    if settings.quick and not row.name.endswith("_kvasir"):
        return False
    return row.paper is not None and ready(row, settings)


def ready(row: Row, settings: Settings) -> bool:
    """Whether the row's data is prepared here."""
    return settings.quick or (Path(resolved(row, 0, settings).data.path) / "meta.json").is_file()


@dataclass(frozen=True)
class Trained:
    """A finished run of the table."""

    row: Row
    seed: int
    recipe: Recipe
    folder: Path

    def model(self) -> VisionModel:
        """Its weights, on the CPU, in evaluation mode."""
        return load_pretrained(self.folder / "model")


def trained(net: str, key: str, settings: Settings) -> Trained | None:
    """The run of a net on a set with the first seed asked for that is finished; None if there is none."""
    rows, settings = at(settings)
    (row,) = (row for row in rows if row.name == f"{net}_{key}")
    for seed in settings.all_seeds:
        folder = place(NAME, row, settings) / f"seed-{seed}"
        if (folder / "metrics.json").is_file() and ready(row, settings):
            return Trained(row, seed, resolved(row, seed, settings), folder)
    return None
