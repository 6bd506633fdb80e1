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


def leave(
    out: Path | None,
    name: str,
    device: torch.device,
    content: dict[str, Any],
    claims: Sequence[Claim],
    draw: Callable[..., None],
    precision: str,
) -> dict[str, Any]:
    """Show the bars, then write `name`.json and `name`.png, with `-cpu` in their names where there was no GPU."""
    judged = device.type == "cuda"
    show(claims, judged)
    record = provenance(seed=0, quick=not judged, product_precision=precision)
    record["packages"] |= {package: package_version(package) for package in ("triton", "timm")}
    record |= {"device": machine_name(device), **content, "bars": [claim.record(judged) for claim in claims]}
    if out is not None:
        path = out / f"{name}{'' if judged else '-cpu'}.json"
        write_json(path, record)
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
