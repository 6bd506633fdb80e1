"""Docstrings for the website: examples (lines with >>> and what they print) as code, <x, y> as no tag."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).+)*", re.MULTILINE)
PAIR = re.compile(r"(?P<code>^ {4}.*$|`[^`\n]*`)|<(?P<first>[a-zA-Z]\w*,)", re.MULTILINE)


def shown(docstring: str) -> str:
    """The docstring as Markdown."""
    prose = PAIR.sub(lambda found: found["code"] or f"&lt;{found['first']}", docstring)
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", prose)


class Examples(Extension):
    """Every docstring as `shown`."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = shown(obj.docstring.value)
