"""`polarvit eval`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from polarvit.cli.options import Device, Json, Weights, check_device


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
    batch: Annotated[int, typer.Option("--batch", min=1, help="Images at once.")] = 512,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Measure top-1 and top-5 accuracy and the loss of a trained model.

    A run that is still going is evaluated at its newest checkpoint.

    \b
    polarvit eval runs/digits
    polarvit eval runs/photos --data data/photos --split test
    polarvit eval runs/photos/model --data data/photos --json
    """
    from polarvit.cli.trained import find_model
    from polarvit.tables import console, table
    from polarvit.training.distributed import place
    from polarvit.training.evaluate import evaluate as measure
    from polarvit.training.sets import open_split
    from polarvit.training.step import set_precision

    check_device(device)
    trained = find_model(weights).on(data)
    recipe = trained.recipe
    if not recipe.data.path:
        raise typer.BadParameter("these weights do not say which data they are for; give --data", param_hint="--data")
    split = split or (recipe.data.validation if data is None else None) or held_out(recipe.data.path)
    with place(device) as here:
        set_precision(recipe.train.precision)
        images = open_split(recipe, split, here.device, training=False)
        model = trained.model.to(here.device)
        options: dict[str, Any] = {"batch_size": batch, "precision": recipe.train.precision}
        scores = measure(model, images, trained.augmenter(), here, **options)
        ran_on = str(here.device)
    if as_json:
        facts = {"weights": trained.weights, "data": recipe.data.path, "split": split, "device": ran_on}
        typer.echo(json.dumps({**facts, "precision": recipe.train.precision, **scores.to_dict()}))
        return
    row = [f"{scores.count:,}", f"{scores.top1:.2f} %", f"{scores.top5:.2f} %", f"{scores.loss:.4f}"]
    columns = ["", "images", "top-1", "top-5", "loss"]
    if scores.radius is not None:
        row, columns = [*row, f"{scores.radius:.2f}"], [*columns, "mean radius"]
    console().print(table(trained.weights, columns, [[images.name, *row]]))


def held_out(path: str) -> str:
    """The split of some data that is meant for testing."""
    from polarvit.cli.data import describe
    from polarvit.data.errors import DataError

    _, splits = describe(path)
    found = next((name for name in ("test", "validation") if name in splits), None)
    if found is None:
        raise DataError(f"{path}: has no test or validation split, only {', '.join(splits)}; choose one with --split")
    return found
