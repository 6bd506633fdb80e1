"""What the paper states in words, measured: one line each, with the paper's words, ours, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mpmath as mp
import torch
from torch import Tensor

from polarvit.experiments.precision.operations import ambient_point, geodesic_error
from polarvit.experiments.precision.samples import DIM, SIZE, axis_and_directions, clusters, stored, stored_ambient
from polarvit.experiments.precision.sweep import failure_radii
from polarvit.geometry import PolarPoint, PolarTangent, ambient, centroid, distance, tangent_inner
from polarvit.tables import number

F32 = torch.float32


@dataclass(frozen=True)
class Statement:
    """A sentence of the paper, what we measured, and whether that bears it out."""

    subject: str
    paper: str
    measured: str
    verdict: str
    numbers: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "paper": self.paper,
            "measured": self.measured,
            "verdict": self.verdict,
            "numbers": self.numbers,
        }


def verdict(on_axis: bool, in_general: bool) -> str:
    """Whether the paper's number is found for a point on a coordinate axis, and for points in random directions."""
    if on_axis and in_general:
        return "as stated"
    return "on an axis only" if on_axis else "in general only" if in_general else "differs"


def one_hot_rows(count: int, seed: int) -> list[Statement]:
    """Attention rows that are one-hot: the centroid must return the chosen point."""
    statements = []
    for radius in (8.0, 9.0, 12.0):
        points = clusters(radius, count, seed)
        rows = torch.eye(SIZE).expand(count, SIZE, SIZE)
        result = ambient_point(ambient.centroid(stored_ambient(points), rows))
        error = geodesic_error(result, points)
        polar = geodesic_error(centroid(stored(points), rows), points)
        off = error > 0.5
        share = off.double().mean().item()
        floored = ((result.radius - points.radius - 0.5 * math.log(1e8)).abs() < 0.1) & off
        near = result.radius[off & ~floored]
        landed = near.median().item() if near.numel() else math.nan
        floored_share = floored.double().sum().item() / max(int(off.sum()), 1)
        where = f"{floored_share:.0%} of these at r + 9.2, the rest at radius {number(landed)}" if share else "none"
        statements.append(
            Statement(
                f"one-hot attention rows, r = {radius:g}",
                "88 to 100 % off by more than 0.5; output at radius 9 or r + 9.2",
                f"ambient: {share:.0%} off by more than 0.5, {where}; polar: worst error {number(polar.max().item())}",
                verdict(share >= 0.88, share >= 0.88),
                {
                    "radius": radius,
                    "share_off": share,
                    "share_of_those_at_r_plus_9.2": floored_share,
                    "median_radius_of_the_rest": landed,
                    "polar_worst": polar.max().item(),
                },
            )
        )
    return statements


def weight_decay(count: int, seed: int) -> list[Statement]:
    """One step of manifold weight decay: the centroid of x and the origin with weights (1 - w, w)."""
    weight, statements = 1e-5, []
    for radius, words, agrees in (
        (8.0, "true 7.985; ambient 8.14", lambda axis, difference: abs(axis - 8.14) < 0.01),
        (9.0, "ambient: squares equal, NaN", lambda axis, difference: difference == 0),
        (12.0, "ambient: radius increases", lambda axis, difference: axis > 12),
    ):
        with mp.workdps(50):
            t, v = (1 - mp.mpf(weight)) * mp.cosh(radius) + weight, (1 - mp.mpf(weight)) * mp.sinh(radius)
            true = float(mp.asinh(v / mp.sqrt(t * t - v * v)))
        u = axis_and_directions(count, seed)
        radii = torch.tensor([radius, 0.0], dtype=torch.float64).expand(len(u), 2)
        pair = PolarPoint(radii, torch.stack([u, u], -2))
        weights = torch.tensor([1 - weight, weight], dtype=F32).expand(len(u), 2)
        x = stored_ambient(pair)
        total = (weights.unsqueeze(-2) @ x).squeeze(-2)
        difference = -ambient.inner(total, total)
        equal = (difference[1:] == 0).double().mean().item()
        result = ambient_point(ambient.centroid(x, weights)).radius
        polar = centroid(stored(pair), weights).radius.double()
        axis, result = result[0].item(), result[1:]
        low, middle, high = torch.quantile(result, torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)).tolist()
        outward = (result > radius).double().mean().item()
        statements.append(
            Statement(
                f"weight decay step, w = 1e-5, r = {radius:g}",
                words,
                f"true {true:.4f}, polar {polar[0].item():.4f}; ambient on an axis {axis:.2f} (difference of squares "
                f"{number(difference[0].item())}); random directions: median {middle:.2f}, {low:.2f} to {high:.2f}, "
                f"{outward:.0%} move outward, {equal:.0%} subtract to 0",
                verdict(agrees(axis, difference[0].item()), agrees(middle, difference[1:].median().item())),
                {
                    "radius": radius,
                    "true": true,
                    "polar": polar[0].item(),
                    "polar_worst_error": (polar - true).abs().max().item(),
                    "ambient_axis": axis,
                    "ambient_axis_difference": difference[0].item(),
                    "ambient_median": middle,
                    "ambient_range": [low, high],
                    "ambient_outward_share": outward,
                    "ambient_zero_share": equal,
                },
            )
        )
    return statements


def worked_example(count: int, seed: int) -> list[Statement]:
    """Two points at radius a, one apart: the inner product should be cosh 1 = 1.54."""
    statements = []
    for radius, words, agrees in (
        (10.0, "inner product about 24, distance 3.87 instead of 1", lambda inner, d: abs(inner - 24) < 2),
        (12.0, "subtraction returns 0, distance NaN", lambda inner, d: math.isnan(d)),
    ):
        angle = 2 * math.asin(math.sinh(0.5) / math.sinh(radius))
        plane = torch.zeros(2, DIM, dtype=torch.float64)
        plane[:, 0], plane[1, 0], plane[1, 1] = 1.0, math.cos(angle), math.sin(angle)
        basis = _rotations(count, seed)
        u = torch.cat([plane.unsqueeze(0), plane @ basis.mT])
        pair = PolarPoint(torch.full(u.shape[:-1], radius, dtype=torch.float64), u)
        x = stored_ambient(pair)
        products, distances = -ambient.inner(x[:, 0], x[:, 1]), ambient.distance(x[:, 0], x[:, 1])
        s = stored(pair)
        one, two = (PolarPoint(s.radius[:, i], s.direction[:, i]) for i in range(2))
        polar = distance(one, two)[0].item()
        inner, d = products[0].item(), distances[0].item()
        low, middle, high = products[1:].min().item(), products[1:].median().item(), products[1:].max().item()
        lost = (~torch.isfinite(distances[1:])).double().mean().item()
        statements.append(
            Statement(
                f"worked example, two points 1 apart, a = {radius:g}",
                words,
                f"on the axes: inner product {number(inner)}, distance {d:.2f}; random directions: inner product "
                f"median {number(middle)}, {number(low)} to {number(high)}, {lost:.0%} NaN; polar distance {polar:.4f}",
                verdict(agrees(inner, d), agrees(middle, math.nan if lost > 0.5 else math.inf)),
                {
                    "radius": radius,
                    "inner_product": inner,
                    "distance": d,
                    "inner_product_median": middle,
                    "inner_product_range": [low, high],
                    "not_finite": lost,
                    "polar": polar,
                },
            )
        )
    return statements


def tangent_norm(count: int, seed: int) -> list[Statement]:
    """The norm of the outward unit vector (sinh a, cosh a u), by the ambient inner product."""
    statements = []
    u = axis_and_directions(count, seed)
    for radius, paper in ((8.0, 0.87), (12.0, 0.0)):
        a = torch.tensor(radius, dtype=torch.float64)
        radial = torch.cat([torch.sinh(a).expand(len(u), 1), torch.cosh(a) * u], -1).to(F32)
        square = ambient.inner(radial, radial)
        norm = square.clamp_min(0).sqrt()
        negative = (square[1:] < 0).double().mean().item()
        unit = PolarTangent(torch.ones(()), torch.zeros(DIM))
        polar = tangent_inner(unit, unit).sqrt().item()
        along, low, high = norm[0].item(), norm[1:].min().item(), norm[1:].max().item()
        middle = norm[1:].median().item()
        statements.append(
            Statement(
                f"norm of a radial unit vector, a = {radius:g}",
                number(paper),
                f"on an axis {number(along)}; random directions: median {number(middle)}, {number(low)} to "
                f"{number(high)}, {negative:.0%} of the squares negative; polar {number(polar)}",
                verdict(abs(along - paper) < 0.01, abs(middle - paper) < 0.01),
                {
                    "radius": radius,
                    "axis": along,
                    "median": middle,
                    "range": [low, high],
                    "negative_share": negative,
                    "polar": polar,
                },
            )
        )
    return statements


def number_limits(count: int, seed: int) -> list[Statement]:
    """The radius at which a unit distance is lost, by number type."""
    statements = []
    for row in failure_radii(count, seed):
        paper, measured = row["paper"], row["measured"]
        statements.append(
            Statement(
                f"radius limit in {row['dtype']}",
                f"ambient {paper['ambient']}, polar {paper['polar']}",
                f"a unit distance is off by half (median) from ambient {measured['ambient']:g}, "
                f"polar {measured['polar']:g}",
                verdict(*[all(abs(measured[name] - paper[name]) <= 1.5 for name in paper)] * 2),
                row,
            )
        )
    return statements


STATEMENTS: tuple[Callable[[int, int], list[Statement]], ...] = (
    one_hot_rows,
    weight_decay,
    worked_example,
    tangent_norm,
    number_limits,
)


def _rotations(count: int, seed: int) -> Tensor:
    """Random orthogonal matrices [count, n, n]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(count, DIM, DIM, dtype=torch.float64, generator=generator)).Q
