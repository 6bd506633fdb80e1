"""The pages tell the truth: their examples run, their links lead somewhere, their numbers are the recorded ones."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from types import ModuleType

import cifar100_page
import comparison_page
import pytest
import segmentation_page

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize(
    ("writer", "page", "readme"),
    [(cifar100_page, len(cifar100_page.NAMES) + 1, 2), (comparison_page, 6, 1), (segmentation_page, 4, 1)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_tables_are_the_recorded_ones(writer: ModuleType, page: int, readme: int) -> None:
    for file, count in ((writer.PAGE, page), (writer.README, readme)):
        text = file.read_text(encoding="utf-8")
        assert text == writer.page(text), f"run: python {writer.SCRIPT}"
        assert text.count(f"written by {writer.SCRIPT} -->") == count
        assert text.count(": written by docs/") == text.count("<!-- end -->")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def printed(code: str) -> str:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(code, {})
    return stream.getvalue()


def test_the_example_of_the_readme_prints_what_it_says() -> None:
    assert printed(blocks(ROOT / "README.md", "python")[0]) == blocks(ROOT / "README.md", "text")[0]


@pytest.mark.parametrize("page", ["numerics", "geometry", "training"])
def test_examples_print_what_their_comments_say(page: str) -> None:
    shown = [code for code in blocks(ROOT / "docs" / f"{page}.md", "python") if "# " in code.strip().splitlines()[-1]]
    assert shown
    for code in shown:
        assert printed(code).strip() == code.strip().splitlines()[-1].split("# ")[1]


def test_the_table_of_the_readme_is_the_recorded_one() -> None:
    record = json.loads((ROOT / "results" / "precision.json").read_text())
    names = {"**polarvit**": "polarvit", "ambient": "ambient", "geoopt": "geoopt", "hypll": "hypll"}
    rows = re.findall(
        r"^\| (distance|centroid), (\S+).*? \| (.+?) \| (.+?) \| (.+?) \|$", (ROOT / "README.md").read_text(), re.M
    )
    assert len(rows) == 7
    for operation, name, *cells in rows:
        peer = next(peer for peer in record["peers"] if peer["name"] == names[name])
        for radius, cell in zip(("4", "8", "12"), cells, strict=True):
            spread = peer[radius][operation]
            if share := re.search(r"(\d+) % NaN", cell):
                assert int(share[1]) == round(100 * spread["not_finite"])
            if not cell.endswith("NaN") or "," in cell:
                assert float(cell.split(",")[0]) == pytest.approx(spread["median"], rel=0.06)
