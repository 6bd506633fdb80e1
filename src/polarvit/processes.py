"""Processes of this package."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def own_process(module: str, *words: str) -> tuple[list[str], dict[str, str]]:
    """The words that start a module of this package, and its environment.

    It finds this package, wherever that lies, and imports nothing from the folder that it is started in (`-P`).
    """
    source = str(Path(__file__).parents[1])
    paths = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return [sys.executable, "-P", "-m", module, *words], {**os.environ, "PYTHONPATH": paths}
