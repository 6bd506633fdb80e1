"""Each of the eleven corrections is borne out by what is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polarvit.experiments import Settings
from polarvit.experiments.corrections import CORRECTIONS, run


@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda correction: correction.__name__)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_paper_form_fails_and_ours_holds(correction, seed: int) -> None:
    found = correction(seed)
    assert found.holds, found


def test_all_eleven_are_written(tmp_path: Path) -> None:
    assert run(Settings(out=tmp_path)) == []
    assert len(json.loads((tmp_path / "corrections.json").read_text())["corrections"]) == 11
