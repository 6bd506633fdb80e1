"""The tables of docs/cifar100.md and README.md are the recorded ones."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cifar100_page", ROOT / "docs" / "cifar100_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_and_the_readme_are_current(writer: ModuleType) -> None:
    for file, blocks in ((writer.PAGE, len(writer.NAMES) + 1), (writer.README, 2)):
        text = file.read_text(encoding="utf-8")
        assert text == writer.page(text), "run: python docs/cifar100_page.py"
        assert text.count("written by docs/cifar100_page.py -->") == blocks
        assert text.count(": written by docs/") == text.count("<!-- end -->")


def test_a_recorded_value_comes_onto_the_page(writer: ModuleType, tmp_path: Path) -> None:
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


def test_pictures_that_were_drawn_come_onto_the_pages(writer: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "cifar100").mkdir()
    for subject in ("noise", "superclasses"):
        (tmp_path / "cifar100" / f"analysis-{subject}.png").touch()
    text, readme = (writer.page(file.read_text(encoding="utf-8"), tmp_path) for file in (writer.PAGE, writer.README))
    assert text.count("](../results/cifar100/analysis-") == 2
    assert readme.count("](results/cifar100/analysis-superclasses.png)") == readme.count("](results/cifar100/") == 1
