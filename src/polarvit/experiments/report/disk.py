"""Images on the Poincare disk.

The pooled points live in a hyperbolic space of many dimensions. For the picture they are placed in the hyperbolic plane
so that their distances from the origin and from each other are those of the model, as nearly as two dimensions allow
(multidimensional scaling: weighted squared errors of distances, minimised by gradient descent from the best of three
principal planes of the tangent space). No label is used. What it costs is measured and printed beside the picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polarvit.experiments.report.collect import Seen
from polarvit.experiments.report.svg import number, picture, png, tag, words
from polarvit.geometry import from_tangent0, pairwise_distance

POINTS = 400
"""Most points in the picture; of more images, that many evenly spaced."""
RIM_SHARE = 0.85
"""Share of the disk's radius inside which nineteen of twenty points lie: it sets the curvature of the picture."""
SIZE, RADIUS = 620.0, 236.0
THUMB = 30.0


@dataclass(frozen=True)
class Placed:
    """Points in the plane."""

    rows: np.ndarray
    """Which images, int [m]."""
    radius: np.ndarray
    """Distance from the origin in the picture, in the units of the model [m]."""
    angle: np.ndarray
    k: float
    """The picture's curvature is -1/k."""
    radius_error: float
    """Mean relative error of distances from the origin."""
    distance_error: float
    """Mean relative error of distances between points."""

    def at(self, radius: np.ndarray, angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Place in the SVG of points of the plane."""
        rho = RADIUS * np.tanh(radius / (2 * math.sqrt(self.k)))
        return SIZE / 2 + rho * np.cos(angle), SIZE / 2 - rho * np.sin(angle)


def place(seen: Seen, steps: int = 160) -> Placed:
    """Put the pooled points into the hyperbolic plane, distances kept as well as they can be."""
    assert seen.k is not None
    count = len(seen.labels)
    rows = np.linspace(0, count - 1, min(POINTS, count)).round().astype(int)
    v = torch.from_numpy(seen.features[rows])
    points = from_tangent0(v)
    one, other = torch.triu_indices(len(rows), len(rows), 1)
    radius = points.radius.float()
    wanted = pairwise_distance(points, points, k=seen.k)[one, other].float()
    size = max(radius.quantile(0.95).item(), 1e-9)
    scale = size / (2 * math.atanh(RIM_SHARE))
    planes = torch.linalg.svd(v, full_matrices=False)[2]
    starts = [(0, 1), (0, 2), (1, 2)] if len(planes) > 2 else [(0, 1)]
    goal = _Goal(radius, wanted, one, other, size, scale)
    tried = [goal.approach((v @ planes[list(pair)].T).float(), steps // 4) for pair in starts]
    r, angle = goal.reach(min(tried, key=lambda w: goal.cost(w).item()), steps)
    distances = (goal.distance(r, angle) - wanted).abs().sum() / wanted.sum().clamp_min(1e-30)
    radii = (r - radius).abs().sum() / radius.sum().clamp_min(1e-30)
    return Placed(rows, r.numpy(), angle.numpy(), scale**2, radii.item(), distances.item())


@dataclass(frozen=True)
class _Goal:
    """Radii and distances that points w [m, 2] of the plane, given as tangents at the origin, should have."""

    radius: Tensor
    wanted: Tensor
    one: Tensor
    other: Tensor
    size: float
    scale: float

    def distance(self, r: Tensor, angle: Tensor) -> Tensor:
        """Law of haversines in the plane of curvature -1/scale^2, between pairs of points."""
        a, one, other = r / self.scale, self.one, self.other
        turn = torch.sinh(a)[one] * torch.sinh(a)[other] * torch.sin(0.5 * (angle[one] - angle[other])).square()
        apart = torch.sinh(0.5 * (a[one] - a[other])).square()
        return 2 * self.scale * torch.asinh((apart + turn + 1e-12).sqrt())

    def cost(self, w: Tensor) -> Tensor:
        r, angle = w.norm(dim=-1), torch.atan2(w[:, 1], w[:, 0])
        between = (self.distance(r, angle) - self.wanted).square() / self.wanted.clamp_min(0.1 * self.size)
        outward = (r - self.radius).square() / self.radius.clamp_min(0.1 * self.size)
        return between.sum() / len(w) + 5 * outward.sum()

    def approach(self, start: Tensor, steps: int) -> Tensor:
        """Gradient descent from the directions of `start`, at the right radii."""
        w = self.radius.unsqueeze(-1) * torch.nn.functional.normalize(start, dim=-1)
        return self._descend(w, steps, 0.2 * self.size)

    def reach(self, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Radius and angle at the end of the way."""
        w = self._descend(start, steps, 0.1 * self.size)
        return w.norm(dim=-1), torch.atan2(w[:, 1], w[:, 0])

    def _descend(self, start: Tensor, steps: int, rate: float) -> Tensor:
        w = start.clone().requires_grad_()
        optimizer = torch.optim.Adam([w])
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
            optimizer.zero_grad()
            self.cost(w).backward()
            optimizer.step()
        return w.detach()


def disk(seen: Seen, placed: Placed) -> str:
    """The picture: circles of equal radius, points coloured by class, one digit of each class outside the rim."""
    out = [tag("circle", cx=SIZE / 2, cy=SIZE / 2, r=RADIUS, class_="rim")]
    marks = []
    for radius in _circles(placed):
        rho = RADIUS * math.tanh(radius / (2 * math.sqrt(placed.k)))
        out.append(tag("circle", cx=SIZE / 2, cy=SIZE / 2, r=rho, class_="ring"))
        marks.append(words(SIZE / 2, SIZE / 2 - rho + 12, f"{radius:g}", "tiny halo", "middle"))
    out.append(tag("circle", cx=SIZE / 2, cy=SIZE / 2, r=1.8, class_="centre"))
    xs, ys = placed.at(placed.radius, placed.angle)
    wrong = (seen.predicted != seen.labels)[placed.rows]
    for i in np.argsort(wrong, kind="stable"):
        row = placed.rows[i]
        true, said = seen.classes[seen.labels[row]], seen.classes[seen.predicted[row]]
        sure = seen.probabilities[row].max()
        title = f"<title>{escape(true)}, predicted {escape(said)} ({sure:.0%}), radius {seen.radius[row]:.2f}</title>"
        attributes = {"cx": float(xs[i]), "cy": float(ys[i]), "fill": colour(seen.labels[row], len(seen.classes))}
        out.append(tag("circle", title, **attributes, r=4.6 if wrong[i] else 3.4, class_="miss" if wrong[i] else "hit"))
    out += marks  # over the dots, which would hide them
    if len(seen.classes) <= 16:
        out += _labels(seen, placed)
    return picture(SIZE, SIZE, "".join(out), "images on the Poincare disk, coloured by class")


def _circles(placed: Placed) -> list[float]:
    furthest = float(placed.radius.max())
    step = next(s * 10.0**e for e in range(-6, 6) for s in (1, 2, 5) if furthest / (s * 10.0**e) <= 6)
    return [step * i for i in range(1, int(furthest / step) + 1)]


def _labels(seen: Seen, placed: Placed) -> list[str]:
    """One image of each class outside the rim, at the angle of the class, pushed apart where two would overlap."""
    spots = []
    for index in range(len(seen.classes)):
        mine = np.flatnonzero(seen.labels[placed.rows] == index)
        if len(mine):
            mean = np.exp(1j * placed.angle[mine]).sum()
            medoid = mine[np.argmin(np.abs(np.exp(1j * (placed.angle[mine] - np.angle(mean))) - 1))]
            spots.append((float(np.angle(mean)), index, int(placed.rows[medoid])))
    spots.sort()
    apart = min(2 * math.pi / max(len(spots), 1), (THUMB + 22) / (RADIUS + 34))
    angles = [spot[0] for spot in spots]
    for _ in range(200):
        for a in range(len(angles)):
            b = (a + 1) % len(angles)
            gap = (angles[b] - angles[a] + (2 * math.pi if b <= a else 0)) if len(angles) > 1 else 7.0
            if gap < apart:
                angles[a] -= (apart - gap) / 2
                angles[b] += (apart - gap) / 2
    out = []
    for angle, (true, index, row) in zip(angles, spots, strict=True):
        ink = colour(index, len(seen.classes))
        x, y = (SIZE / 2 + (RADIUS + 34) * f for f in (math.cos(angle), -math.sin(angle)))
        ends = [SIZE / 2 + (RADIUS + d) * f for d, f in ((2, math.cos(true)), (2, -math.sin(true)))]
        out.append(tag("line", x1=ends[0], y1=ends[1], x2=x, y2=y, stroke=ink, class_="leader"))
        out.append(thumbnail(seen.images[row], x - THUMB / 2, y - THUMB / 2, ink))
        above = math.sin(angle) > 0  # a long name beside a picture at the left or right would leave the drawing
        name = seen.classes[index] if len(seen.classes[index]) < 10 else seen.classes[index][:9] + "…"
        out.append(
            words(
                x,
                y + (-THUMB / 2 - 6 if above else THUMB / 2 + 13),
                name,
                "small strong",
                "middle",
                style=f"fill: {ink}",
            )
        )
    return out


def thumbnail(image: np.ndarray, x: float, y: float, ink: str, size: float = THUMB) -> str:
    """A small picture with a frame in the colour of its class."""
    box: dict[str, Any] = {"x": x, "y": y, "width": size, "height": size}
    return tag("image", **box, href=png(image), class_="pixels") + tag("rect", **box, rx=3, stroke=ink, class_="thumb")


def extremes(seen: Seen, count: int = 9) -> str:
    """The images nearest to the origin and farthest from it, with what the model makes of them."""
    order = np.argsort(seen.radius)
    rows = [("nearest to the origin", order[:count]), ("farthest from it", order[::-1][:count])]
    out = []
    for line, (title, chosen) in enumerate(rows):
        top = 18 + line * 108
        out.append(words(0, top, title, "small strong"))
        for place_, row in enumerate(chosen):
            x, ink = place_ * 66.0, colour(seen.labels[row], len(seen.classes))
            out.append(thumbnail(seen.images[row], x, top + 8, ink, 52.0))
            said = seen.classes[seen.predicted[row]]
            right = seen.predicted[row] == seen.labels[row]
            text = f"{said if len(said) < 7 else said[:6] + '…'} {seen.probabilities[row].max():.0%}"
            out.append(words(x, top + 74, text, "small" if right else "small bad"))
            out.append(words(x, top + 87, f"r = {seen.radius[row]:.2f}", "tiny"))
    return picture(count * 66, 226, "".join(out), "images at extreme radii")


_TEN = ("#4e79a7", "#f28e2b", "#e15759", "#3fa7a0", "#59a14f", "#c9a227", "#b07aa1", "#ff7d97", "#9c755f", "#7f8794")


def colour(index: int, classes: int) -> str:
    """Colour of a class: ten that can be told apart on black and on white, beyond that hues by the golden angle."""
    if classes <= len(_TEN):
        return _TEN[index]
    return f"hsl({number(index * 137.508 % 360)} 55% 52%)"
