"""Eleven places where the paper's formulas are wrong or unsafe: each measured, beside the form used here.

Every function below evaluates the paper's form and ours on the same input and says what each returns; a place
`holds` if ours is right and the paper's is not. docs/numerics.md tells the story.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from polarvit.experiments.precision.samples import DIM, axis_and_directions, clusters, directions
from polarvit.experiments.precision.statements import weight_decay
from polarvit.experiments.registry import Settings
from polarvit.geometry import (
    PolarPoint,
    PolarTangent,
    boost,
    busemann,
    centroid,
    distance,
    exp_map,
    gyroadd,
    gyroneg,
    gyroscale,
    rotate,
    to_space,
    transport,
)
from polarvit.provenance import provenance, write_json
from polarvit.tables import console, number, prose

F64 = torch.float64


@dataclass(frozen=True)
class Correction:
    """One place: what the paper's form returns, what ours returns, and the numbers behind both."""

    place: str
    paper: str
    here: str
    holds: bool
    numbers: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        return {"place": self.place, "paper": self.paper, "here": self.here, "holds": self.holds, **self.numbers}


def polar_fc(seed: int) -> Correction:
    """At initialisation the layer must be the general Lorentz layer, sinh a' = |W x|/sqrt k."""
    k, generator = 2.3, torch.Generator().manual_seed(seed)
    point = PolarPoint(torch.tensor(3.0, dtype=F64), directions((), generator))
    a = point.radius / math.sqrt(k)
    weight = torch.randn(DIM, DIM + 1, dtype=F64, generator=generator) / math.sqrt(DIM)
    x = torch.cat([math.sqrt(k) * torch.cosh(a).reshape(1), to_space(point, k=k)])
    lorentz = torch.asinh((weight @ x).norm() / math.sqrt(k)).item()
    paper = torch.asinh((weight @ x / math.sqrt(k)).norm() / math.sqrt(k)).item()
    inside = torch.cosh(a) * (weight[:, 0] + torch.tanh(a) * (weight[:, 1:] @ point.direction))
    here = torch.asinh(torch.exp(torch.log(inside.norm()))).item()
    return Correction(
        "Polar-FC, k = 2.3",
        f"a' = {paper:.3f}: divides by sqrt(k) twice; the Lorentz layer it claims to start as gives {lorentz:.3f}",
        f"a' = {here:.3f} with h = phi(W x), l = beta ln(|h|/sqrt k) + ...",
        abs(here - lorentz) < 1e-12 and abs(paper - lorentz) > 0.1,
        {"paper_radius": paper, "here_radius": here, "true_radius": lorentz},
    )


def centering_order(seed: int) -> Correction:
    """After centring, the centroid must be at the origin."""
    points = clusters(2.0, 1, seed)
    mean = centroid(points).map(lambda x: x.unsqueeze(1))
    paper = centroid(gyroadd(points, gyroneg(mean))).radius.item()
    here = centroid(gyroadd(gyroneg(mean), points)).radius.item()
    return Correction(
        "gyro centring (appendix): x (+) (-mean)",
        f"leaves the centroid at radius {number(paper)}",
        f"(-mean) (+) x leaves it at {number(here)}",
        here < 1e-9 and paper > 1e-2,
        {"paper_centroid_radius": paper, "here_centroid_radius": here},
    )


def scaled_norm(seed: int) -> Correction:
    """Does scaling after centring keep the Lorentz centroid? No; these two facts hold instead."""
    gain, eps = 3.0, 1e-5
    points = clusters(2.0, 8, seed)
    skewed = points.map(lambda x: torch.cat([x[:, :6], x[:, 6:7].expand(-1, 10, *x.shape[2:])], 1))
    mean = centroid(skewed).map(lambda x: x.unsqueeze(1))
    centred = gyroadd(gyroneg(mean), skewed)
    sigma2 = centred.radius.square().mean(1, keepdim=True)
    scaled = gyroscale(centred, gain / torch.sqrt(sigma2 + eps))
    before, after = centroid(centred).radius.max().item(), centroid(scaled).radius
    spread = (scaled.radius.square().mean(1, keepdim=True) / (gain**2 * sigma2 / (sigma2 + eps)) - 1).abs().max().item()
    return Correction(
        "gyro layer norm: gain after centring",
        f"the centroid is not kept: it moves by {number(after.min().item())} to {number(after.max().item())}",
        f"claimed only: centroid at the origin before the gain (off by {number(before)}), mean squared distance "
        f"gain^2 sigma^2/(sigma^2 + eps) after it (off by {number(spread)}, relative)",
        before < 1e-9 and spread < 1e-12 and after.min().item() > 1e-3,
        {"centroid_moves": [after.min().item(), after.max().item()], "before_gain": before, "dispersion_error": spread},
    )


def rotation_law(seed: int) -> Correction:
    """How far a rotation by t moves a point whose direction is not in the rotated plane."""
    a, t = 2.0, 0.7
    point = PolarPoint(torch.tensor(a, dtype=F64), directions((), torch.Generator().manual_seed(seed)))
    moved = distance(point, rotate(point, t)).item()
    paper = math.acosh(math.cosh(a) ** 2 - math.sinh(a) ** 2 * math.cos(t))
    in_plane = point.direction[:2].square().sum().item()
    law = math.acosh(1 + math.sinh(a) ** 2 * in_plane * (1 - math.cos(t)))
    boosted = distance(point, boost(point, t)).item()
    off_axis = 1 - point.direction[0].item() ** 2
    boost_law = 2 * math.asinh(math.sinh(t / 2) * math.sqrt(1 + math.sinh(a) ** 2 * off_axis))
    return Correction(
        "distance law of the rotation",
        f"predicts {paper:.3f} for t = {t}, a = {a:g}; the rotation moves the point by {moved:.3f}",
        f"cosh d = 1 + sinh^2 a (u_i^2 + u_j^2)(1 - cos t) predicts {law:.3f}; the boost's law {boost_law:.3f} for "
        f"a move of {boosted:.3f}",
        abs(law - moved) < 1e-9 and abs(boost_law - boosted) < 1e-9 and abs(paper - moved) > 0.1,
        {"moved": moved, "paper_law": paper, "here_law": law, "boost_moved": boosted, "boost_law": boost_law},
    )


def overflow(seed: int) -> Correction:
    """The paper states a range a < 88.7; its forms overflow earlier, and ours not at all."""
    u = directions((), torch.Generator().manual_seed(seed)).float()

    def opposite(r: float) -> tuple[float, float]:
        a = torch.tensor(r)
        c = torch.sinh(a).square() * 2.0
        ours = distance(PolarPoint(a, u), PolarPoint(a, -u)).item()
        return torch.asinh(torch.sqrt(c * (c + 2))).item(), ours

    a = torch.tensor(45.0, requires_grad=True)
    (gradient,) = torch.autograd.grad(2 / (torch.exp(2 * a) + 1), a)
    (paper, here), far = opposite(23.0), opposite(1000.0)[1]
    return Correction(
        "range a < 88.7 in float32",
        f"distance 46 of two opposite points at a = 23: {number(paper)}; gradient of 2/(e^2a + 1) at a = 45: "
        f"{number(gradient.item())}",
        f"{here:g}; two opposite points at a = 1000: {far:g}",
        not math.isfinite(paper) and math.isnan(gradient.item()) and abs(here - 46) < 1e-4 and abs(far - 2000) < 1e-2,
        {"paper_distance_46": paper, "here_distance_46": here, "here_distance_2000": far},
    )


def horosphere_level(seed: int) -> Correction:
    """nu = e^-a + sinh a (1 - u_1) near the ideal point: 1 - u_1 cancels."""
    errors: dict[str, list[float]] = {"paper": [], "here": []}
    for r in (8.0, 12.0):
        generator = torch.Generator().manual_seed(seed)
        tilt = torch.randn(1000, DIM, dtype=F64, generator=generator) * math.exp(-r)
        tilt[:, 0] = 1.0
        u = (tilt / tilt.norm(dim=-1, keepdim=True)).float()
        point = PolarPoint(torch.full((1000,), r), u)
        exact = u.double() / u.double().norm(dim=-1, keepdim=True)
        gap = 0.5 * ((1 - exact[:, 0]).square() + exact[:, 1:].square().sum(-1))
        truth = math.exp(-r) + math.sinh(r) * gap
        a = point.radius
        paper = torch.exp(-a) + torch.sinh(a) * (1 - u[:, 0])
        here = torch.exp(busemann(point))
        errors["paper"].append((paper.double() / truth - 1).abs().max().item())
        errors["here"].append((here.double() / truth - 1).abs().max().item())
    paper_8, paper_12, here_8, here_12 = (number(error) for error in errors["paper"] + errors["here"])
    return Correction(
        "horosphere level nu with 1 - u_1",
        f"relative error {paper_8} at r = 8, {paper_12} at r = 12 near the ideal point",
        f"1 - u_1 as 1/2 [(1 - u_1)^2 + sum of the other u_j^2]: {here_8} and {here_12}",
        max(errors["here"]) < 1e-5 and min(errors["paper"]) > 1e-3,
        {"paper_relative_error": errors["paper"], "here_relative_error": errors["here"], "radii": [8, 12]},
    )


def paper_centroid_radius(points: PolarPoint) -> float:
    """The paper's centroid radius, equal weights, with the growth taken out so that nothing overflows."""
    a, u = points
    m = a.max()
    mass = torch.exp(a - m) * -0.5 * torch.expm1(-2 * a) / len(a)
    total = (mass.unsqueeze(-1) * u).sum(0)
    direction = total / total.norm()
    s = (mass * 0.5 * (u - direction).square().sum(-1)).sum()
    minus = torch.logaddexp(torch.log(s), torch.log(torch.exp(-a - m).mean()))
    plus = torch.log(total.norm() + (torch.exp(a - m) * 0.5 * (1 + torch.exp(-2 * a))).mean())
    return (0.5 * (plus - minus)).item()


def far_centroid(seed: int) -> Correction:
    """Equal points at radius 200: their centroid is that point."""
    u = directions((), torch.Generator().manual_seed(seed)).float().expand(5, DIM)
    points = PolarPoint(torch.full((5,), 200.0), u)
    paper, here = paper_centroid_radius(points), centroid(points).radius.item()
    return Correction(
        "centroid past a = 17",
        f"five equal points at radius 200 come back at {paper:.1f}: V/|V| is off by eps, and S swamps E",
        f"{here:g}: the mean direction is not normalised, offsets are taken from the heaviest point",
        abs(here - 200) < 1e-3 and paper < 30,
        {"paper_radius": paper, "here_radius": here},
    )


def boost_residual(seed: int) -> Correction:
    """a' = a + alpha (b - mean b) may be negative, which is no radius."""
    a, steps = torch.tensor([0.2, 2.0, 2.0], dtype=F64), torch.tensor([-0.5, 0.25, 0.25], dtype=F64)
    signed = a + steps
    return Correction(
        "boost residual near the origin",
        f"a radius of {signed.min().item():.1f}; the mean ({signed.mean().item():.2f}) is kept only if that counts",
        f"passes through the origin: radius {signed.abs().min().item():.1f}, direction reversed (mean radius "
        f"{signed.abs().mean().item():.2f})",
        signed.min().item() < 0,
        {
            "paper_radius": signed.min().item(),
            "mean_signed": signed.mean().item(),
            "mean_radius": signed.abs().mean().item(),
        },
    )


def busemann_sign(seed: int) -> Correction:
    """The Busemann function falls towards its ideal point."""
    u = axis_and_directions(0, seed)[0]
    here = busemann(PolarPoint(torch.tensor(5.0, dtype=F64), u)).item()
    return Correction(
        "sign of the Busemann function",
        f"-ln(nu/sqrt k) = {-here:+g} at radius 5 on the way to the ideal point",
        f"the usual +sqrt(k) ln(nu/sqrt k) = {here:+g}",
        abs(here + 5) < 1e-12,
        {"paper": -here, "here": here},
    )


def frame_at_origin(seed: int) -> Correction:
    """Carry the unit vector along u from the origin to x = (3, u) and follow it: the result is at radius 4."""
    u = directions((), torch.Generator().manual_seed(seed))
    origin, x = PolarPoint(torch.tensor(0.0, dtype=F64), u), PolarPoint(torch.tensor(3.0, dtype=F64), u)
    zero, one = torch.zeros((), dtype=F64), torch.ones((), dtype=F64)

    def follow(xi: PolarTangent) -> float:
        return exp_map(x, transport(origin, x, xi)).radius.item()

    paper, here = follow(PolarTangent(zero, u)), follow(PolarTangent(one, torch.zeros_like(u)))
    return Correction(
        '"every tangent vector is perpendicular" at the origin',
        f"a unit step along u, carried from the origin to radius 3, ends at radius {paper:.3f}",
        f"the frame at radius 0 is that of the stored direction: {here:.3f}",
        abs(here - 4) < 1e-9 and abs(paper - 4) > 0.1,
        {"paper_radius": paper, "here_radius": here},
    )


def decay_example(seed: int) -> Correction:
    """The paper tells the weight-decay example three times, differently."""
    found = {row.numbers["radius"]: row.numbers for row in weight_decay(1000, seed)}
    worst = max(row["polar_worst_error"] for row in found.values())
    outward = ", ".join(f"{row['ambient_outward_share']:.0%}" for row in found.values())
    axis = ", ".join(f"{row['ambient_axis']:.2f}" for row in found.values())
    true = ", ".join(f"{row['true']:.4f}" for row in found.values())
    return Correction(
        "weight-decay example, w = 1e-5",
        f"ambient 8.14 at r = 8, NaN at 9, or outward from 9, or from 12; measured on an axis {axis}, and over "
        f"random directions {outward} move outward, at r = 8, 9, 12",
        f"true {true}; polar off by at most {number(worst)}",
        worst < 1e-5,
        {"rows": list(found.values())},
    )


CORRECTIONS: tuple[Callable[[int], Correction], ...] = (
    polar_fc,
    centering_order,
    scaled_norm,
    rotation_law,
    overflow,
    horosphere_level,
    far_centroid,
    boost_residual,
    busemann_sign,
    frame_at_origin,
    decay_example,
)


def run(settings: Settings) -> list[str]:
    """Measure all eleven, print, write `corrections.json`; return those that do not hold."""
    found = [correction(settings.seed) for correction in CORRECTIONS]
    out = console()
    out.print(
        prose(
            "Where the paper's formulas are wrong or unsafe",
            ("place", "the paper's form, measured", "the form used here, measured"),
            [[f"{index}. {c.place}", c.paper, c.here] for index, c in enumerate(found, 1)],
        )
    )
    result = {
        "experiment": "corrections",
        "command": "polarvit reproduce corrections",
        "provenance": provenance(seed=settings.seed, quick=settings.quick),
        "corrections": [correction.record() for correction in found],
        "summary": {"holds": f"{sum(correction.holds for correction in found)} of {len(found)}"},
    }
    write_json(settings.file("corrections"), result)
    out.print(f"wrote {settings.file('corrections')}", soft_wrap=True)
    return [correction.place for correction in found if not correction.holds]
