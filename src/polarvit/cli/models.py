"""`polarvit models`, `polarvit models package` and `polarvit models import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polarvit.cli.options import Device, check_device


def register(app: typer.Typer) -> None:
    group = typer.Typer()
    group.callback(invoke_without_command=True)(models)
    group.command("package")(package)
    group.command("import")(import_public)
    app.add_typer(group, name="models")


def models(
    ctx: typer.Context,
    pattern: Annotated[str, typer.Option("--pattern", help="Only names that match, e.g. 'polar*'.")] = "*",
    setting: Annotated[
        str | None,
        typer.Option("--setting", help="Count for the inputs of cifar100 or imagenet. Default: each model's own."),
    ] = None,
) -> None:
    """List the models that can be created and trained: size, reference and origin.

    Parameters are counted for 1000 classes (two for segmentation), and without the classifier;
    for the images, patches and classes of one data set with --setting.

    \b
    polarvit models
    polarvit models --pattern 'polar*' --setting imagenet
    """
    if ctx.invoked_subcommand is not None:
        return
    import torch

    from polarvit.models import create_model, list_models
    from polarvit.models.registry import SETTINGS, entry
    from polarvit.models.weights import list_pretrained
    from polarvit.tables import console, table

    if setting not in (None, *SETTINGS):
        raise typer.BadParameter(f"expected one of {', '.join(SETTINGS)}, got '{setting}'", param_hint="--setting")
    inputs = SETTINGS[setting] if setting else {}
    rows, systems = [], dict[tuple[str, str], list[str]]()
    for name in list_models(pattern, "classification" if setting else None):
        with torch.device("meta"):
            model = create_model(name, **inputs)
        counts = [f"{model.count():,}", f"{model.count(classifier=False):,}"]
        rows.append([name, *counts, model.config.shape, f"{model.config.image[0]}"])
        systems.setdefault((entry(name).reference, entry(name).origin), []).append(name)
    if not rows:
        raise typer.BadParameter(f"no model matches '{pattern}'", param_hint="--pattern")
    columns = ["model", "parameters", "no classifier", "shape", "image"]
    note = "image and patch sizes and numbers of classes (1,000) are defaults; a recipe sets its own"
    if setting:
        note = f"for {inputs['num_classes']:,} classes of {setting}"
    console().print(table("", columns, rows, caption=note, text=["shape"]))
    origins = [[", ".join(names), *known] for known, names in systems.items()]
    console().print(table("", ["models", "reference", "origin"], origins, text=["reference", "origin"]))
    shown = {row[0] for row in rows}
    if tags := [tag for tag in list_pretrained() if tag.partition(".")[0] in shown]:
        typer.echo(f"weights that come with the package: {', '.join(tags)}")


def package(
    run: Annotated[
        Path, typer.Argument(help="Folder of a finished run.", exists=True, file_okay=False, show_default=False)
    ],
    tag: Annotated[str, typer.Option("--tag", help="What follows the model's name and a dot, e.g. cifar100.")],
    data: Annotated[
        str | None, typer.Option("--data", help="Where the run's data is now. Default: as the run.")
    ] = None,
    device: Device = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace weights that have this tag.")] = False,
    into: Annotated[
        Path | None, typer.Option("--into", file_okay=False, help="Another folder than that of the package.")
    ] = None,
) -> None:
    """Put the weights of a run into the package, with a card of what they can do.

    The card is measured on every test image: accuracy, calibration, each class;
    of a segmentation model Dice, IoU and distances. The weights are written in
    float32, with config, class names and checksum.

    \b
    polarvit models package runs/photos --tag photos
    """
    import torch

    from polarvit.experiments import mask_card, weights_card
    from polarvit.models.packaging import free_tag, wrong_tag
    from polarvit.models.packaging import package as put
    from polarvit.models.weights import PACKAGED

    if wrong := wrong_tag(tag):
        raise typer.BadParameter(wrong, param_hint="--tag")
    check_device(device)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    root = into or PACKAGED
    model = weights_card.model_of(run)
    name = free_tag(model, tag, replace=replace, root=root)  # before minutes are spent on measuring
    cards = mask_card if model.task == "segmentation" else weights_card
    model, recipe, found = cards.measure(run, data, where)
    folder = put(model, tag, cards.card(model, tag, recipe, found), found, replace=replace, root=root)
    typer.echo(f"{name}: {cards.headline(found)} -> {folder}")


def import_public(
    file: Annotated[
        Path,
        typer.Argument(
            help="A .pth or .safetensors file of DeiT or timm.",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="New folder for weights and config.", show_default=False)],
    heads: Annotated[
        int | None, typer.Option("--heads", min=1, help="Attention heads. Default: those of the published width.")
    ] = None,
) -> None:
    """Read public weights of a plain ViT (DeiT, or timm's with a class token) into a folder to start from.

    Size, patches, image and classes are read off the weights. Images are taken to be
    normalised as DeiT's are. Nothing in the file is executed.

    \b
    polarvit models import deit_small_patch16_224-cd65a155.pth --out runs/deit_small/model
    polarvit train cub_deit_small
    """
    from polarvit.models.deit import from_public, read_public

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise typer.BadParameter(f"{out} exists and is not an empty folder", param_hint="--out")
    model = from_public(read_public(file), str(file), heads)
    model.save_pretrained(out)
    c = model.config
    typer.echo(f"{out}: {model.architecture}, {c.shape}, {c.image[0]} px, {c.num_classes:,} classes")
