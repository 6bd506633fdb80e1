"""The website: every page and every public name is on it, and nothing in it leads nowhere."""

from __future__ import annotations

import re
from enum import Enum
from importlib import import_module
from pathlib import Path

import pytest
import website
import yaml
from website_examples import shown

from polarvit import geometry


def leaves(nav: object) -> list[str]:
    """Files of a navigation, whatever their depth."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [leaf for part in parts for leaf in leaves(part)]  # type: ignore[attr-defined]


def test_every_page_and_every_room_is_in_the_navigation_once() -> None:
    found = leaves(yaml.safe_load((website.ROOT / "docs" / "mkdocs.yml").read_text())["nav"])
    assert sorted(found) == sorted([*map(str, website.pages()), *(f"reference/{room}.md" for room in website.ROOMS)])


def test_links_to_folders_keep_their_words_only() -> None:
    text = "see [the layers](../src/polarvit/nn), [a page](index.md) and [elsewhere](https://example.org/src)"
    assert website.without_folders(Path("docs/cli.md"), text) == text.replace(
        "[the layers](../src/polarvit/nn)", "the layers"
    )


@pytest.mark.parametrize("room", website.ROOMS)
def test_a_room_shows_what_it_exports(room: str) -> None:
    page, module = website.reference(room), import_module(room)
    for name in getattr(module, "__all__", ()):
        told_by_its_class = isinstance(getattr(module, name), Enum)
        alone = not name.startswith("__") and f"{room}.{name}" not in website.ROOMS and not told_by_its_class
        assert not alone or re.search(rf"^::: polarvit[\w.]*\.{name}$", page, re.MULTILINE), name


@pytest.mark.slow
def test_the_website_builds_without_a_warning(tmp_path: Path) -> None:
    assert website.build(tmp_path) == 0
    page = (tmp_path / "reference" / "polarvit.geometry" / "index.html").read_text()
    headings = set(re.findall(r'<h2 id="polarvit\.geometry[\w.]*?\.(\w+)"', page))
    assert headings == set(geometry.__all__) - {"ambient"}
    assert '<span class="gp">&gt;&gt;&gt; </span>' in page, "examples are code"
    assert "<blockquote>" not in page, "and not quotes in quotes"
    for name in ("docs/systems", "docs/geometry", "reference/polarvit.geometry.ambient"):
        assert "&lt;x, x&gt;" in (tmp_path / name / "index.html").read_text(), "an inner product is no tag"
    assert (tmp_path / "results" / "precision.png").is_file()


def test_formulas_become_mathml_and_code_stays() -> None:
    text = "with $a = r/\\sqrt k$ but `$HOME` and\n```sh\necho $a $b\n```\n$$\\cosh d$$"
    drawn = website.for_the_web(text)
    assert "`$HOME` and\n```sh\necho $a $b\n```\n" in drawn
    assert drawn.count("<math") == 2
    assert drawn.count('display="block"') == 1
    assert "$" not in drawn.partition("`")[0]


def test_inner_products_are_no_tags_and_code_stays() -> None:
    assert website.for_the_web("<x, x> = -k, `<x, x>`") == "&lt;x, x> = -k, `<x, x>`"
    assert shown("With <q, k>:\n\n    -<q, k>\n\n>>> f(1)\n2") == (
        "With &lt;q, k>:\n\n    -<q, k>\n\n```pycon\n>>> f(1)\n2\n```"
    )
