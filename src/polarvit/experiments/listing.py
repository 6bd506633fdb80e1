"""The list of every table and figure: the paper's values, ours with date and machine, or what a run would take.

`polarvit reproduce --list` prints it and docs/reproduction.md is it; neither is typed. Nothing here imports torch.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polarvit.experiments.catalogue import EXPERIMENTS
from polarvit.experiments.registry import Experiment, Row

NOT_RUN = "not yet run"


@dataclass(frozen=True)
class Finding:
    """Our value for a row, and when and on what it was measured; `value` is empty if it was not."""

    value: str = ""
    date: str = ""
    machine: str = ""


def finding(experiment: Experiment, row: Row, results: Path) -> Finding:
    """Read a row's value from the `summary` of its JSON; of several lengths, one after another."""
    paths = [results / row.result] if row.result else tables_of(experiment, results)
    found = [each for path in paths if (each := stated(row, path)) is not None]
    if not found:
        return Finding()
    return Finding(
        "; ".join(each.value for each in found),
        ", ".join(dict.fromkeys(each.date for each in found)),
        ", ".join(dict.fromkeys(each.machine for each in found)),
    )


def stated(row: Row, path: Path) -> Finding | None:
    """What one JSON says of a row, if it does."""
    record = read(path) if path.is_file() else {}
    entry = record.get("summary", {}).get(row.key)
    if entry is None:
        return None
    own = entry if isinstance(entry, dict) else {"value": entry}
    origin = own.get("provenance", record.get("provenance", {}))
    return Finding(str(own["value"]), origin.get("date", "date not recorded"), machine_text(origin.get("machine", {})))


def tables_of(experiment: Experiment, results: Path) -> list[Path]:
    """The JSONs that the list reads: the usual one; with `any_length` every length, most rows first, then longest."""
    usual = results / experiment.table
    if not experiment.any_length:
        return [usual]
    records = {path: read(path) for path in (usual, *results.glob(f"**/*-steps/{usual.name}")) if path.is_file()}
    ran = {path: len(record.get("summary", {})) for path, record in records.items()}
    return sorted(filter(ran.get, records), key=lambda path: (ran[path], records[path]["steps"]), reverse=True)


def read(path: Path) -> dict[str, Any]:
    """What a JSON holds."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def machine_text(machine: dict[str, Any]) -> str:
    """The GPU, or the processor and its cores."""
    gpus = machine.get("gpus") or []
    if gpus:
        return f"{len(gpus)} x {gpus[0]}" if len(gpus) > 1 else str(gpus[0])
    name = machine.get("processor", "machine not recorded")
    return f"{name}, {machine['cores']} cores" if "cores" in machine else str(name)


def lines(experiment: Experiment, results: Path) -> list[tuple[str, str, str, str]]:
    """For each row: label, the paper's value, ours, and date and machine or the command that would run it."""
    found = []
    for row in experiment.rows:
        ours = finding(experiment, row, results)
        where = f"{ours.date}, {ours.machine}" if ours.value else experiment.command_of(row)
        found.append((row.label, row.paper or "-", ours.value or NOT_RUN, where))
    return found


def head(experiment: Experiment, results: Path) -> list[str]:
    """What stands above the rows: the command, the length if that is open, and what a run takes if rows are missing."""
    text = [f"command: {experiment.command}"]
    if experiment.any_length and (paths := tables_of(experiment, results)):
        lengths = " and ".join(f"{read(path)['steps']:,}" for path in paths)
        text.append(f"ours: {lengths} steps; what compares are rows of one length")
    missing = sum(not finding(experiment, row, results).value for row in experiment.rows)
    if missing or not experiment.rows:
        rows = f"{missing} of {len(experiment.rows)} rows" if experiment.rows else "all"
        text.append(f"{NOT_RUN}: {rows}; takes {experiment.cost}")
    else:
        text.append(f"a run takes {experiment.cost}")
    return text


def overview(results: Path) -> list[tuple[str, str, str]]:
    """Each experiment in a line: its name, what it reproduces, how many of its rows were measured."""
    found = []
    for one in EXPERIMENTS.values():
        measured = sum(bool(finding(one, row, results).value) for row in one.rows)
        share = f"{measured} of {len(one.rows)}" if one.rows else ""
        found.append((one.name, one.reproduces, share))
    return found


def markdown(results: Path) -> str:
    """The whole list as Markdown: an overview, then every table."""
    parts = ["| name | what it reproduces | rows measured |\n| --- | --- | --- |"]
    for name, reproduces, share in overview(results):
        anchor = re.sub(r"[^\w\- ]", "", f"{name}: {reproduces}".lower()).replace(" ", "-")
        parts[0] += f"\n| [{name}](#{anchor}) | {reproduces} | {share} |"
    for experiment in EXPERIMENTS.values():
        above = [f"- {line}" for line in head(experiment, results)]
        above = [f"- command: `{experiment.command}`" if line[11:] == experiment.command else line for line in above]
        part = [f"## {experiment.name}: {experiment.reproduces}", f"{_sentence(experiment.title)}.", "\n".join(above)]
        if experiment.rows:
            table = ["| row | paper | ours | measured, or the command |", "| --- | --- | --- | --- |"]
            for row, (label, paper, ours, where) in zip(experiment.rows, lines(experiment, results), strict=True):
                cell = f"`{where}`" if where and where == experiment.command_of(row) else where
                table.append("| " + " | ".join(text.replace("|", "\\|") for text in (label, paper, ours, cell)) + " |")
            part.append("\n".join(table))
        parts.append("\n\n".join(part))
    return "\n\n".join(parts)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
