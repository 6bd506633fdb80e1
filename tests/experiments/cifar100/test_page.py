"""What the tables of docs/cifar100.md say of a record."""

from __future__ import annotations

import json
from pathlib import Path

import cifar100_page as writer


def test_a_recorded_value_comes_onto_the_page(tmp_path: Path) -> None:
    (tmp_path / "cifar100").mkdir()
    rows = [
        {
            "name": "polar_vit_tiny",
            "label": "Polar",
            "mean": 80.2,
            "std": 0.1,
            "seeds": 3,
            "paper": {"mean": 80.15, "std": 0.26},
        }
    ]
    record = {
        "rows": rows,
        "summary": {"polar_vit_tiny": "80.20 ± 0.10 (3 seeds of 117,100 steps)"},
        "provenance": {"date": "today"},
    }
    (tmp_path / "cifar100" / "cifar100.json").write_text(json.dumps(record))
    text = writer.page(writer.PAGE.read_text(encoding="utf-8"), tmp_path)
    assert "| Polar-ViT | 80.15 ± 0.26 | 80.20 ± 0.10 (3 seeds of 117,100 steps) | today" in text
    assert "- Polar, ours less the paper's: +0.05 ± 0.10 points (standard error; 3 and 10 seeds)\n" in text


def test_pictures_that_were_drawn_come_onto_the_pages(tmp_path: Path) -> None:
    (tmp_path / "cifar100").mkdir()
    for subject in ("noise", "superclasses"):
        (tmp_path / "cifar100" / f"analysis-{subject}.png").touch()
    text, readme = (writer.page(file.read_text(encoding="utf-8"), tmp_path) for file in (writer.PAGE, writer.README))
    assert text.count("](../results/cifar100/analysis-") == 2
    assert readme.count("](results/cifar100/analysis-superclasses.png)") == readme.count("](results/cifar100/") == 1
