"""Blocks of a page that are written from records, between `<!-- NAME: written by SCRIPT -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path


def filled(text: str, script: str, contents: Mapping[str, str]) -> str:
    """The page with these contents in its blocks of those names; what it has no block for is left out."""
    for name, content in contents.items():
        begin, end = f"<!-- {name}: written by {script} -->\n", "<!-- end -->"
        text = re.sub(
            f"({re.escape(begin)}).*?({end})",
            lambda found, content=content: "\n\n".join(filter(None, (found[1].rstrip(), content, found[2]))),  # type: ignore[misc]
            text,
            flags=re.DOTALL,
        )
    return text


def rewrite(page: Callable[[str], str], *files: Path) -> None:
    """Fill the blocks of these files."""
    for file in files:
        file.write_text(page(file.read_text(encoding="utf-8")), encoding="utf-8")


def rows(cells: list[list[str]]) -> str:
    """A Markdown table; the first row is its head."""
    lines = [cells[0], ["---"] * len(cells[0]), *cells[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
