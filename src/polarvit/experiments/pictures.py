"""Pictures: one style for all experiments. White ground, colour-blind safe, curves labelled where they are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

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


AROUND = ((1, 1), (1, 0), (1, -1), (0, 1), (0, -1), (-1, 1), (-1, 0), (-1, -1))
"""Where a name may stand beside its dot, in the order they are tried: right or left of it, above or below."""


def names_beside(
    axes: Any, x: np.ndarray, y: np.ndarray, names: Sequence[str], colours: Sequence[str], size: float = 6
) -> int:
    """Names beside their dots where they cover no other text and no dot; how many found no room and are left out.

    Call it when everything else stands: names keep their places only as long as the axes do.
    """
    axes.figure.draw_without_rendering()  # settles the layout
    dots = axes.transData.transform(np.column_stack([x, y]))
    radius = 3.2 * axes.figure.dpi / 72
    taken = [np.concatenate([dot - radius, dot + radius]) for dot in dots]
    taken += [text.get_window_extent().extents for text in axes.texts]
    apart = np.linalg.norm(dots[:, None] - dots, axis=-1) + np.diag(np.full(len(dots), np.inf))
    left_out = 0
    for index in np.argsort(-apart.min(1), kind="stable"):  # the crowded ones last
        for right, up in AROUND:
            place = (right * (3 if up else 5), up * (3 if right else 5))
            align = {"ha": ("center", "left", "right")[right], "va": ("center", "bottom", "top")[up]}
            look = {"textcoords": "offset points", "fontsize": size, "color": colours[index]}
            name = axes.annotate(names[index], (x[index], y[index]), place, **align, **look)
            name.set_in_layout(False)  # or the axes would give way, and the dots move
            box = name.get_window_extent().extents
            inside = axes.figure.bbox.count_contains(box.reshape(2, 2)) == 2
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                break
            name.remove()
        else:
            left_out += 1
    return left_out


def _overlap(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two boxes (left, bottom, right, top) have a common inside."""
    return bool((one[:2] < other[2:]).all() and (other[:2] < one[2:]).all())
