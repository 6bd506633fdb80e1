"""Texts from files, as they may be shown: in a terminal nothing moves the cursor, on a card nothing is markup."""

from __future__ import annotations

import html
import unicodedata

UNPRINTABLE = frozenset({"Cc", "Cs"})
"""Unicode categories of control characters and lone surrogates."""
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
"""Characters that turn the direction of the text around them, or end its line."""


def control(letter: str) -> bool:
    """Whether a character is not shown but acts on a terminal."""
    return unicodedata.category(letter) in UNPRINTABLE


def printable(text: str) -> str:
    """The text with an escape in place of what would not be shown or would do something; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    acts = {c for c in text if control(c) or c in TURNING} - {"\n", "\t"}
    return "".join(c.encode("unicode_escape").decode() if c in acts else c for c in text)


def unmarked(text: str) -> str:
    """A text in one line in which HTML, tables and code of Markdown find nothing to act on; links stay text."""
    flat = html.escape(" ".join(printable(text).split()), quote=False)
    return flat.translate({ord(mark): f"&#{ord(mark)};" for mark in "|`["})
