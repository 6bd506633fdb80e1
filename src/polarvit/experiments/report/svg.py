"""A few shapes of SVG as text. Colours are CSS classes, so that a picture follows the page into the dark."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image


def tag(name: str, content: str = "", **attributes: object) -> str:
    """One element; `class_` and `font_size` are spelt `class` and `font-size`."""
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(number(value) if isinstance(value, float) else str(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{text}>{content}</{name}>" if content else f"<{name}{text}/>"


def number(value: float) -> str:
    """Short, at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def words(x: float, y: float, text: str, class_: str = "small", anchor: str = "start", **more: object) -> str:
    return tag("text", escape(text), x=x, y=y, class_=class_, text_anchor=anchor, **more)


def picture(width: float, height: float, content: str, label: str) -> str:
    """An SVG that scales with the page; `label` is what a screen reader says."""
    return tag(
        "svg", content, viewBox=f"0 0 {number(width)} {number(height)}", role="img", aria_label=label, width="100%"
    )


def png(image: np.ndarray) -> str:
    """uint8 [H, W, 3] as a data URI."""
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / count))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= count)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A tick: plain where that is short, else a power of ten."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:g}"
    exponent = str(round(math.log10(abs(value)))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{exponent}"


class Axes:
    """A frame with ticks; `x` and `y` map data to the picture. `log` makes the vertical axis logarithmic."""

    def __init__(
        self, width: float, height: float, xs: tuple[float, float], ys: tuple[float, float], *, log: bool = False
    ) -> None:
        self.width, self.height, self.log = width, height, log
        self.left, self.right, self.top, self.bottom = 46.0, width - 12.0, 20.0, height - 34.0
        self.xs, self.ys = xs, (math.log10(ys[0]), math.log10(ys[1])) if log else ys

    def x(self, value: float) -> float:
        low, high = self.xs
        return self.left + (value - low) / ((high - low) or 1) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.ys
        value = math.log10(max(value, 1e-12)) if self.log else value
        return self.bottom - (value - low) / ((high - low) or 1) * (self.bottom - self.top)

    def frame(self, xlabel: str, ylabel: str) -> str:
        out = []
        for value in self._y_ticks():
            y = self.y(value)
            out.append(tag("line", x1=self.left, x2=self.right, y1=y, y2=y, class_="grid"))
            out.append(words(self.left - 6, y + 3.5, short(value), anchor="end"))
        for value in ticks(*self.xs):
            out.append(words(self.x(value), self.bottom + 15, f"{value:g}", anchor="middle"))
        out.append(tag("line", x1=self.left, x2=self.right, y1=self.bottom, y2=self.bottom, class_="axis"))
        out.append(words((self.left + self.right) / 2, self.height - 3, xlabel, anchor="middle"))
        out.append(words(self.left - 40, 9, ylabel))
        return "".join(out)

    def _y_ticks(self) -> list[float]:
        if not self.log:
            return ticks(*self.ys)
        low, high = self.ys
        decades = range(math.floor(low), math.ceil(high) + 1)
        found = [m * 10.0**d for d in decades for m in (1, 2, 5) if low - 1e-9 <= math.log10(m) + d <= high + 1e-9]
        return found if len(found) <= 7 else [10.0**d for d in decades if low <= d <= high]

    def line(self, xs: Sequence[float], ys: Sequence[float], class_: str) -> str:
        points = " ".join(f"{number(self.x(x))},{number(self.y(y))}" for x, y in zip(xs, ys, strict=True))
        return tag("polyline", points=points, class_=f"line {class_}")
