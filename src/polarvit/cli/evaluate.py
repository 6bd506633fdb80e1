"""`polarvit eval`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polarvit.cli.options import Device, Json, Weights, check_device

if TYPE_CHECKING:
    from polarvit.training import Scores


BATCH = {"cuda": 512, "cpu": 32}
"""Images at once. On a CPU 256 take Polar-ViT-Tiny twice as long as 32: half the time goes to asking for memory."""


def register(app: typer.Typer) -> None:
    app.command("eval")(evaluate)


def evaluate(
    weights: Weights,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Prepared folder, folder of class folders, or digits. Default: that of the run."),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="train, validation or test. Default: that of the run, else test.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, help="Images at once. Default: 512, 32 on a CPU; masks: that of the run."),
    ] = None,
    overlays: Annotated[
        Path | None,
        typer.Option("--overlays", file_okay=False, help="Segmentation: write every image with its masks over it."),
    ] = None,
    drop_last: Annotated[
        bool | None,
        typer.Option(
            "--drop-last/--keep-last", help="Segmentation: leave an incomplete last batch out of Dice. As the run."
        ),
    ] = None,
    lines: Annotated[
        Path | None,
        typer.Option("--by-image", dir_okay=False, help="Write a CSV file with the scores of every image."),
    ] = None,
    near: Annotated[
        float | None,
        typer.Option(
            "--twins",
            min=0,
            max=1,
            metavar="CORRELATION",
            help="Also score apart the images that have a near twin in the training split, e.g. 0.98.",
        ),
    ] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Measure a trained model: top-1, top-5 and loss, or Dice, IoU and Hausdorff distance of its masks.

    A run that is still going is evaluated at its newest checkpoint.

    \b
    polarvit eval runs/digits
    polarvit eval runs/photos --data data/photos --split test
    polarvit eval runs/photos/model --data data/photos --json
    polarvit eval runs/kvasir_seg_unet_polar --split test --overlays masks
    polarvit eval unet_polar.busi --data data/busi --twins 0.98 --by-image scores.csv
    """
    from polarvit.cli.by_image import apart, twins_of, write_lines
    from polarvit.cli.masks import image_names, overlay_files, score_row, write_overlays
    from polarvit.cli.trained import find_model
    from polarvit.tables import console, table, with_bar
    from polarvit.training import MaskScores
    from polarvit.training.distributed import place
    from polarvit.training.sets import open_split
    from polarvit.training.step import products, set_precision
    from polarvit.training.task import by_image

    check_device(device)
    trained = find_model(weights).on(data)
    recipe = trained.recipe
    masks = recipe.task == "segmentation"
    if not masks and (overlays is not None or drop_last is not None):
        raise typer.BadParameter("--overlays and --drop-last are for segmentation models")
    if drop_last is not None:
        recipe = replace(recipe, watch=replace(recipe.watch, drop_last=drop_last))
    if not recipe.data.path:
        raise typer.BadParameter("these weights do not say which data they are for; give --data", param_hint="--data")
    of_run = (recipe.data.test or recipe.data.validation) if data is None else None
    split = split or of_run or held_out(recipe.data.path)
    with place(device) as here:
        set_precision(recipe.train.precision)
        images = open_split(recipe, split, here.device, training=False)
        if lines is not None:
            lines.parent.mkdir(parents=True, exist_ok=True)
        files = [] if overlays is None else overlay_files(overlays, recipe.data.path, split, len(images))
        model = trained.model.to(here.device)
        twins = None if near is None else twins_of(recipe, split)
        size = batch or (None if masks else BATCH[here.device.type])
        seen = by_image(recipe, model, images, trained.augmenter(), here, batch_size=size, thorough=True, walk=with_bar)
        if files:
            write_overlays(files, model, images, trained.augmenter(), here, recipe.train.precision)
        ran_on, ran_in = str(here.device), products(recipe.train.precision, here.device)
    if lines is not None:
        own, known = (image_names(recipe.data.path, name) for name in (split, recipe.data.train))
        write_lines(lines, seen, images, own, twins, known)
    scores = seen.scores()
    parts = {} if near is None or twins is None else apart(seen, twins, near)
    if as_json:
        facts = {"weights": trained.weights, "data": recipe.data.path, "split": split, "device": ran_on}
        told_apart: dict[str, Any] = {name: part.to_dict() for name, part in parts.items()}
        if near is not None:
            told_apart["twins_from"] = near
        typer.echo(json.dumps({**facts, "precision": ran_in, **scores.to_dict(), **told_apart}))
        return
    found = {images.name: scores, **{name.replace("_", " "): part for name, part in parts.items()}}
    told_of = [(name, score_row(x) if isinstance(x, MaskScores) else accuracy_row(x)) for name, x in found.items()]
    columns = told_of[0][1][0]
    console().print(table(trained.weights, ["", *columns], [[name, *cells] for name, (_, cells) in told_of]))


def accuracy_row(scores: Scores) -> tuple[list[str], list[str]]:
    """Headings and cells of a table."""
    row = [f"{scores.count:,}", f"{scores.top1:.2f} %", f"{scores.top5:.2f} %", f"{scores.loss:.4f}"]
    columns = ["images", "top-1", "top-5", "loss"]
    if scores.radius is not None:
        row, columns = [*row, f"{scores.radius:.2f}"], [*columns, "mean radius"]
    return columns, row


def held_out(path: str) -> str:
    """The split of some data that is meant for testing."""
    from polarvit.cli.data import describe
    from polarvit.data.errors import DataError

    _, splits = describe(path)
    found = next((name for name in ("test", "validation") if name in splits), None)
    if found is None:
        raise DataError(f"{path}: has no test or validation split, only {', '.join(splits)}; choose one with --split")
    return found
