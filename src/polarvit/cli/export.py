"""`polarvit export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from polarvit.cli.options import Weights


class Format(StrEnum):
    """What to write."""

    ONNX = "onnx"
    PROGRAM = "program"


SUFFIX = {Format.ONNX: ".onnx", Format.PROGRAM: ".pt2"}
WAIT = {
    "classification": "this takes about a minute for each block; a third of that with a fixed --batch",
    "segmentation": "this takes minutes; about one with a fixed --batch",
}
"""What a hyperbolic model says while it is written down, by its task."""


def register(app: typer.Typer) -> None:
    app.command("export")(export)


def export(
    weights: Weights,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="onnx for other runtimes, program for PyTorch (torch.export). Default: by the name of --out.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", dir_okay=False, help="The new file. Default: model.onnx or model.pt2.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="A fixed number of images. Default: any number.")
    ] = None,
) -> None:
    """Write a trained model as one file for another runtime.

    \b
    polarvit export runs/photos --out photos.onnx
    polarvit export runs/photos --format program --batch 1
    """
    import torch

    from polarvit.cli.trained import find_model
    from polarvit.models.export import export_onnx, export_program
    from polarvit.models.unet import UNet
    from polarvit.models.vit import ViT

    form = format_of(out, form)
    target = out or Path(f"model{SUFFIX[form]}")
    if target.exists():
        raise FileExistsError(f"{target}: already exists; choose another name with --out")
    model = find_model(weights).model
    if type(model) not in (ViT, UNet):
        typer.echo(WAIT[model.task], err=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    size: int | Literal["dynamic"] = batch or "dynamic"
    if form is Format.ONNX:
        export_onnx(model, target, size)
    else:
        torch.export.save(export_program(model, size), target)
    shape = ", ".join(map(str, (batch or "any", model.config.in_chans, *model.config.image)))
    each = " for every pixel" if model.task == "segmentation" else ""
    size_mb = target.stat().st_size / 1e6
    typer.echo(f"{target}: images ({shape}) to {model.num_classes} logits{each}, {size_mb:.1f} MB")


def format_of(out: Path | None, asked: Format | None) -> Format:
    """The format that was asked for, else the one the file's name says; both must agree."""
    named = {suffix: form for form, suffix in SUFFIX.items()}
    if out is None:
        return asked or Format.ONNX
    if out.suffix.lower() not in named:
        if asked is None:
            raise typer.BadParameter(f"{out}: expected a name that ends in {' or '.join(named)}", param_hint="--out")
        return asked
    if asked not in (None, named[out.suffix.lower()]):
        raise typer.BadParameter(
            f"{asked} goes into a file that ends in {SUFFIX[asked]}, got {out}", param_hint="--out"
        )
    return named[out.suffix.lower()]
