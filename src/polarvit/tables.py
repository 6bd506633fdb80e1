"""Tables and bars for the terminal, one look for all commands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from polarvit.text import printable

MINIMUM_WIDTH = 118


def console() -> Console:
    """A console wide enough for our tables when the output is not a terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=MINIMUM_WIDTH)


def with_bar(batches: range) -> Iterable[int]:
    """The batches, with a bar on a terminal's standard error while they last."""
    shown = Console(stderr=True)
    return track(batches, "evaluating", console=shown, transient=True, disable=not shown.is_terminal)


def number(value: float | None) -> str:
    """Two significant digits: 1.5, 12, 3.2e-05; what is not finite says so."""
    if value is None or math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf"
    if value == 0:
        return "0"
    return f"{value:.1e}" if not 1e-2 <= abs(value) < 1e3 else f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str] | None],
    caption: str = "",
    text: Sequence[str] = (),
) -> Table:
    """A table of numbers; its first column and those named in `text` are left-aligned. A row None draws a line."""
    built = Table(title=shown(title), caption=shown(caption) or None, title_justify="left", caption_justify="left")
    for index, column in enumerate(columns):
        built.add_column(column, justify="left" if index == 0 or column in text else "right", overflow="fold")
    for row in rows:
        if row is None:
            built.add_section()
        else:
            built.add_row(*(shown(cell) for cell in row))
    return built


def shown(text: str) -> str:
    """A text in which rich and the terminal find nothing to act on."""
    return escape(printable(text))


def prose(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of sentences: every column left-aligned and wrapped, a line between rows."""
    built = Table(title=shown(title), title_justify="left", show_lines=True)
    for column in columns:
        built.add_column(column, overflow="fold")
    for row in rows:
        built.add_row(*(shown(cell) for cell in row))
    return built
