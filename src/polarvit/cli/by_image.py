"""What `polarvit eval` tells of single images, and of those that training has nearly seen."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polarvit.data.dataset import ImageDataset
    from polarvit.data.twins import Twins
    from polarvit.training.recipe import Recipe
    from polarvit.training.task import AnyImageScores, AnyScores


def twins_of(recipe: Recipe, split: str) -> Twins:
    """The nearest training image of each image of a split, among those that the recipe trains on."""
    from polarvit.data.errors import DataError
    from polarvit.data.packed import PackedDataset
    from polarvit.data.twins import find_twins
    from polarvit.training.sets import trained_and_held

    data = recipe.data
    if not (Path(data.path) / "meta.json").is_file():
        raise DataError(f"{data.path}: --twins needs a folder of `polarvit data prepare`, which this is not")
    if split == data.train:
        raise DataError(f"{data.path}: '{split}' is what was trained on; --twins needs another --split")
    ours, others = (PackedDataset.open(data.path, name) for name in (split, data.train))
    rows, _ = trained_and_held(recipe, others)
    known = others.images if len(rows) == len(others) else others.images[rows]  # whole, it stays on the disk
    found = find_twins(ours.images, known)
    return found._replace(place=rows[found.place])


def apart(seen: AnyImageScores, twins: Twins, above: float) -> dict[str, AnyScores]:
    """The scores of the images `with_twin` and `without_twin` in the training split; no images, no scores."""
    import torch

    near = torch.from_numpy(twins.near(above))
    groups = {"with_twin": near, "without_twin": ~near}
    return {name: seen.part(rows).scores() for name, rows in groups.items() if rows.any()}


def write_lines(
    path: Path,
    seen: AnyImageScores,
    images: ImageDataset,
    names: list[str] | None,
    twins: Twins | None,
    known: list[str] | None,
) -> None:
    """A CSV file with a line for every image, in their order: which it is, and its scores.

    `known` are the names of the training images.
    """
    from polarvit.files import put_text
    from polarvit.training.evaluate import ImageScores

    columns: dict[str, Any] = {"image": range(len(images.labels))}
    if names is not None:
        columns["name"] = [f"./{name}" if name[:1] in FORMULA else name for name in names]  # still the same file
    if isinstance(seen, ImageScores):
        columns["class"] = [images.classes[label] for label in images.labels]
        columns["answer"] = [images.classes[int(answer)] for answer in seen.answer]
        columns |= {"right": seen.top1.int().tolist(), "among_5": seen.top5.int().tolist()}
        columns |= {"confidence": rounded(seen.confidence), "loss": rounded(seen.loss)}
        if seen.radius is not None:
            columns["radius"] = rounded(seen.radius)
    else:
        columns |= {"dice": rounded(seen.dice), "iou": rounded(seen.iou)}
        if seen.hausdorff95 is not None and seen.missed is not None:
            columns |= {"hd95": rounded(seen.hausdorff95), "missed": seen.missed.int().tolist()}
        columns["cross_entropy"] = rounded(seen.entropy)
        columns |= {"found": rounded(seen.found), "true": rounded(seen.true)}
    if twins is not None:
        columns["twin"] = [place if known is None else known[place] for place in twins.place.tolist()]
        columns["correlation"] = [f"{x:.4f}" for x in twins.correlation]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows = zip(*columns.values(), strict=True)
    writer.writerows([list(columns), *([no_formula(cell) for cell in row] for row in rows)])
    put_text(path, text.getvalue())


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that a spreadsheet takes for a formula."""


def no_formula(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets a quote in front; numbers stay."""
    if isinstance(cell, str) and cell[:1] in FORMULA:
        try:
            float(cell)
        except ValueError:
            return f"'{cell}"
    return cell


def rounded(values: Any) -> list[str]:
    """Six digits of each number."""
    return [f"{value:.6g}" for value in values.tolist()]
