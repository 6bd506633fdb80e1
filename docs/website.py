"""Build the documentation as a website in site/: `make docs`, or `python docs/website.py` with the extra `docs`.

README, pages and what they link to are copied side by side into build/website, each at its place, so that one text
serves a reader of the repository and one of the website. The reference is written from what every room exports.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parent.parent
COPIES = ROOT / "build" / "website"
FIRST = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
ROOMS = (
    *("polarvit", "polarvit.geometry", "polarvit.geometry.ambient", "polarvit.nn", "polarvit.nn.baselines"),
    *("polarvit.kernels", "polarvit.models", "polarvit.optim", "polarvit.parameters", "polarvit.data"),
    "polarvit.training",
)
ENTRY = (
    "    options:\n      show_root_heading: true\n      show_root_toc_entry: true\n      show_root_full_path: false\n"
)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")

NOT_PROSE = re.compile(
    r"(?P<code>^```.*?^```|^ {4}.*?$|`[^`\n]*`)|\$\$(?P<block>.+?)\$\$|\$(?P<line>[^$\n]+?)\$|<(?P<tag>[a-zA-Z]\w*,)",
    re.DOTALL | re.MULTILINE,
)


def pages() -> list[Path]:
    """Pages of people, relative to the root."""
    return [Path(name) for name in FIRST] + [path.relative_to(ROOT) for path in sorted((ROOT / "docs").glob("*.md"))]


def linked(page: Path, text: str) -> Iterator[Path]:
    """Files of the repository that a page links to or shows, relative to the root."""
    for _, _, target, _ in LINK.findall(text):
        path = (ROOT / page.parent / target).resolve()
        if "://" not in target and path.is_file():
            yield path.relative_to(ROOT)


def without_folders(page: Path, text: str) -> str:
    """The text without links to folders, which a website has not; what they say stays."""

    def kept(found: re.Match[str]) -> str:
        return found[2] if "://" not in found[3] and (ROOT / page.parent / found[3]).is_dir() else found[0]

    return LINK.sub(kept, text)


def for_the_web(text: str) -> str:
    """Formulas between dollars as MathML, which browsers draw without a script; <x, y> as words, not as a tag."""

    def drawn(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        if found["tag"]:
            return "&lt;" + found["tag"]
        return convert(found["block"] or found["line"], display="block" if found["block"] else "inline")

    return NOT_PROSE.sub(drawn, text)


def copy_pages() -> list[Path]:
    """Copy all pages, then what they link to, and what that links to; returns what was copied."""
    waiting, done = pages(), []
    while waiting:
        page = waiting.pop()
        if page in done:
            continue
        done.append(page)
        target = COPIES / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            text = (ROOT / page).read_text(encoding="utf-8")
            waiting += linked(page, text)
            target.write_text(for_the_web(without_folders(page, text)), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / page, target)
    return done


def reference(room: str) -> str:
    """The page of one room: its docstring and everything that it exports."""
    module = import_module(room)
    exported = getattr(module, "__all__", None)
    if exported is None:
        return f"# {room}\n\n::: {room}\n"
    names = [name for name in exported if not name.startswith("__") and f"{room}.{name}" not in ROOMS]
    values = {name: getattr(module, name) for name in sorted(names, key=str.lower)}
    apart = {name: value for name, value in values.items() if not isinstance(value, Enum)}  # their class tells of them
    entries = [f"::: {home(room, value, name)}\n{ENTRY}" for name, value in apart.items()]
    return "\n".join([f"# {room}\n\n::: {room}\n    options:\n      members: false\n", *entries])


def home(room: str, value: object, name: str) -> str:
    """Where a name is defined: a room may have a module of the same name, which would stand for it."""
    module = getattr(value, "__module__", None)
    own = isinstance(module, str) and module.startswith("polarvit") and hasattr(import_module(module), name)
    return f"{module if own else room}.{name}"


def write_sources() -> None:
    """Everything that the website is made of, in build/website."""
    shutil.rmtree(COPIES, ignore_errors=True)
    copy_pages()
    shutil.copyfile(ROOT / "docs" / "website.css", COPIES / "docs" / "website.css")
    for room in ROOMS:
        path = COPIES / "reference" / f"{room}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(reference(room), encoding="utf-8")


def build(site: Path = ROOT / "site") -> int:
    """Build the site; anything that it warns of is an error."""
    write_sources()
    told = ["--strict", "--quiet", "-f", str(ROOT / "docs" / "mkdocs.yml"), "-d", str(site)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # what it advertises at every start
    return subprocess.run([sys.executable, "-m", "mkdocs", "build", *told], env=quiet, check=False).returncode


if __name__ == "__main__":
    code = build()
    if code == 0:
        print("built site/; look at it with: python -m http.server --directory site --bind 127.0.0.1")
    sys.exit(code)
