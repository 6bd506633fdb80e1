"""Where ambient float32 still computes a centroid: the paper's table of failure sites, measured.

The paper gives each site a condition for correctness (a leak delta of softmax weights, an angular spread theta, a decay
weight w, a radius). Here the quantity is swept and the error of the ambient result taken in float32 against the polar
one in float64: a result is correct if its median distance from the truth is under 0.1. The value from which on all are
correct stands beside the paper's. Its own claim: in polar form every value of every sweep is within four times the
resolution limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polarvit.experiments.precision.operations import boost_by_formula
from polarvit.experiments.precision.samples import directions, resolution_limit, stored, stored_ambient
from polarvit.experiments.registry import Settings
from polarvit.geometry import PolarPoint, ambient, centroid, distance, from_ambient, from_space, gyroadd, gyroneg
from polarvit.provenance import provenance, write_json
from polarvit.tables import console, number, table

EPS = 2.0**-24
R_EPS = math.asinh(0.5 / math.sqrt(EPS))
"""The radius at which ambient arithmetic puts a result made of rounding."""
WRONG = 0.1
FAR = 12.0
TOKENS = 64
ANGLE = 0.3


@dataclass(frozen=True)
class Site:
    """A sweep: `values` in the order from failing to correct, errors of both arithmetics, the paper's threshold."""

    key: str
    label: str
    symbol: str
    values: Sequence[float]
    ambient: Sequence[float]
    polar: Sequence[float]
    limits: Sequence[float]
    paper: float

    @property
    def threshold(self) -> float:
        """The first value from which on every ambient result is correct."""
        first = len(self.values)
        while first > 0 and self.ambient[first - 1] < WRONG:
            first -= 1
        return self.values[first] if first < len(self.values) else math.nan


def errors(points: PolarPoint, weights: Tensor, radius: float) -> tuple[float, float, float]:
    """Median error of the ambient and of the polar centroid in float32, and the resolution limit.

    The truth is that of the points each arithmetic was given, so that storing them does not count.
    """
    kept, flat = stored(points), stored_ambient(points)
    exact = centroid(kept.map(Tensor.double), weights)
    lifted = centroid(from_ambient(flat.double()), weights)
    ours = distance(centroid(kept, weights.float()).map(Tensor.double), exact)
    theirs = distance(from_ambient(ambient.centroid(flat, weights.float()).double()), lifted)
    return median(theirs), median(ours), resolution_limit(radius)


def median(x: Tensor) -> float:
    """With what is not finite counted as infinitely far."""
    return torch.where(x.isfinite(), x, torch.inf).median().item()


def around(axis: Tensor, angle: float, generator: torch.Generator) -> Tensor:
    """Directions [S, N, n] at `angle` from the axes [S, n]."""
    side = directions((len(axis), TOKENS), generator)
    side = side - (side * axis.unsqueeze(1)).sum(-1, keepdim=True) * axis.unsqueeze(1)
    side = side / side.norm(dim=-1, keepdim=True)
    return math.cos(angle) * axis.unsqueeze(1) + math.sin(angle) * side


def sweep(
    values: Sequence[float], measure: Callable[[float], tuple[float, float, float]]
) -> tuple[list[float], list[float], list[float]]:
    rows = [measure(value) for value in values]
    theirs, ours, limits = zip(*rows, strict=True)
    return list(theirs), list(ours), list(limits)


def attention(axis: Tensor, generator: torch.Generator) -> Site:
    """A row of attention: weight 1 - delta on one point, delta over the others, an angle apart, at radius 12."""

    def measure(delta: float) -> tuple[float, float, float]:
        u = around(axis, ANGLE, generator)
        u[:, 0] = axis
        weights = torch.full((len(axis), TOKENS), delta / (TOKENS - 1), dtype=torch.float64)
        weights[:, 0] = 1 - delta
        return errors(PolarPoint(torch.full(u.shape[:2], FAR, dtype=u.dtype), u), weights, FAR)

    values = logspace(1e-9, 1e-2)
    label = f"attention aggregation, softmax row with leak delta (theta = {ANGLE}, r = {FAR:g})"
    return Site("attention", label, "delta", values, *sweep(values, measure), 4 * EPS / ANGLE**2)


def decay(axis: Tensor) -> Site:
    """The centroid of {x, o} with weights (1 - w, w), at radius 10."""

    def measure(w: float) -> tuple[float, float, float]:
        u = torch.stack([axis, axis], 1)
        radius = torch.tensor([10.0, 0.0], dtype=u.dtype).expand(len(axis), 2)
        return errors(PolarPoint(radius, u), torch.tensor([1 - w, w], dtype=u.dtype).expand(len(axis), 2), 10.0)

    values = logspace(1e-6, 0.5)
    label = "manifold weight decay, centroid residual, weights (1 - w, w) (r = 10)"
    return Site("decay", label, "w", values, *sweep(values, measure), EPS * math.exp(10.0))


def pooling(axis: Tensor, generator: torch.Generator) -> Site:
    """The mean of points within an angle, at radius 12."""

    def measure(theta: float) -> tuple[float, float, float]:
        u = around(axis, theta, generator)
        points = PolarPoint(torch.full(u.shape[:2], FAR, dtype=u.dtype), u)
        return errors(points, torch.full(u.shape[:2], 1 / TOKENS, dtype=u.dtype), FAR)

    values = logspace(1e-5, 1e-1)
    label = f"batch-norm mean, token pooling, uniform weights (r = {FAR:g})"
    return Site("pooling", label, "theta", values, *sweep(values, measure), 2 * math.sqrt(EPS))


def centering(axis: Tensor, generator: torch.Generator) -> Site:
    """(-mean) (+) x by the paper's closed form, for points about 1 from their mean; the sweep runs inward."""

    def measure(radius: float) -> tuple[float, float, float]:
        u = around(axis, 1 / math.sinh(radius), generator)[:, 0]
        r = torch.full(u.shape[:1], radius, dtype=u.dtype)
        mean, x = PolarPoint(r, axis), PolarPoint(r, u)
        kept, flat = [stored(p) for p in (mean, x)], [stored_ambient(p) for p in (mean, x)]
        exact, lifted = (
            gyroadd(gyroneg(m), p)
            for m, p in ([p.map(Tensor.double) for p in kept], [from_ambient(p.double()) for p in flat])
        )
        ours = gyroadd(gyroneg(kept[0]), kept[1]).map(Tensor.double)
        theirs = from_space(boost_by_formula(*flat).double())
        return median(distance(theirs, lifted)), median(distance(ours, exact)), resolution_limit(radius)

    values = [0.25 * i for i in range(56, 11, -1)]
    label = "gyro-norm centering, largest radius"
    return Site("centering", label, "r", values, *sweep(values, measure), R_EPS)


def logspace(low: float, high: float) -> list[float]:
    return torch.logspace(math.log10(low), math.log10(high), 43, dtype=torch.float64).tolist()


def run(settings: Settings) -> list[str]:
    """Measure, print, write; return the claims of ours that did not hold."""
    generator = torch.Generator().manual_seed(settings.seed)
    axis = directions((16 if settings.quick else 200,), generator)
    sites = [attention(axis, generator), decay(axis), pooling(axis, generator), centering(axis, generator)]
    cells = [
        [site.label, f"{site.symbol} {number(site.paper)}", f"{site.symbol} {number(site.threshold)}", worst(site)]
        for site in sites
    ]
    out = console()
    headings = ["site", "paper's threshold", "measured", "polar, worst error / limit"]
    out.print(table("Where ambient float32 still computes a centroid", headings, cells))
    out.print(f"Correct: median error under {WRONG}. eps = 2^-24, r_eps = {R_EPS:.2f}; k = 1, dimension 16.")
    record = {
        "experiment": "sites",
        "command": "polarvit reproduce sites",
        "provenance": provenance(seed=settings.seed, quick=settings.quick),
        "protocol": {"samples": len(axis), "tokens": TOKENS, "correct_below": WRONG, "k": 1.0, "dimension": 16},
        "sites": [
            {
                "site": site.key, "label": site.label, "symbol": site.symbol, "paper": site.paper,
                "measured": site.threshold, "values": list(site.values), "ambient": list(site.ambient),
                "polar": list(site.polar), "resolution_limit": list(site.limits),
            }
            for site in sites
        ],
        "summary": {s.key: f"{s.symbol} {'<' if s.key == 'centering' else '>'}= {number(s.threshold)}" for s in sites},
    }  # fmt: skip
    write_json(settings.file("sites"), record)
    out.print(f"wrote {settings.file('sites')}", soft_wrap=True)
    return [f"{site.label}: polar is off" for site in sites if ratio(site) > 4]


def ratio(site: Site) -> float:
    return max(error / limit for error, limit in zip(site.polar, site.limits, strict=True))


def worst(site: Site) -> str:
    return f"{ratio(site):.2f}"
