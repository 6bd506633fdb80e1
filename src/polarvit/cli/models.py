"""`polarvit models`."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("models")(models)


def models(
    pattern: Annotated[str, typer.Option("--pattern", help="Only names that match, e.g. 'polar*'.")] = "*",
) -> None:
    """List the models that can be created and trained: size, reference and origin.

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

    rows, systems = [], dict[tuple[str, str], list[str]]()
    for name in list_models(pattern):
        with torch.device("meta"):
            model = create_model(name)
        counts = [f"{model.count():,}", f"{model.count(classifier=False):,}"]
        rows.append([name, *counts, model.config.shape, f"{model.config.image[0]}"])
        systems.setdefault((entry(name).reference, entry(name).origin), []).append(name)
    if not rows:
        raise typer.BadParameter(f"no model matches '{pattern}'", param_hint="--pattern")
    columns = ["model", "parameters", "no classifier", "shape", "image"]
    note = "image and patch sizes are defaults; a recipe sets its own"
    console().print(table("", columns, rows, caption=note, text=["shape"]))
    origins = [[", ".join(names), *known] for known, names in systems.items()]
    console().print(table("", ["models", "reference", "origin"], origins, text=["reference", "origin"]))
    if tags := list_pretrained():
        typer.echo(f"weights that come with the package: {', '.join(tags)}")
