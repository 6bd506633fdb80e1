"""The record at the head of every result."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from polarvit.provenance import commit, package_version, write_json


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
