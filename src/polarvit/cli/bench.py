"""`polarvit bench step | attention | kernels | scaling`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polarvit.cli.options import Device, check_device

if TYPE_CHECKING:
    from polarvit.training.recipe import Precision as ProductPrecision


class Size(StrEnum):
    """Sizes of model with published numbers."""

    tiny = "tiny"
    small = "small"
    base = "base"


class KernelSize(StrEnum):
    """Sizes whose operations are timed one by one."""

    tiny = "tiny"
    small = "small"


class Precision(StrEnum):
    """Of matrix products."""

    tf32 = "tf32"
    fp32 = "fp32"
    bf16 = "bf16"


class Part(StrEnum):
    """What scaling looks at."""

    attention = "attention"
    step = "step"


Out = Annotated[
    Path, typer.Option("--out", "-o", file_okay=False, help="Folder for the JSON and the picture; created if missing.")
]
Seconds = Annotated[
    float, typer.Option(min=0, help="Seconds of timing in all. Compiling and cold starts are not counted.")
]
Batches = Annotated[list[int] | None, typer.Option("--batch", min=1, help="Images in a step; may be repeated.")]
Model = Annotated[Size, typer.Option("--model", help="Size of the models.")]
FOLDER = Path("results/bench")


def register(app: typer.Typer) -> None:
    bench = typer.Typer(help="Time things side by side in one run, ratios first.", no_args_is_help=True)
    for command in (step, attention, kernels, scaling):
        bench.command(command.__name__)(command)
    app.add_typer(bench, name="bench")


def product(precision: Precision) -> ProductPrecision:
    return precision.value


def step(
    model: Model = Size.tiny,
    img_size: Annotated[int | None, typer.Option(min=1, help="Side of the images. Default: the model's.")] = None,
    patch_size: Annotated[int | None, typer.Option(min=1, help="Side of a patch. Default: the model's.")] = None,
    batch: Batches = None,
    precision: Annotated[
        list[Precision] | None, typer.Option(help="Of matrix products; may be repeated. Default: tf32.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this model and the Euclidean ViT: class-token, timm, polar, joint, plain, lorentz; "
            "may be repeated. Default: all but joint, timm's if it is installed.",
        ),
    ] = None,
    seconds: Seconds = 60.0,
    cold: Annotated[
        bool | None,
        typer.Option(
            "--cold-start/--no-cold-start",
            help="Time fresh processes with empty compiler caches to their first step. Default: where there is a GPU.",
            show_default=False,
        ),
    ] = None,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Compile the blocks first.")] = True,
    device: Device = None,
    out: Out = FOLDER,
) -> None:
    """Training steps: Polar-ViT, Euclidean ViTs, timm's, the plain code and the ambient Lorentz ViT.

    On a GPU a step is one CUDA graph and models take turns. Without one, narrow models run for a moment and the table
    says so.

    Example: polarvit bench step --precision tf32 --precision fp32 --precision bf16
    """
    check_device(device)
    from polarvit.experiments.bench import step as bench

    bench.run(
        size=model.value, image=img_size, patch=patch_size, batches=batch or (),
        precisions=[product(each) for each in precision or [Precision.tf32]],
        device=device, seconds=seconds, compiled=compiled, only=only, cold=cold, out=out,
    )  # fmt: skip


def sizes(text: str) -> tuple[int, int, int, int]:
    """B,H,N,d as numbers."""
    try:
        b, h, n, d = (int(word) for word in text.split(","))
    except ValueError:
        b = h = n = d = 0
    if min(b, h, n, d) < 1:
        raise typer.BadParameter(f"'{text}' is not B,H,N,d in positive numbers", param_hint="--shape")
    return b, h, n, d


def attention(
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="B,H,N,d",
            help="Batch, heads, tokens and dimension to time; may be repeated. Default: those of the bars, and more.",
        ),
    ] = None,
    tokens: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="Where to measure extra memory (12 heads of 64); may be repeated. Default: 1024 to 16384."
        ),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference/--no-reference", help="Time the reference too; compiling it takes longest.")
    ] = True,
    seconds: Seconds = 40.0,
    device: Device = None,
    out: Out = FOLDER,
) -> None:
    """The attention core against scaled dot product attention and its own reference: time and extra memory.

    Example: polarvit bench attention --shape 1,12,4096,64 --seconds 20
    """
    check_device(device)
    from polarvit.experiments.bench import attention as bench

    bench.run(
        shapes=[sizes(each) for each in shape or []], tokens=tokens or bench.TOKENS, device=device, seconds=seconds,
        reference=reference, out=out,
    )  # fmt: skip


def kernels(
    model: Annotated[KernelSize, typer.Option("--model", help="Sizes of which model.")] = KernelSize.tiny,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="norm, heads, attention, merge, linear, linear-gelu or residual; may be repeated. Default: all.",
        ),
    ] = None,
    seconds: Seconds = 40.0,
    device: Device = None,
    out: Out = FOLDER,
) -> None:
    """Each fused kernel against the plain compiled code: time, bytes a second, and the floor they set.

    Example: polarvit bench kernels --model small --only attention
    """
    check_device(device)
    from polarvit.experiments.bench import kernels as bench

    bench.run(size=model.value, device=device, seconds=seconds, only=only, out=out)


def scaling(
    part: Annotated[list[Part] | None, typer.Option(help="attention or step. Default: both.")] = None,
    tokens: Annotated[
        list[int] | None, typer.Option(min=1, help="Tokens of attention; may be repeated. Default: 64 to 16384.")
    ] = None,
    batch: Batches = None,
    model: Model = Size.tiny,
    precision: Annotated[Precision, typer.Option(help="Of matrix products in the step.")] = Precision.tf32,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Models, as in `bench step`; may be repeated. Default: polar and euclidean."),
    ] = None,
    seconds: Seconds = 60.0,
    device: Device = None,
    out: Out = FOLDER,
) -> None:
    """How cost grows: attention with the number of tokens, the training step with the batch.

    Every batch size is compiled anew, which takes longer than timing it.

    Example: polarvit bench scaling --part attention --tokens 1024 --tokens 16384
    """
    check_device(device)
    from polarvit.experiments.bench import scaling as bench

    bench.run(
        parts=[each.value for each in part or Part], tokens=tokens or (), batches=batch or (), size=model.value,
        precision=product(precision), only=only, device=device, seconds=seconds, out=out,
    )  # fmt: skip
