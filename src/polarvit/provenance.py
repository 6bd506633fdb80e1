"""What a number was measured with: machine kind, versions, commit, day, seed. No paths, no host names."""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from polarvit._version import __version__
from polarvit.files import put_text

PACKAGES = ("torch", "numpy", "mpmath", "matplotlib", "geoopt", "hypll")


def package_version(name: str) -> str | None:
    """Installed version of a distribution, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def provenance(*, seed: int, quick: bool = False, product_precision: str = "float32") -> dict[str, Any]:
    """The record at the head of every JSON of a measurement: results and runs."""
    return {
        "polarvit": __version__,
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
        "quick": quick,
        "product_precision": product_precision,
        "machine": machine(),
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
    }


def without_paths(text: str) -> str:
    """A text in which absolute paths are cut to their last name: where things lie on a machine is nobody's business."""
    return re.sub(r"(?<![\w.~/:-])[~]?/(?:[^\s/'\",;()]+/)+", "", text)


def machine() -> dict[str, Any]:
    """The kind of machine, not which one."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "system": platform.system(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpus": gpus,
    }


def processor() -> str:
    """Model name of the processor where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@functools.cache
def commit() -> str | None:
    """Short commit of the checkout this code runs from, with '+' if its sources were changed; None outside git.

    Looked up once: the checkout may move on while a process runs, the code that it runs does not.
    """
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        if git("ls-files", "_version.py") == "":
            return None
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write strict JSON: numbers that are not finite become null, floats keep five significant digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    put_text(path, json.dumps(as_written(content), indent=1, allow_nan=False) + "\n")


def as_written(value: Any) -> Any:
    """What `write_json` makes of it."""
    if isinstance(value, dict):
        return {str(key): as_written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_written(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value
