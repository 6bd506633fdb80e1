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
    """Our value for a row, and its date and machine; both are empty if it was not measured."""

    value: str = ""
    where: str = ""


def finding(experiment: Experiment, row: Row, results: Path) -> Finding:
    """A row's value, read from the `summary` of its JSON; of several lengths, one after another."""
    records = [read(results / row.result)] if row.result else tables_of(experiment, results)
    found = [each for record in records if (each := stated(row, record)) is not None]
    return Finding("; ".join(each.value for each in found), "; ".join(dict.fromkeys(each.where for each in found)))


def stated(row: Row, record: dict[str, Any]) -> Finding | None:
    """What one JSON says of a row, if it does."""
    entry = record.get("summary", {}).get(row.key)
    if entry is None:
        return None
    own = entry if isinstance(entry, dict) else {"value": entry}
    origin = own.get("provenance", record.get("provenance", {}))
    date, machine = origin.get("date", "date not recorded"), machine_text(origin.get("machine", {}))
    return Finding(str(own["value"]), f"{date}, {machine}")


def tables_of(experiment: Experiment, results: Path) -> list[dict[str, Any]]:
    """What the list reads: the usual JSON; with `any_length` that of every length, most rows first, then longest."""
    usual = results / experiment.table
    if not experiment.any_length:
        return [read(usual)]
    records = map(read, (usual, *results.glob(f"**/*-steps/{usual.name}")))
    return sorted(
        (record for record in records if measured(experiment, record)),
        key=lambda record: (measured(experiment, record), record["steps"]),
        reverse=True,
    )


def measured(experiment: Experiment, record: dict[str, Any]) -> int:
    """How many rows of an experiment a JSON has."""
    return len({row.key for row in experiment.rows} & record.get("summary", {}).keys())


def share(experiment: Experiment, results: Path) -> str:
    """How many rows were measured, at each length where that is open."""
    count = len(experiment.rows)
    if experiment.any_length and (records := tables_of(experiment, results)):
        parts = [f"{measured(experiment, record)} of {count} at {record['steps']:,} steps" for record in records]
        return ", ".join(parts)
    return (
        f"{sum(bool(finding(experiment, row, results).value) for row in experiment.rows)} of {count}" if count else ""
    )


def read(path: Path) -> dict[str, Any]:
    """What a JSON holds; nothing if there is none."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
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
        found.append((row.label, row.paper or "-", ours.value or NOT_RUN, ours.where or experiment.command_of(row)))
    return found


def head(experiment: Experiment, results: Path) -> list[str]:
    """What stands above the rows: the command, what was measured at which length, and what a run takes."""
    text = [f"command: {experiment.command}"]
    if experiment.any_length and (lengths := len(tables_of(experiment, results))):
        text.append(f"rows: {share(experiment, results)}{'; compare rows of one length only' * (lengths > 1)}")
    missing = sum(not finding(experiment, row, results).value for row in experiment.rows)
    if missing or not experiment.rows:
        rows = f"{missing} of {len(experiment.rows)} rows" if experiment.rows else "all"
        text.append(f"{NOT_RUN}: {rows}; takes {experiment.cost}")
    else:
        text.append(f"a run takes {experiment.cost}")
    return text


def overview(results: Path) -> list[tuple[str, str, str]]:
    """Each experiment in a line: its name, what it reproduces, how many of its rows were measured."""
    return [(one.name, one.reproduces, share(one, results)) for one in EXPERIMENTS.values()]


def markdown(results: Path) -> str:
    """The whole list as Markdown: an overview, then every table."""
    parts = ["| name | what it reproduces | rows measured |\n| --- | --- | --- |"]
    for name, reproduces, rows in overview(results):
        anchor = re.sub(r"[^\w\- ]", "", f"{name}: {reproduces}".lower()).replace(" ", "-")
        parts[0] += f"\n| [{name}](#{anchor}) | {reproduces} | {rows} |"
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
