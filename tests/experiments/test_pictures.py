"""Names beside dots: none covers another or a dot, and what has no room is counted."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from polarvit.experiments.pictures import figure, names_beside

pytest.importorskip("matplotlib")


def test_names_cover_neither_dots_nor_each_other_and_stay_where_the_picture_is(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 60))
    with figure(tmp_path / "dots.png", 5, 5) as axes:
        axes.scatter(x, y, s=42)
        left_out = names_beside(axes, x, y, [f"dot {i}" for i in range(60)], ["#333333"] * 60)
        before = axes.transData.transform(np.column_stack([x, y]))
        axes.figure.draw_without_rendering()
        assert np.allclose(before, axes.transData.transform(np.column_stack([x, y]))), "the names moved the dots"
        boxes = [text.get_window_extent() for text in axes.texts]
        assert len(boxes) == 60 - left_out
        assert 0 < left_out < 20, "a crowd as this one has room for most"
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        assert not any(box.contains(*dot) for box in boxes for dot in before)
        assert all(axes.figure.bbox.count_contains(box.corners()) == 4 for box in boxes)


def test_of_dots_in_one_place_only_some_are_named(tmp_path: Path) -> None:
    with figure(tmp_path / "dots.png", 3, 3) as axes:
        left_out = names_beside(axes, np.zeros(12), np.zeros(12), ["the same long name"] * 12, ["#333333"] * 12)
        assert left_out == 12 - len(axes.texts)
        assert 0 < len(axes.texts) < 12
        before = len(axes.texts)
        assert names_beside(axes, np.zeros(1), np.zeros(1), ["the same long name"], ["#333333"]) == 1, (
            "where texts stand already"
        )
        assert len(axes.texts) == before
