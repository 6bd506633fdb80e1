"""Pictures: one style for all experiments. White ground, colour-blind safe, curves labelled where they are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BLUE, VERMILION, GREEN, PURPLE, ORANGE = "#0072B2", "#D55E00", "#009E73", "#A5568A", "#B07500"
"""Hues of Okabe and Ito, two of them darkened so that text in them can be read on white."""

INK, GREY, PALE = "#1a1a1a", "#6b6b6b", "#e4e4e4"

STYLE: dict[Any, Any] = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "grid.color": PALE,
    "grid.linewidth": 0.7,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "text.color": INK,
    "font.size": 10.5,
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
    "lines.solid_capstyle": "round",
}


class NoPictures(RuntimeError):
    """matplotlib is not installed."""


@contextmanager
def figure(
    path: Path, width: float, height: float, panels: int = 1, *, rows: int = 1, dpi: int = 150, **options: Any
) -> Iterator[Any]:
    """A figure with `panels` axes side by side, in so many rows, saved to `path` when the block ends.

    Yields the axes (a single one, or an array). Raises `NoPictures` without matplotlib.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise NoPictures("no picture: matplotlib is not installed (pip install 'polarvit[plots]')") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE), warnings.catch_warnings():
        drawn, axes = pyplot.subplots(rows, panels, figsize=(width, height), layout="constrained", **options)
        try:
            yield axes
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn.savefig(path, dpi=dpi, metadata={"Software": None})
        finally:
            pyplot.close(drawn)


def label(axes: Any, x: float, y: float, text: str, colour: str, **options: Any) -> None:
    """A label in the colour of the curve it stands beside, on a white halo."""
    from matplotlib import patheffects

    halo = [patheffects.withStroke(linewidth=3, foreground="white")]
    axes.text(x, y, text, color=colour, path_effects=halo, **{"fontsize": 10, "fontweight": "bold", **options})
