"""What every benchmark leaves: a JSON with machine, versions and commit, and a picture, under one folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from polarvit.experiments.bench.bars import Claim, show
from polarvit.experiments.pictures import NoPictures
from polarvit.provenance import package_version, provenance, write_json
from polarvit.tables import console

FOLDER = Path("results/bench")


def device_of(name: str | None) -> torch.device:
    """The device asked for, or the GPU if there is one."""
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return device


def machine_name(device: torch.device) -> str:
    """For headings: the GPU, or a plain statement that there is none."""
    return (
        torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU (small sizes, no kernels: not a result)"
    )


def keep(
    out: Path | None,
    name: str,
    device: torch.device,
    content: dict[str, Any],
    claims: Sequence[Claim],
    precision: str,
) -> tuple[dict[str, Any], Path | None]:
    """Write `name`.json, with `-cpu` in its name where there was no GPU; the record and where it lies."""
    judged = device.type == "cuda"
    record = provenance(seed=0, quick=not judged, product_precision=precision)
    record["packages"] |= {package: package_version(package) for package in ("triton", "timm")}
    record |= {"device": machine_name(device), **content, "bars": [claim.record(judged) for claim in claims]}
    if out is None:
        return record, None
    path = out / f"{name}{'' if judged else '-cpu'}.json"
    write_json(path, record)
    return record, path


def leave(
    out: Path | None,
    name: str,
    device: torch.device,
    content: dict[str, Any],
    claims: Sequence[Claim],
    draw: Callable[..., None],
    precision: str,
) -> dict[str, Any]:
    """Show the bars, write the record and its picture beside it."""
    show(claims, device.type == "cuda")
    record, path = keep(out, name, device, content, claims, precision)
    if path is not None:
        console().print(f"written: {path}")
        try:
            draw(path.with_suffix(".png"), machine=machine_name(device))
            console().print(f"written: {path.with_suffix('.png')}")
        except NoPictures as error:
            console().print(str(error))
    return record


def cell(value: float | None, form: str = ".2f") -> str:
    """A number for a table, or a dash."""
    return "-" if value is None else format(value, form)
