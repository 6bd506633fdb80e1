"""Files that hold all of their content or are as they were before, whenever the process ends."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def put(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a file beside `path`, and put it in place in one step."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    part = Path(name)
    try:
        write(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def put_text(path: Path, text: str) -> None:
    """`put` for a text, in UTF-8."""
    put(path, lambda part: part.write_text(text, encoding="utf-8"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
