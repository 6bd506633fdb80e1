"""Curves, confusion and radii, drawn."""

from __future__ import annotations

from html import escape

import numpy as np

from polarvit.experiments.report.collect import Run, Seen
from polarvit.experiments.report.svg import Axes, picture, tag, words

WIDTH, HEIGHT = 360.0, 230.0
NAMED = 40
"""Classes up to which a confusion matrix is drawn in full."""


def curves(runs: list[Run]) -> str:
    """Training loss, and loss and top-1 accuracy in evaluation, of every run over the steps."""
    kinds = {run.images for run in runs if run.recipe.data.evaluated}
    images = kinds.pop() if len(kinds) == 1 else "evaluation"
    loss = _plot(runs, "loss", "training loss", "training loss (log scale)", log=True)
    validation = _plot(runs, "val_loss", f"{images} loss", f"{images} loss (log scale)", log=True)
    accuracy = _plot(runs, "top1", "top-1 %", f"{images} accuracy, top-1", log=False)
    return f'<div class="row">{loss}{validation}{accuracy}</div>'


def _plot(runs: list[Run], key: str, ylabel: str, title: str, *, log: bool) -> str:
    found = [(index, *run.curve(key)) for index, run in enumerate(runs)]
    found = [(index, xs, ys) for index, xs, ys in found if ys]
    if not found:
        return ""
    last = max(xs[-1] for _, xs, _ in found)
    low, high = (f(y for _, _, ys in found for y in ys) for f in (min, max))
    limits = (max(low, 1e-9) * 0.9, max(high, 1e-9) * 1.1) if log else (max(0.0, low - 3), min(100.0, high + 3))
    axes = Axes(WIDTH, HEIGHT, (0, last), limits, log=log)
    out = axes.frame("optimizer steps", ylabel)
    for index, xs, ys in found:
        out += axes.line(xs, ys, f"run{index % 6}")
        out += tag("circle", cx=axes.x(xs[-1]), cy=axes.y(ys[-1]), r=3.2, class_=f"dot run{index % 6}")
    return f"<figure>{picture(WIDTH, HEIGHT, out, title)}<figcaption>{escape(title)}</figcaption></figure>"


def confusion(run: Run) -> str:
    """True classes down, predicted classes across; of many classes, the pairs most often confused."""
    assert run.seen is not None
    seen = run.seen
    size = len(seen.classes)
    counts = np.zeros((size, size), int)
    np.add.at(counts, (seen.labels, seen.predicted), 1)
    drawn = _matrix(seen, counts) if size <= NAMED else ""
    wrong = [(int(counts[i, j]), i, j) for i in range(size) for j in range(size) if i != j and counts[i, j]]
    wrong.sort(reverse=True)
    names = seen.classes
    pairs = "; ".join(f"{escape(names[i])} taken for {escape(names[j])}: {n}" for n, i, j in wrong[:6])
    right = int(np.trace(counts))
    text = f"<b>{escape(run.name)}</b>, {escape(run.images)} images: {right} of {len(seen.labels)} right"
    text += f", {100 * right / len(seen.labels):.1f} %." + (f" Most often wrong: {pairs}." if pairs else "")
    return f'<figure class="matrix">{drawn}<figcaption>{text}</figcaption></figure>'


def _matrix(seen: Seen, counts: np.ndarray) -> str:
    size = len(seen.classes)
    names = [name if len(name) <= 12 else name[:11] + "…" for name in seen.classes]
    left = 22 + 6.2 * max(map(len, names))
    cell = min(34.0, (440 - left) / size)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    out = []
    for i in range(size):
        y = 20 + i * cell
        out.append(words(left - 6, y + cell / 2 + 4, names[i], anchor="end"))
        slanted = {"transform": f"rotate(-45 {left + (i + 0.5) * cell} 16)"} if max(map(len, names)) > 3 else {}
        anchor = "start" if slanted else "middle"
        out.append(words(left + (i + 0.5) * cell, 14, names[i], anchor=anchor, **slanted))
        for j in range(size):
            x, n = left + j * cell, int(counts[i, j])
            title = f"<title>{escape(seen.classes[i])} predicted as {escape(seen.classes[j])}: {n}</title>"
            kind = "right" if i == j else "wrong"
            opacity = 0.0 if n == 0 else 0.15 + 0.85 * float(shares[i, j]) if i == j else 0.35 + 0.65 * shares[i, j]
            box = {"x": x + 0.75, "y": y + 0.75, "width": cell - 1.5, "height": cell - 1.5, "rx": 3}
            out.append(tag("rect", title, **box, class_="empty"))
            if n:
                out.append(tag("rect", title, **box, class_=kind, fill_opacity=float(opacity)))
                if cell > 16:
                    look = "small" + (" strong" if i == j else "") + (" on-full" if shares[i, j] > 0.5 else "")
                    out.append(words(x + cell / 2, y + cell / 2 + 4, str(n), look, "middle"))
    width, height = left + size * cell + 4, 36 + size * cell
    out.append(words(left + size * cell / 2, height - 1, "predicted (across), true (down)", anchor="middle"))
    return picture(width, height + 4, "".join(out), "confusion matrix")


def radii(seen: Seen, bins: int = 24) -> str:
    """Histogram of the radius of the pooled points, right and wrong ones; below it, certainty against radius."""
    r, sure = seen.radius, seen.probabilities.max(1)
    right = seen.predicted == seen.labels
    low, high = float(r.min()), float(r.max())
    pad = 0.04 * (high - low or 1)
    limits = (low - pad, high + pad)
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    all_counts, good = np.histogram(r, edges)[0], np.histogram(r[right], edges)[0]
    axes = Axes(WIDTH, HEIGHT, limits, (0, float(all_counts.max()) * 1.08))
    out = axes.frame("radius of the pooled point", "images")
    for i in range(bins):
        x, width = axes.x(edges[i]), axes.x(edges[i + 1]) - axes.x(edges[i]) - 1
        for count, base, kind in ((good[i], 0, "run0"), (all_counts[i] - good[i], good[i], "wrong")):
            if count:
                y, y0 = axes.y(float(base + count)), axes.y(float(base))
                out += tag("rect", x=x, y=y, width=width, height=y0 - y, class_=f"bar {kind}")
    histogram = picture(WIDTH, HEIGHT, out, "histogram of radii")
    doubt = Axes(WIDTH, HEIGHT, limits, (max(1e-6, float((1 - sure).min())) * 0.8, 1.0), log=True)
    dots = doubt.frame("radius of the pooled point", "1 - largest probability (log scale)")
    for i in np.argsort(~right, kind="stable"):
        y = doubt.y(max(float(1 - sure[i]), 1e-6))
        dots += tag("circle", cx=doubt.x(r[i]), cy=y, r=2.4, class_="dot faint " + ("run0" if right[i] else "wrong"))
    scatter = picture(WIDTH, HEIGHT, dots, "doubt against radius")
    rho = rank_correlation(r, sure)
    return (
        f'<div class="row"><figure>{histogram}<figcaption>Where the images lie: '
        f'<span class="key run0"></span>classified right, <span class="key wrong"></span>wrong.</figcaption></figure>'
        f"<figure>{scatter}<figcaption>{verdict(rho, len(r))}</figcaption></figure></div>"
    )


def verdict(rho: float, count: int) -> str:
    """Whether far points are more certain, in words, from Spearman's rank correlation."""
    noise = 2 / max(count - 1, 1) ** 0.5
    if abs(rho) < noise:
        answer = "no, radius and certainty are not related here"
    else:
        strength = "clearly" if abs(rho) > 0.5 else "somewhat" if abs(rho) > 0.2 else "slightly"
        answer = f"yes, {strength}" if rho > 0 else f"no, {strength} less"
    return (
        f"Are far points more certain? <b>{answer}</b> (Spearman {rho:+.2f} between radius and largest probability, "
        f"{count} images). The lower a dot, the surer the model."
    )


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rho; ties share their mean rank."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[where]
