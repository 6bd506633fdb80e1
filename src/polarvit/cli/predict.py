"""`polarvit predict`."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polarvit.cli.options import Device, Json, check_device
from polarvit.text import printable

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

    from polarvit.cli.trained import Trained

BATCH = 64
DEFAULT = "polar_vit_tiny.cifar100"
BAR = 30
"""Width of the longest bar, in characters."""


def register(app: typer.Typer) -> None:
    app.command("predict")(predict)


def predict(
    images: Annotated[
        list[Path],
        typer.Argument(help="Image files, or folders of them.", metavar="IMAGE", exists=True, show_default=False),
    ],
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            "-w",
            help="A run folder, a folder of saved weights, a packaged tag, or a Hugging Face id. "
            "Default: the weights for CIFAR-100 that come with the package.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Data whose class names to print. Default: those saved with the weights."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many classes to print.")] = 5,
    out: Annotated[
        Path, typer.Option("--out", "-o", file_okay=False, help="Segmentation: folder for masks and overlays.")
    ] = Path("predictions"),
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Say what is in an image: the most probable classes with their probabilities, or a mask drawn over it.

    Images are resized, cropped and normalised as the model's evaluation did.

    \b
    polarvit predict cat.jpg
    polarvit predict cat.jpg --weights runs/photos
    polarvit predict photos/new/*.png -w runs/photos --top 3 --json
    polarvit predict scan.png -w runs/kvasir_seg_unet_polar --out masks
    polarvit predict scans -w runs/kvasir_seg_unet_polar --out masks
    """
    from polarvit.cli.masks import predict_masks
    from polarvit.cli.trained import find_model

    check_device(device)
    images = image_files(images)
    trained = find_model(weights or default_weights())
    if trained.recipe.task == "segmentation":
        predict_masks(trained, images, out, device, as_json=as_json)
        return
    names = class_names(trained, data)
    answers = [
        [{"class": names[index], "probability": round(p, 6)} for p, index in ranked[:top]]
        for ranked in rank(trained, images, device)
    ]
    if as_json:
        typer.echo(json.dumps([{"image": str(i), "top": a} for i, a in zip(images, answers, strict=True)]))
        return
    width = max(len(str(row["class"])) for answer in answers for row in answer)
    for image, answer in zip(images, answers, strict=True):
        typer.secho(str(image), bold=True)
        for row in answer:
            share = float(str(row["probability"]))
            typer.echo(f"  {printable(str(row['class'])):<{width}}  {100 * share:5.1f} %  {bar(share)}")


def image_files(paths: list[Path]) -> list[Path]:
    """The files, with every folder replaced by the images in it."""
    from polarvit.data.sources.folder import is_image

    found: list[Path] = []
    for path in paths:
        inside = sorted(filter(is_image, path.iterdir())) if path.is_dir() else [path]
        if not inside:
            raise typer.BadParameter(f"{path}: no image in this folder", param_hint="IMAGE")
        found += inside
    return found


def default_weights() -> str:
    """Weights for whoever names none."""
    from polarvit.models.weights import list_pretrained

    if DEFAULT not in list_pretrained():
        raise typer.BadParameter(
            f"missing; {DEFAULT} does not come with this package: give a run, as --weights runs/photos",
            param_hint="--weights",
        )
    return DEFAULT


def rank(trained: Trained, files: list[Path], device: str | None) -> list[list[tuple[float, int]]]:
    """For every file its classes by falling probability, as (probability, class)."""
    import torch

    from polarvit.data.sampler import SequentialPlan
    from polarvit.data.streaming import StreamingDataset
    from polarvit.training.distributed import place
    from polarvit.training.sets import image_size

    augmenter, plan = trained.augmenter(), SequentialPlan(len(files), BATCH)
    source = Files(files, trained.model.num_classes)
    dataset = StreamingDataset(source, "test", image_size(trained.recipe), resize=augmenter.resize, workers=0)
    ranked = []
    with place(device) as here, torch.no_grad():
        model = trained.model.to(here.device)
        dtype = next(model.parameters()).dtype
        for step in range(plan.steps):
            batch, _ = augmenter.evaluation_batch(dataset, plan, step, device=here.device)
            shares, order = model(batch.to(dtype)).softmax(-1).sort(-1, descending=True)
            rows = zip(shares.tolist(), order.tolist(), strict=True)
            ranked += [list(zip(share, index, strict=True)) for share, index in rows]
    return ranked


class Files:
    """Image files as a source without labels (all 0)."""

    splits = ("test",)
    description = "images"

    def __init__(self, files: list[Path], classes: int) -> None:
        self.files = files
        self.classes = tuple(map(str, range(classes)))

    def labels(self, split: str) -> np.ndarray:
        import numpy as np

        return np.zeros(len(self.files), dtype=np.int64)

    def image(self, split: str, index: int) -> Image:
        from polarvit.data.sources.source import open_image

        return open_image(self.files[index])

    def origin(self, split: str, index: int) -> str:
        return str(self.files[index])


def class_names(trained: Trained, data: str | None) -> tuple[str, ...]:
    """Names of the model's classes: of the data given, saved with its weights, of its run's data, or numbers."""
    from polarvit.cli.data import describe
    from polarvit.data.errors import DataError

    count, path = trained.model.num_classes, trained.recipe.data.path
    if data is not None:
        names = describe(data)[0]
        if len(names) != count:
            raise DataError(f"{data}: has {len(names)} classes, the model {count}")
        return names
    if trained.model.class_names is not None:
        return trained.model.class_names
    with suppress(DataError):  # of a run from before weights had names; its data may be gone
        if path and len(names := describe(path)[0]) == count:
            return names
    return tuple(f"class {index}" for index in range(count))


def bar(share: float) -> str:
    """A bar for a share of 1, in eighths of a character."""
    whole, rest = divmod(round(8 * BAR * share), 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[rest].strip()
