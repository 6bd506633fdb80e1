"""`polarvit models`."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("models")(models)


def models(
    pattern: Annotated[str, typer.Option("--pattern", help="Only names that match, e.g. 'polar*'.")] = "*",
) -> None:
    """List the models that can be created and trained, with their sizes.

    Parameters are counted for 1000 classes (two for segmentation), and without the classifier.

    \b
    polarvit models
    polarvit models --pattern 'polar*'
    """
    import torch

    from polarvit.models import create_model, list_models
    from polarvit.models.registry import entry
    from polarvit.models.weights import list_pretrained
    from polarvit.tables import console, table

    rows = []
    for name in list_models(pattern):
        with torch.device("meta"):
            model = create_model(name)
        counts = [f"{model.count():,}", f"{model.count(classifier=False):,}"]
        rows.append([name, *counts, model.config.shape, f"{model.config.image[0]}", entry(name).reference])
    if not rows:
        raise typer.BadParameter(f"no model matches '{pattern}'", param_hint="--pattern")
    columns = ["model", "parameters", "no classifier", "shape", "image", "reference"]
    note = "image and patch sizes are defaults; a recipe sets its own"
    console().print(table("", columns, rows, caption=note, text=["reference"]))
    if tags := list_pretrained():
        typer.echo(f"weights that come with the package: {', '.join(tags)}")
