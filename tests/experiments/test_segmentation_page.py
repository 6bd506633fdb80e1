"""What the tables of docs/segmentation.md say of a record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import segmentation_page as writer


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Records of a polar net with two seeds, one of which diverged, and of no other."""
    scores = {"image_dice": 0.5, "iou": 0.4, "count": 10, "hausdorff95": 20.0, "missed": 3}
    runs = [
        {"seed": 0, "orders_mean": 0.71, "orders_std": 0.01, **scores},
        {"seed": 1, "diverged": "loss is nan"},
    ]
    facts = {"name": "polar_busi", "recipe": "busi_unet_polar", "mean": 0.7012, "std": None, "seeds": 1, "diverged": 1}
    row = {**facts, "runs": runs}
    (tmp_path / "segmentation.json").write_text(json.dumps({"rows": [row]}))
    kept = tmp_path / "segmentation" / "3900-steps" / "polar_busi-seed-0.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({"metrics": {"kept_step": 15, "steps": 3900}}))
    return tmp_path


def test_a_table_has_the_sets_and_nets_that_ran_and_counts_those_that_diverged(results: Path) -> None:
    assert writer.overview(results).splitlines() == [
        "| net | BUSI, paper | ours |",
        "| --- | --- | --- |",
        "| Lorentz U-Net, polar | 0.78 | **0.701**, 1 diverged |",
    ]
    *_, first, second = writer.details(results).splitlines()
    polar = "| BUSI | Lorentz U-Net, polar"
    assert first == f"{polar} | 0 | 0.710 ± 0.010 | 0.500 | 0.400 | 20.0 (3 of 10) | 15 of 3,900 |"
    assert second == f"{polar} | 1 | diverged |  |  |  |  |"


def test_the_mean_under_a_corruption_leaves_the_clean_score_out(results: Path) -> None:
    points = [
        {"net": "polar", "set": "busi", "corruption": corruption, "strength": strength, "dice": dice}
        for corruption, strengths in (
            ("blur", (0.0, 1.0, 2.0)),
            ("noise", (0.0, 0.1, 0.2)),
            ("contrast", (1.0, 0.5, 2.0)),
        )
        for strength, dice in zip(strengths, (0.8, 0.5, 0.3), strict=True)
    ]
    (results / "segmentation-robustness.json").write_text(json.dumps({"points": points}))
    assert writer.robustness(results).splitlines()[-1] == (
        "| BUSI | Lorentz U-Net, polar | 0.800 | 0.400 | 0.400 | 0.400 |"
    )
