"""The tables of docs/comparison.md and of the systems in README.md are the recorded ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import comparison_page as writer
import pytest


def test_the_page_and_the_readme_are_current() -> None:
    for file, blocks in ((writer.PAGE, 6), (writer.README, 1)):
        text = file.read_text(encoding="utf-8")
        assert text == writer.page(text), "run: python docs/comparison_page.py"
        assert text.count(f"written by {writer.SCRIPT} -->") == blocks
        assert text.count(": written by docs/") == text.count("<!-- end -->")


def row(name: str, mean: float | None, *, std: float | None = None, paper: float | None = None) -> dict[str, Any]:
    """One row in the JSON of a study, with a run if it has a mean."""
    runs = [] if mean is None else [{"radius": 3.0, "product_precision": "tf32"}, {"radius": 4.0}]
    stated = None if paper is None else {"mean": paper, "std": None, "word": ""}
    return {"name": name, "label": name, "paper": stated, "mean": mean, "std": std, "seeds": len(runs), "runs": runs}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """An ablation of three rows, of which the second is missing."""
    folder = tmp_path / "cifar100" / "11710-steps"
    folder.mkdir(parents=True)
    rows = [row("first", 50.0, std=0.5, paper=70.0), row("second", None, paper=71.0), row("third", 52.0)]
    for name in ("ablation", "position"):
        (folder / f"{name}.json").write_text(json.dumps({"rows": rows, "order": "In order."}))
    return tmp_path


def test_a_row_is_compared_with_the_newest_one_above_that_ran(results: Path) -> None:
    assert writer.measured(results, "ablation").splitlines() == [
        "| row | paper | ours | less the row above | mean radius |",
        "| --- | --- | --- | --- | --- |",
        "| first | 70.00 | **50.00 ± 0.50** |  | 3.50 |",
        "| second | 71.00 | not yet run |  |  |",
        "| third | - | **52.00** | +2.00 | 3.50 |",
        "",
        "2 seeds of each row. In order.",
    ]
    assert writer.measured(results, "position").splitlines()[4] == "| third | - | **52.00** | 3.50 |"


def test_costs_stand_beside_each_other_by_precision(tmp_path: Path) -> None:
    rows = [
        {
            "key": "vit_tiny",
            "label": "ViT",
            "precision": precision,
            "paper_ratio": paper,
            "both_ratio": ratio,
            "forward_backward": {"ms": 4.0 * ratio},
            "peak_mib": 1234.4,
            "parameters": 2_700_000,
            "gflops": 1.126,
        }
        for precision, ratio, paper in (("fp32", 1.5, None), ("tf32", 1.25, None))
    ]
    (tmp_path / "cost.json").write_text(json.dumps({"rows": rows}))
    line = writer.costs(tmp_path).splitlines()[-1]
    assert line == "| ViT | - | 1.25 | 1.50 | 5.00 | 6.00 | 1,234 | 2,700,000 | 1.13 |"
