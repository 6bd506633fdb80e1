"""The record at the head of every result."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from polarvit.provenance import commit, package_version, without_paths, write_json


def test_json_is_strict(tmp_path: Path) -> None:
    write_json(tmp_path / "deep" / "x.json", {"a": math.nan, "b": [math.inf, 1 / 3], "c": {"d": True, "e": None}})
    assert json.loads((tmp_path / "deep" / "x.json").read_text()) == {
        "a": None,
        "b": [None, 0.33333],
        "c": {"d": True, "e": None},
    }


def test_commit_is_short_or_unknown() -> None:
    found = commit()
    assert found is None or re.fullmatch(r"[0-9a-f]{7,12}\+?", found)


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert package_version("no-such-package-anywhere") is None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("model.pretrained=/home/alice/runs/deit/model", "model.pretrained=model"),
        ("InductorError: no compiler (None, '/opt/alice/bin/g++')", "InductorError: no compiler (None, 'g++')"),
        ("~/runs/a", "a"),
        ("runs/a/model and owner/name", "runs/a/model and owner/name"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
        ("train.lr=1/3", "train.lr=1/3"),
    ],
)
def test_texts_lose_where_things_lie_on_a_machine(text: str, left: str) -> None:
    assert without_paths(text) == left
