"""What `polarvit eval` and `polarvit predict` do for segmentation models."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from torch import nn

    from polarvit.cli.trained import Trained
    from polarvit.data.augment.pipeline import Augmenter
    from polarvit.data.dataset import ImageDataset
    from polarvit.training.distributed import Place
    from polarvit.training.recipe import Precision
    from polarvit.training.segmentation import MaskScores


def predict_masks(trained: Trained, files: list[Path], out: Path, device: str | None, *, as_json: bool) -> None:
    """Write the mask and the overlay of every image, in its own size, and say how much of it is foreground."""
    import numpy as np
    import torch
    from PIL import Image

    from polarvit.data.sources.source import open_image
    from polarvit.data.square import square_image, unsquare
    from polarvit.files import put
    from polarvit.training.distributed import place
    from polarvit.training.overlays import overlay
    from polarvit.training.segmentation import mask_logits
    from polarvit.training.sets import image_size

    if len({file.stem for file in files}) < len(files):
        stem = next(file.stem for i, file in enumerate(files) if file.stem in {other.stem for other in files[:i]})
        raise typer.BadParameter(f"two images are called {stem}, and so would be their masks; predict them apart")
    size, padding, config = image_size(trained.recipe), trained.model.default_cfg["padding"], trained.recipe.augment
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (config.mean, config.std))
    out.mkdir(parents=True, exist_ok=True)
    inputs = {file.resolve() for file in files}
    for target in (path for file in files for path in _targets(out, file)):
        if target.resolve() in inputs:
            raise typer.BadParameter(f"{target} is one of the images and would be overwritten", param_hint="--out")
    answers: list[dict[str, Any]] = []
    with place(device) as here, torch.no_grad():
        model = trained.model.to(here.device)
        for file in files:
            image = open_image(file)
            pixels = torch.from_numpy(square_image(image, size, padding)).permute(2, 0, 1)
            x = ((pixels.float() / 255 - mean) / std)[None].to(here.device)
            foreground = 1 - mask_logits(model, x, here.device).softmax(1)[0, 0]
            mask = (unsquare(foreground.cpu(), image.height, image.width) > 0.5).numpy()
            target, drawn = _targets(out, file)
            put(target, partial(Image.fromarray(mask.astype(np.uint8) * 255).save, format="PNG"))
            put(drawn, partial(Image.fromarray(overlay(np.asarray(image), mask)).save, format="PNG"))
            share = round(float(mask.mean()), 6)
            answers.append({"image": str(file), "mask": str(target), "overlay": str(drawn), "foreground": share})
    if as_json:
        typer.echo(json.dumps(answers))
        return
    for answer in answers:
        written = f"{answer['overlay']}, {Path(answer['mask']).name}"
        typer.echo(f"{answer['image']}: {100 * answer['foreground']:.1f} % foreground -> {written}")


def _targets(out: Path, file: Path) -> tuple[Path, Path]:
    """Where mask and overlay of an image go."""
    return out / f"{file.stem}_mask.png", out / f"{file.stem}_overlay.png"


def write_overlays(
    files: Sequence[Path],
    model: nn.Module,
    images: ImageDataset,
    augmenter: Augmenter,
    here: Place,
    precision: Precision,
) -> None:
    """One picture for every image of a split, into these files: the image, and the masks over it."""
    from polarvit.training.overlays import overlay, predictions, sheet

    for index, pixels, predicted, truth in predictions(model, images, augmenter, here, precision=precision):
        files[index].parent.mkdir(parents=True, exist_ok=True)
        sheet([[pixels, overlay(pixels, predicted, truth)]]).save(files[index])


def overlay_files(out: Path, data: str, split: str, count: int) -> list[Path]:
    """Where the picture of every image of a split goes: below `out`, called like the image.

    Folders that all images share are left out. Built-in images have no names: theirs is their place in the split.
    """
    from polarvit.data.errors import DataError

    called = image_names(data, split)
    if called is None:
        return [out / f"{index:05d}.png" for index in range(count)]
    names = [PurePosixPath("/", name) for name in called]
    shared = os.path.commonpath([name.parent for name in names])
    files = [out / f"{name.relative_to(shared)}.png" for name in names]
    for name, file in zip(names, files, strict=True):
        if not file.resolve().is_relative_to(out.resolve()):
            raise DataError(f"{Path(data) / 'meta.json'}: the image name '{name}' leads out of {out}")
    return files


def image_names(data: str, split: str) -> list[str] | None:
    """What the images of a split are called: files of class folders, images with masks; None where nobody knows."""
    from polarvit.cli.data import read_meta
    from polarvit.data.sources import FolderSource

    if not Path(data).is_dir():
        return None
    if not (Path(data) / "meta.json").is_file():
        folder = FolderSource(data)
        return [folder.origin(split, i) for i in range(len(folder.labels(split)))] if split in folder.splits else None
    names: list[str] | None = read_meta(Path(data))["splits"].get(split, {}).get("names")
    return names


def score_row(scores: MaskScores) -> tuple[list[str], list[str]]:
    """Headings and cells of a table."""
    from polarvit.training.segmentation import ORDERS

    distance = "-" if scores.hausdorff95 is None else f"{scores.hausdorff95:.1f} px ({scores.missed} missed)"
    cells = {
        "images": f"{scores.count:,}",
        "Dice": f"{scores.dice:.4f}",
        f"over {ORDERS} orders": scores.orders,
        "Dice per image": f"{scores.image_dice:.4f}",
        "IoU": f"{scores.iou:.4f}",
        "HD95": distance,
        "loss": f"{scores.loss:.4f}",
    }
    return list(cells), list(cells.values())
