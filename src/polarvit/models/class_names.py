"""Names of a model's classes, which travel with its weights and are printed in terminals: checked before use."""

from __future__ import annotations

from typing import Any

from polarvit.text import control


def checked_names(names: Any, count: int) -> tuple[str, ...]:
    """`names` as a tuple of one printable text for each of `count` classes; otherwise a ValueError that says why."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"class names must be a list of texts, got {names!r:.80}")
    if len(names) != count:
        raise ValueError(f"{len(names)} class names for {count} classes")
    for name in names:
        if not name or any(map(control, name)):
            raise ValueError(f"class name {name!a:.80} is empty or cannot be printed")
    return tuple(names)
