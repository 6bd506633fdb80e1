"""Write the table of all recipe keys into docs/recipes.md: `python docs/recipe_table.py`."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from polarvit.training.recipe_keys import Key, keys

PAGE = Path(__file__).parent / "recipes.md"
BEGIN, END = "<!-- keys: written by docs/recipe_table.py -->", "<!-- end of keys -->"


def table() -> str:
    """Every key as Markdown, one table for each group."""
    parts = []
    for group, members in groupby(keys(), key=lambda key: key.path.partition(".")[0]):
        rows = "\n".join(_row(key) for key in members)
        parts.append(f"### `{group}`\n\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n{rows}\n")
    return "\n".join(parts)


def _row(key: Key) -> str:
    default = f"`{key.default}`" if key.default else "required"
    kind, meaning = (text.replace("|", "\\|") for text in (key.kind, key.meaning))
    return f"| `{key.path}` | {kind} | {default} | {meaning} |"


def page(text: str) -> str:
    """The page with the table of this version."""
    return re.sub(f"({BEGIN}\n).*({END})", lambda found: f"{found[1]}\n{table()}\n{found[2]}", text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
