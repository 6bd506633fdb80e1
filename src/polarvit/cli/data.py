"""`polarvit data prepare` and `polarvit data list`; `polarvit data twins` is next door."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polarvit.cli.twins import twins
from polarvit.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polarvit.data.packed import Progress
    from polarvit.data.sources import MaskSource, Source


class Kind(StrEnum):
    """What a source is."""

    AUTO = "auto"
    FOLDER = "folder"
    CIFAR = "cifar"
    HUB = "hub"
    DIGITS = "digits"
    MASKS = "masks"
    KVASIR_SEG = "kvasir-seg"
    SANET = "sanet"
    BUSI = "busi"
    ISIC_2016 = "isic2016"
    ISIC_2018 = "isic2018"


class PaddingKind(StrEnum):
    """What makes an image with masks square."""

    ZEROS = "zeros"
    MINIMUM = "minimum"


LABELLED = (Kind.FOLDER, Kind.CIFAR, Kind.HUB, Kind.DIGITS)
"""Sources of images with classes; the others have masks."""


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Pack data sets once, so that training starts at once.")
    group.command("prepare")(prepare)
    group.command("list")(list_folders)
    group.command("twins")(twins)
    app.add_typer(group, name="data")


def prepare(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder with one folder of images per class (or train/ and test/ with such), a folder of images "
            "and masks, an unpacked CIFAR download, a Hugging Face id (owner/name), or digits.",
            metavar="SOURCE",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Argument(help="The new folder, e.g. data/photos.", metavar="FOLDER", show_default=False)
    ],
    size: Annotated[
        int | None,
        typer.Option(
            "--image-size", min=1, help="Resize to squares of this many pixels; needed if sizes differ. Masks: 256."
        ),
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            "--validation",
            min=0,
            max=1,
            help="Share of each training class to hold out. Default: 0; of a segmentation set of the paper 0.1.",
        ),
    ] = None,
    test: Annotated[
        float | None, typer.Option("--test", min=0, max=1, help="Masks: share to hold out for testing. BUSI: 0.1.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of that choice.")] = 0,
    kind: Annotated[Kind, typer.Option("--kind", help="What SOURCE is, if it cannot be guessed.")] = Kind.AUTO,
    padding: Annotated[
        PaddingKind, typer.Option("--padding", help="Masks: pad to a square with black, or the image's darkest value.")
    ] = PaddingKind.ZEROS,
    image: Annotated[str | None, typer.Option("--image-column", help="Hugging Face: column of the images.")] = None,
    label: Annotated[str | None, typer.Option("--label-column", help="Hugging Face: column of the labels.")] = None,
    config: Annotated[str | None, typer.Option("--config", help="Hugging Face: configuration of the set.")] = None,
) -> None:
    """Pack a data set into one folder that training maps into memory.

    A corrupt image, an empty class, an image without a mask is an error that
    names it. The folder appears only when it is complete.

    \b
    polarvit data prepare photos data/photos --image-size 64 --validation 0.2
    polarvit data prepare cifar-100-python data/cifar100
    polarvit data prepare uoft-cs/cifar10 data/cifar10
    polarvit data prepare digits data/digits
    polarvit data prepare scans data/scans --validation 0.1 --test 0.1
    polarvit data prepare PraNet data/kvasir-seg --kind kvasir-seg
    """
    from polarvit.data import prepare as pack
    from polarvit.data import prepare_masks
    from polarvit.data.errors import DataError

    if out.exists():
        raise DataError(f"{out}: already exists; delete it or choose another folder")
    columns = {"image": image, "label": label, "config": config}
    kind = guess(source) if kind is Kind.AUTO else kind
    if kind in LABELLED:
        if test is not None or padding is not PaddingKind.ZEROS:
            raise DataError(f"{source}: --test and --padding are for images with masks only")
        labelled = open_source(source, kind, **columns)
        with bar(labelled.description) as report:
            pack(labelled, out, image_size=size, validation=validation or 0.0, seed=seed, progress=report)
    else:
        masked = open_masks(source, kind)
        options: dict[str, Any] = {"validation": validation, "test": test, "seed": seed, "padding": padding.value}
        with bar(masked.description) as report:
            prepare_masks(masked, out, image_size=size or 256, progress=report, **options)
    meta = read_meta(out)
    typer.echo(f"{out}: {summary(meta)}")
    if not {"validation", "test"} & set(meta["splits"]):
        hint = (
            "nothing is held out, and training wants a split to measure on: prepare again into a new folder, with "
            "--validation 0.1 for a tenth"
        )
        typer.secho(hint, err=True, fg=typer.colors.YELLOW)


@contextmanager
def bar(title: str) -> Iterator[Progress]:
    """A progress bar to report to."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*shown, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def list_folders(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders to look into. Default: data.", show_default=False)
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read everything and compare the checksums.")] = False,
) -> None:
    """List prepared data sets: images, classes, sizes, where they came from.

    \b
    polarvit data list
    polarvit data list data/photos --verify
    """
    for folder in folders or []:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder")
    found = [place for folder in folders or [Path("data")] for place in prepared(folder)]
    if not found:
        typer.echo("nothing prepared here; make one with: polarvit data prepare SOURCE data/NAME")
    for place in found:
        meta = read_meta(place)
        if verify:
            from polarvit.data import PackedDataset

            for split in meta["splits"]:
                PackedDataset.open(place, split).verify()
        typer.echo(f"{place}: {summary(meta)}{', checksums match' if verify else ''}")


def prepared(folder: Path) -> list[Path]:
    """Prepared folders: this one, or those directly inside."""
    if (folder / "meta.json").is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/meta.json"))


def read_meta(folder: Path) -> dict[str, Any]:
    """What a prepared folder says of itself."""
    from polarvit.data.errors import DataError

    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        summary(meta)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{folder / 'meta.json'}: not written by `polarvit data prepare`, or damaged") from error
    return meta


def summary(meta: dict[str, Any]) -> str:
    """One line on a prepared folder."""
    counts = ", ".join(f"{part['count']:,} {split}" for split, part in meta["splits"].items())
    height, width = meta["image_size"]
    return printable(f"{counts}; {len(meta['classes'])} classes; {height} x {width}; from {meta['source']}")


def open_source(name: str, kind: Kind, **columns: str | None) -> Source:
    """The source that `name` means; `columns` are for the hub."""
    from polarvit.data import sources
    from polarvit.data.errors import DataError

    if kind is Kind.HUB:
        return sources.HubSource(name, **columns)
    if any(columns.values()):
        raise DataError(f"{name}: --image-column, --label-column and --config are for Hugging Face data sets only")
    if kind is Kind.DIGITS:
        return sources.DigitsSource()
    return sources.CifarSource(name) if kind is Kind.CIFAR else sources.FolderSource(name)


def open_masks(name: str, kind: Kind) -> MaskSource:
    """The source of images with masks that `name` means."""
    from polarvit.data import sources

    return sources.MaskFolderSource(name) if kind is Kind.MASKS else sources.NamedMaskSource(kind.value, name)


def guess(name: str) -> Kind:
    """What a source is by its looks."""
    from polarvit.data.sources.masks import holds_masks

    path = Path(name)
    saved = ("dataset_dict.json", "state.json", "*.parquet", "data/*.parquet")
    if any(next(path.glob(pattern), None) for pattern in saved):
        return Kind.HUB
    if (path / "batches.meta").is_file() or (path / "meta").is_file():
        return Kind.CIFAR
    if path.is_dir():
        return Kind.MASKS if holds_masks(path) else Kind.FOLDER
    if name == "digits":
        return Kind.DIGITS
    return Kind.HUB if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) else Kind.FOLDER


def describe(path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Classes and splits of data that training can read: digits, a prepared folder, a folder of class folders."""
    from polarvit.data.discs import COUNTS
    from polarvit.data.packed_masks import CLASSES
    from polarvit.data.sources import DigitsSource, FolderSource

    if path == "discs":
        return CLASSES, tuple(COUNTS)
    if path == "digits":
        digits = DigitsSource()
        return digits.classes, digits.splits
    if (Path(path) / "meta.json").is_file():
        meta = read_meta(Path(path))
        return tuple(meta["classes"]), tuple(meta["splits"])
    folder = FolderSource(path)
    return folder.classes, folder.splits
