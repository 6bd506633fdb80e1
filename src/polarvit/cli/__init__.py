"""The command `polarvit`.

Importing this module, and asking for help, does not import torch: commands import what they need when they run.
To add commands, write a file in this folder with a function `register(app)` that attaches them (or a sub-app), and
name the file in `GROUPS`; help lists groups in that order.

Exit codes: 0 done, 1 it ran and failed, 2 the command line was wrong, 130 Ctrl-C.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Annotated

import typer

from polarvit._version import __version__
from polarvit.cli.errors import Commands

GROUPS = ("demo", "train", "evaluate", "predict", "data", "recipes", "models", "export", "bench", "reproduce")
"""Files of this folder, each with `register(app)`."""

app = typer.Typer(
    name="polarvit",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"polarvit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hyperbolic deep learning in polar coordinates, accurate far from the origin.

    \b
    polarvit train digits                        train the demo, on any computer
    polarvit eval runs/digits                    test it again
    polarvit data prepare photos data/photos     pack a folder of your own images
    polarvit recipes list                        what can be trained
    """


for _group in GROUPS:
    import_module(f"polarvit.cli.{_group}").register(app)


def main() -> None:
    """Entry point of the console script."""
    # PyTorch's threads wait for each other in a loop, some milliseconds. Where other processes have the cores, that
    # takes up to twenty times as long as sleeping does; where none has, sleeping at once makes a compiled model take
    # four times as long (docs/training.md). A thousand turns, some microseconds, cost little in both cases. libgomp
    # reads it when torch is loaded.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    app(prog_name="polarvit")
