"""The precision experiment: how wrong is float32 at radius r, in polar and in ambient coordinates?

Prints the paper's table beside ours, the paper's statements beside what was measured, and the peers; writes
`precision.json` and `precision.png`. Its own claim, checked on every run: the polar operations stay within twice the
resolution limit (median) at r = 4, 8 and 12.
"""

from __future__ import annotations

import math
import time
from typing import Any

from polarvit.experiments.pictures import NoPictures
from polarvit.experiments.precision.operations import RADII, measure_table
from polarvit.experiments.precision.peers import Method, methods
from polarvit.experiments.precision.picture import draw
from polarvit.experiments.precision.samples import DIM, SIZE, clusters
from polarvit.experiments.precision.statements import STATEMENTS
from polarvit.experiments.precision.sweep import method_errors, sweep
from polarvit.experiments.precision.truth import DIGITS, worst_truth_error
from polarvit.experiments.registry import Settings
from polarvit.provenance import provenance, write_json
from polarvit.tables import console, number, prose, table

ALLOWED = 2.0
"""Polar errors may be this many resolution limits, in the median."""


def run(settings: Settings) -> list[str]:
    """Measure, print, write; return the claims of ours that did not hold."""
    started = time.perf_counter()
    result = measure(settings)
    result["seconds"] = time.perf_counter() - started
    out = console()
    for part in tables(result):
        out.print(part)
    for line in summary(result):
        out.print(line)
    settings.out.mkdir(parents=True, exist_ok=True)
    write_json(settings.file("precision"), result)
    out.print(f"wrote {settings.file('precision')}", soft_wrap=True)
    try:
        draw(settings.file("precision", "png"), result["sweep"])
        out.print(f"wrote {settings.file('precision', 'png')}", soft_wrap=True)
    except NoPictures as reason:
        out.print(str(reason), style="yellow", markup=False)
    return result["failures"]


def measure(settings: Settings) -> dict[str, Any]:
    """Everything that is printed and written, as one record."""
    many, few = (10, 4) if settings.quick else (40, 24)
    trials = 200 if settings.quick else 1000
    rows = measure_table(many, settings.seed)
    found = methods()
    return {
        "experiment": "precision",
        "command": "polarvit precision" + (" --quick" if settings.quick else ""),
        "provenance": provenance(seed=settings.seed, quick=settings.quick),
        "protocol": {
            "clusters": many,
            "points": SIZE,
            "dimension": DIM,
            "k": 1.0,
            "spread": 1.0,
            "truth": f"float64 polar, checked against {DIGITS} digits",
            "truth_error_in_float32_limits": max(worst_truth_error(r, 16, settings.seed) for r in (*RADII, 20.0)),
        },
        "table": rows,
        "statements": [
            statement.record()
            for measure_statements in STATEMENTS
            for statement in measure_statements(
                few if measure_statements.__name__ == "one_hot_rows" else trials, settings.seed
            )
        ],
        "peers": [peer_row(method, many, settings.seed) for method in found],
        "sweep": sweep(found, few, settings.seed),
        "failures": failures(rows),
        "summary": medians(rows),
    }


def failures(rows: list[dict[str, Any]]) -> list[str]:
    """Polar medians above what we allow ourselves."""
    return [
        f"{row['operation']} at r = {row['radius']:g}: polar median error {number(row['measured']['polar']['median'])} "
        f"is more than {ALLOWED:g} x the resolution limit {number(row['resolution_limit'])}"
        for row in rows
        if not row["measured"]["polar"]["median"] <= ALLOWED * row["resolution_limit"]
    ]


def medians(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Ambient and polar median of each row, by the keys of the catalogue."""
    return {
        f"{row['operation'].replace(' ', '_')}_{row['radius']:g}": " / ".join(
            number(row["measured"][method]["median"]) for method in ("ambient", "polar")
        )
        for row in rows
    }


def peer_row(method: Method, count: int, seed: int) -> dict[str, Any]:
    """One library at the radii of the table."""
    row: dict[str, Any] = {"name": method.name, "version": method.version, "missing": method.missing}
    for radius in RADII:
        errors = method_errors(method, clusters(radius, count, seed))
        row[f"{radius:g}"] = {operation: spread.record() for operation, spread in errors.items()}
    return row


def tables(result: dict[str, Any]) -> list[Any]:
    """The three tables of the terminal."""
    return [paper_table(result["table"]), statement_table(result["statements"]), peer_table(result["peers"])]


def paper_table(rows: list[dict[str, Any]]) -> Any:
    """The paper's precision table with ours beside it."""
    lines: list[list[str] | None] = []
    for index, row in enumerate(rows):
        if index % len(RADII) == 0:
            lines.append(None)
        paper, measured = row["paper"], row["measured"]
        lines.append(
            [
                f"{row['operation']}, r = {row['radius']:g}",
                number(paper["ambient"]),
                spread_text(measured["ambient"]),
                number(paper["polar"]),
                spread_text(measured["polar"]),
                number(paper["resolution_limit"]),
                number(row["resolution_limit"]),
            ]
        )
    return table(
        "float32 error on clusters of 64 points, spread 1, k = 1 (ours: median ... worst)",
        ("operation", "ambient\npaper", "ambient\nours", "polar\npaper", "polar\nours", "limit\npaper", "limit\nours"),
        lines,
        "Squared distance: relative error; centroid, centering: geodesic distance from the true point. Ambient squared "
        "distance is -2k - 2<x,y> as in published attention models, against its own truth 2k (cosh(d/sqrt k) - 1).",
    )


def statement_table(statements: list[dict[str, Any]]) -> Any:
    """The paper's words beside what was measured."""
    return prose(
        "What the paper states in words",
        ("subject", "the paper says", "measured here", ""),
        [[s["subject"], s["paper"], s["measured"], s["verdict"]] for s in statements],
    )


def peer_table(rows: list[dict[str, Any]]) -> Any:
    """The libraries side by side."""
    lines = []
    for row in rows:
        if row["missing"]:
            lines.append([row["name"], row["missing"], *[""] * 5])
            continue
        cells = [f"{row['name']} ({row['version']})"]
        for operation in ("distance", "centroid"):
            cells += [peer_text(row[f"{radius:g}"].get(operation)) for radius in RADII]
        lines.append(cells)
    heads = [f"{operation}\nr = {radius:g}" for operation in ("distance", "centroid") for radius in RADII]
    return table("The same points in other libraries: median float32 error", ("library", *heads), lines)


def summary(result: dict[str, Any]) -> list[str]:
    """Where we and the paper part, and how far our truth can be trusted."""
    parted = [
        f"{row['operation']} r = {row['radius']:g} ({method}: paper {number(row['paper'][method])}, ours "
        f"{spread_text(row['measured'][method])})"
        for row in result["table"]
        for method in ("ambient", "polar")
        if not _within(row["paper"][method], row["measured"][method])
    ]
    chain = [
        number(row["measured"]["ambient, exp of transported log"]["median"])
        for row in result["table"]
        if row["operation"] == "gyro centering"
    ]
    lines = [f"Outside a factor of two of our median ... worst: {'; '.join(parted) or 'none'}."]
    lines.append(
        f"Gyro centering as exp of the transported log, the way published norms chain it, is worse than the closed "
        f"form the paper compares with: median {', '.join(chain)} at r = 4, 8, 12."
    )
    lines.append(
        f"Truth: {result['protocol']['truth']}; largest difference "
        f"{number(result['protocol']['truth_error_in_float32_limits'])} float32 limits. {result['seconds']:.0f} s."
    )
    return lines


def _within(paper: float, measured: dict[str, float]) -> bool:
    if math.isnan(paper):
        return measured["not_finite"] > 0
    return measured["median"] / 2 <= paper <= measured["worst"] * 2


def spread_text(spread: dict[str, float]) -> str:
    """median ... worst, with the share that is not finite if there is any."""
    return f"{number(spread['median'])} ... {number(spread['worst'])}{nan_text(spread)}"


def peer_text(spread: dict[str, float] | None) -> str:
    """Median error, the share of NaN beside it; a dash where the library has no such operation."""
    if spread is None:
        return "has none"
    if not math.isfinite(spread["median"]):
        return f"{spread['not_finite']:.0%} NaN"
    return number(spread["median"]) + nan_text(spread)


def nan_text(spread: dict[str, float]) -> str:
    """The share that is not finite, from one in a hundred on."""
    return f" ({spread['not_finite']:.0%} NaN)" if spread["not_finite"] >= 0.01 else ""
