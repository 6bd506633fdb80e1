"""`polarvit demo` and `polarvit report RUN...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one setting of both recipes; may be repeated.", metavar="KEY=VALUE"),
]


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)
    app.command("report")(report)


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", file_okay=False, help="Folder for the two runs and the report.")
    ] = Path("runs/demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Train again even if the folder holds the runs.")] = False,
    sets: Sets = None,
) -> None:
    """Train a micro Polar-ViT and its Euclidean twin on digits, and write a page about them.

    Needs no download and no GPU. The page, report.html, shows curves, confusion and the test images on the Poincare
    disk. Stopped with Ctrl-C, it goes on from there the next time.
    """
    from polarvit.experiments.demo import run_demo
    from polarvit.training import Interrupted

    try:
        page = run_demo(out, overrides=sets, fresh=fresh, say=typer.echo)
    except Interrupted as stopped:
        typer.echo(f"saved at step {stopped.step}; run polarvit demo again to go on")
        raise typer.Exit(130) from stopped
    typer.echo(f"\nOpen {page} in a browser.")


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.", show_default=False, metavar="RUN...")],
    out: Annotated[Path, typer.Option("--out", "-o", dir_okay=False, help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option("--title", help="Its heading.")] = "Training report",
) -> None:
    """Write one HTML page about finished runs: scores, curves, confusion, and where polar models put the images.

    The file needs nothing but a browser.

    \b
    polarvit report runs/digits runs/digits_vit --out report.html
    """
    from polarvit.experiments.report import write_report

    typer.echo(f"Open {write_report(runs, out, title=title)} in a browser.")
