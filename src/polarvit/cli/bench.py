"""`polarvit bench step`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    bench = typer.Typer(help="Time things side by side in one run, ratios first.", no_args_is_help=True)
    bench.command("step")(step)
    app.add_typer(bench, name="bench")


def step(
    size: Annotated[str, typer.Option(help="Model size: tiny, small or base.")] = "tiny",
    image: Annotated[int, typer.Option(help="Side of the images in pixels.")] = 32,
    patch: Annotated[int, typer.Option(help="Side of a patch in pixels.")] = 4,
    batch: Annotated[int, typer.Option(min=1, help="Images in a step.")] = 128,
    precision: Annotated[
        list[str] | None, typer.Option(help="tf32, fp32 or bf16; may be repeated. Default: tf32.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda or cpu. Default: a GPU if there is one.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Steps to take the median over.")] = 60,
    only: Annotated[
        str | None, typer.Option(help="Only models whose name contains this, and the Euclidean ViT.")
    ] = None,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Compile the blocks first.")] = True,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write all numbers to this JSON file.")] = None,
) -> None:
    """Whole training steps: Polar-ViT, its Euclidean twin, the plain code and the ambient one.

    On a GPU a step is one CUDA graph. Without one, narrow models run for a moment and the table says so.

    Example: polarvit bench step --precision tf32 --precision bf16 --out results/bench-step.json
    """
    from polarvit.experiments.bench import step as bench
    from polarvit.training.recipe import Precision
    from polarvit.training.settings import convert

    chosen = tuple(convert(Precision, name, "--precision") for name in precision or ["tf32"])
    bench.run(
        size=size, image=image, patch=patch, batch=batch, precisions=chosen, device=device, repeats=repeats,
        compiled=compiled, only=only, out=out,
    )  # fmt: skip
