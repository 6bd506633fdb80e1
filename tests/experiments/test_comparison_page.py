"""What the tables of docs/comparison.md say of a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import comparison_page as writer
import pytest


def row(name: str, mean: float | None = None, *, lost: int = 0, products: str = "fp32", **more: Any) -> dict[str, Any]:
    """One row in the JSON of a study: a run with a mean at radius 3, and so many that diverged."""
    runs: list[dict[str, Any]] = [] if mean is None else [{"radius": 3.0, "product_precision": products}]
    runs += [{"diverged": "loss is nan"}] * lost
    seeds = len(runs) - lost
    known = {"name": name, "label": name, "paper": None, "mean": mean, "std": None}
    return {**known, "seeds": seeds, "diverged": lost, "runs": runs, **more}


TWO = [{"radius": 3.0, "product_precision": "fp32"}, {"radius": 4.0, "product_precision": "fp32"}]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Tables with rows that ran, that are missing, that diverged; a cost."""
    folder = tmp_path / "cifar100" / "11710-steps"
    folder.mkdir(parents=True)
    paper = {"mean": 70.0, "std": 0.5, "word": ""}

    tables: dict[str, list[dict[str, Any]]] = {
        "ablation": [
            row("lorentz_vit", 50.0, std=0.5, seeds=2, runs=TWO, paper=paper),
            row("missing", paper=paper),
            row("lost", lost=1, paper={"mean": None, "std": None, "word": "diverged"}),
            row("polar_vit", 52.0, lost=1),
        ],
        "hexformer-defect": [row("sound")],
    }
    tables["position"] = tables["ablation"]
    for name, rows in tables.items():
        (folder / f"{name}.json").write_text(json.dumps({"rows": rows, "order": "In order."}))
    sweep = [row("vit_tiny-lr-1e-3", 41.0, products="tf32"), row("vit_tiny-lr-2e-3", 42.0, products="tf32")]
    (tmp_path / "cifar100" / "cifar100-sweep.json").write_text(json.dumps({"rows": sweep}))
    keys = ("vit_tiny", "lorentz_vit_tiny", "polar_vit_tiny")
    costs = [
        {
            "key": key,
            "label": key,
            "precision": precision,
            "paper_ratio": 2.5 if index else None,
            "both_ratio": both,
            "forward_backward": {"ms": 4.0 * both},
            "step": {"ms": 10.0 * both},
            "peak_mib": 1000 * both,
            "parameters": 2_700_000,
            "gflops": 1.126,
        }
        for index, key in enumerate(keys)
        for precision, both in (("fp32", 1.5 + index), ("tf32", 1.25 + index))
    ]
    (tmp_path / "cost.json").write_text(json.dumps({"rows": costs}))
    return tmp_path


def test_a_row_is_compared_with_the_nearest_above_that_has_a_mean(results: Path) -> None:
    assert writer.measured(results, "ablation").splitlines() == [
        "| row | paper | ours | gain over the row above | mean radius |",
        "| --- | --- | --- | --- | --- |",
        "| lorentz_vit | 70.00 ± 0.50 | 50.00 ± 0.50, 2 seeds |  | 3.50 |",
        "| missing | 70.00 ± 0.50 | not yet run |  |  |",
        "| lost | diverged | 1 of 1 diverged |  |  |",
        "| polar_vit | - | 52.00, 1 of 2 diverged | +2.00 | 3.00 |",
        "",
        "In order.",
    ]
    assert writer.measured(results, "position").splitlines()[-3] == "| polar_vit | - | 52.00, 1 of 2 diverged | 3.00 |"


def test_what_a_system_learnt_stands_beside_its_step_in_the_precision_it_was_trained_in(results: Path) -> None:
    assert writer.bought(results).splitlines()[2:] == [
        "| Euclidean ViT, the best of four rates | 42.00 | TF32 | 12.50 | 2.4 |",
        "| Lorentz ViT, ambient | 50.00 ± 0.50, 2 seeds | float32 | 25.00 | 4.9 |",
        "| HexFormer | not yet run |  |  |  |",
        "| Polar-ViT | 52.00, 1 of 2 diverged | float32 | 35.00 | 6.8 |",
    ]


def test_costs_stand_beside_each_other_by_precision(results: Path) -> None:
    first, second, *_ = writer.costs(results).splitlines()[2:]
    assert first == "| vit_tiny | - | 1.25 | 1.50 | 5.00 | 6.00 | 1,500 | 2,700,000 | 1.13 |"
    assert second == "| lorentz_vit_tiny | 2.50 | 2.25 | 2.50 | 9.00 | 10.00 | 2,500 | 2,700,000 | 1.13 |"


def test_a_text_is_filled_with_the_tables_it_asks_for_alone(results: Path) -> None:
    begin = f"<!-- cost: written by {writer.SCRIPT} -->"
    (results / "cifar100" / "cifar100-sweep.json").unlink()
    assert "| vit_tiny |" in writer.page(f"{begin}\n\nold\n\n<!-- end -->", results)
