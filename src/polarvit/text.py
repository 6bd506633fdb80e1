"""Texts from files, as they may be shown: in a terminal nothing moves the cursor, on a card nothing is markup."""

from __future__ import annotations

import unicodedata

UNPRINTABLE = frozenset({"Cc", "Cs"})
"""Unicode categories of control characters and lone surrogates."""
TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of the text around them."""


def can_be_shown(letter: str) -> bool:
    """Whether a character is shown and changes nothing else."""
    return unicodedata.category(letter) not in UNPRINTABLE and letter not in TURNING


def printable(text: str) -> str:
    """The text with an escape in place of what would not be shown or would do something; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or can_be_shown(c) else c.encode("unicode_escape").decode() for c in text)


def unmarked(text: str) -> str:
    """A text in one line in which Markdown and HTML find nothing to act on."""
    flat = " ".join(printable(text).split())
    for mark, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("`", "&#96;")):
        flat = flat.replace(mark, instead)
    return flat
