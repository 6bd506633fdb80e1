"""`polarvit data twins`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polarvit.cli.options import Json

if TYPE_CHECKING:
    import numpy as np

    from polarvit.data.packed import PackedDataset
    from polarvit.data.twins import Twins

LEVELS = (0.999, 0.99, 0.98, 0.95, 0.9)
PAIRS = 32
"""In a picture."""
LISTED = 10
PICTURES = (".png", ".jpg", ".jpeg", ".webp")


def twins(
    folder: Annotated[Path, typer.Argument(help="A folder of `polarvit data prepare`.", show_default=False)],
    split: Annotated[str, typer.Option("--split", help="The images that are asked about.")] = "test",
    among: Annotated[str, typer.Option("--among", help="The split in which their twins are sought.")] = "train",
    above: Annotated[
        float, typer.Option("--above", min=0, max=1, help="Correlation from which on two images are near twins.")
    ] = 0.98,
    picture: Annotated[
        Path | None, typer.Option("--picture", dir_okay=False, help="Draw pairs, from the nearest to the last above.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find test images that training has nearly seen: frames of one video, scans of one patient, duplicates.

    Compares small copies of the images, also mirrored. What scores are worth
    then: polarvit eval WEIGHTS --twins 0.98. Two pictures of one thing, cut or
    turned otherwise, are not found; look at the pairs to choose a level.

    \b
    polarvit data twins data/busi --picture twins.png
    polarvit data twins data/photos --split validation --above 0.95
    """
    from polarvit.data.errors import DataError
    from polarvit.data.packed import PackedDataset
    from polarvit.data.twins import find_twins
    from polarvit.tables import console, table

    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise typer.BadParameter(f"{picture} does not end in {', '.join(PICTURES)}", param_hint="--picture")
    if split == among:
        raise DataError(f"{folder}: --split and --among are both '{split}'; twins are sought between two splits")
    ours, others = PackedDataset.open(folder, split), PackedDataset.open(folder, among)
    found = find_twins(ours.images, others.images)
    order = nearest(found, above)
    if picture is not None and len(order):
        draw(picture, ours, others, found, order)
    if as_json:
        typer.echo(
            json.dumps({"folder": str(folder), "split": split, "among": among, "above": above, **facts(found, order)})
        )
        return
    counts = {level: int(found.near(level).sum()) for level in sorted({*LEVELS, above}, reverse=True)}
    rows = [[f"{level:g}", f"{count:,}", f"{100 * count / len(ours):.1f} %"] for level, count in counts.items()]
    title = f"{folder}: images of {split} ({len(ours):,}) that resemble one of {among} ({len(others):,})"
    console().print(table(title, ["correlation from", "images", "share"], rows))
    pairs = [[name_of(ours, i), name_of(others, found.place[i]), f"{found.correlation[i]:.4f}"] for i in order[:LISTED]]
    if pairs:
        more = f"and {len(order) - LISTED:,} more" if len(order) > LISTED else ""
        console().print(table(f"near twins, from {above:g}", [split, among, "correlation"], pairs, more, text=[among]))
    if picture is not None:
        console().print(
            f"wrote {picture}" if len(order) else f"nothing to draw: no twins from {above:g}", soft_wrap=True
        )


def nearest(found: Twins, above: float) -> np.ndarray:
    """Places of the images with a near twin, the nearest first."""
    import numpy as np

    order = np.argsort(-found.correlation, kind="stable")
    return order[: int(found.near(above).sum())]


def facts(found: Twins, order: np.ndarray) -> dict[str, object]:
    """What `--json` prints: how many images, and the pairs."""
    pairs = [[int(i), int(found.place[i]), round(float(found.correlation[i]), 4)] for i in order]
    return {"images": len(found.correlation), "near": len(order), "pairs": pairs}


def name_of(images: PackedDataset, place: int) -> str:
    """What an image is called, or its class and place."""
    names = images.meta["splits"][images.split].get("names")
    return names[place] if names else f"{images.classes[images.labels[place]]}, image {place}"


def draw(path: Path, ours: PackedDataset, others: PackedDataset, found: Twins, order: np.ndarray) -> None:
    """Pairs side by side, evenly spaced from the nearest to the last."""
    import numpy as np

    from polarvit.training.overlays import evenly, sheet

    chosen = order[evenly(len(order), PAIRS)]
    tiles = [np.asarray(x) for i in chosen for x in (ours.images[i], others.images[found.place[i]])]
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet([tiles[i : i + 8] for i in range(0, len(tiles), 8)]).save(path)
