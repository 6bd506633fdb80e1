"""What a person sees when a command fails: one line that says what is wrong, and an exit code for scripts.

An error that a user can cause and mend is told in one line. Anything else is a defect and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from polarvit.text import printable

FAILED, WRONG_COMMAND_LINE, INTERRUPTED = 1, 2, 130

_OURS = (
    ("polarvit.training.settings", "SettingsError", WRONG_COMMAND_LINE),
    ("polarvit.data.errors", "DataError", FAILED),
    ("polarvit.models.weights", "WeightsError", FAILED),
    ("polarvit.training.checkpoint", "CheckpointError", FAILED),
    ("polarvit.training.interrupt", "Interrupted", INTERRUPTED),
    ("polarvit.experiments.side_by_side", "Unfinished", INTERRUPTED),
    ("torch.cuda", "OutOfMemoryError", FAILED),
)
"""Module, class, exit code. Looked up among what is loaded: an error whose module is not loaded was not raised."""


class Commands(TyperGroup):
    """The commands of `polarvit`; what they raise is told as this module says."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except Exception as error:
                told = explain(error)
                if told is None:
                    raise
                typer.secho(f"error: {told[0]}", err=True, fg=typer.colors.RED)
                raise typer.Exit(told[1]) from error


def explain(error: Exception) -> tuple[str, int] | None:
    """One line and an exit code for an error that a user can mend; None for a defect."""
    for module, name, code in _OURS:
        if module in sys.modules and isinstance(error, getattr(sys.modules[module], name)):
            return _line(error), code
    if isinstance(error, BrokenPipeError):
        return None
    if isinstance(error, OSError | ImportError | FloatingPointError):
        return _line(error), FAILED
    if type(error) is RuntimeError and isinstance(error.__cause__, ImportError):
        return _line(error), FAILED
    return None


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return printable(f"{error.filename}: {error.strerror}")
    if type(error).__name__ == "OutOfMemoryError":
        return "the GPU has too little memory; raise train.accumulate, or lower train.batch_size or --batch"
    return printable(" ".join(str(error).split()))


def _show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    """What a user should know; what a library tells programmers, or another process tells too, is left out."""
    if issubclass(category, DeprecationWarning | FutureWarning) or os.environ.get("RANK", "0") != "0":
        return
    typer.secho(f"warning: {printable(' '.join(str(message).split()))}", err=True, fg=typer.colors.YELLOW)
