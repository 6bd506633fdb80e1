"""Calibration, counted by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from polarvit.experiments.reliability import reliability


def test_four_images_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    found = reliability(probabilities, np.array([0, 1, 0, 1]), bins=10)
    # bin 0.9: half right; bin 0.6: right; bin 0.8: right
    assert found.count.tolist() == [0, 0, 0, 0, 0, 0, 1, 0, 1, 2]
    assert found.ece == pytest.approx((2 * 0.4 + 0.4 + 0.2) / 4)
    assert found.worst == pytest.approx(0.4)
    assert found.gap == pytest.approx(0.8 - 0.75)
    assert found.nll == pytest.approx(-np.log([0.9, 0.1, 0.6, 0.8]).mean())
    assert found.brier == pytest.approx(np.mean([0.02, 1.62, 0.32, 0.08]))
    assert json.loads(json.dumps(found.record()))["bins"]["accuracy"][9] == 0.5


def test_a_model_that_is_as_sure_as_it_is_right_has_no_error() -> None:
    draw = np.random.default_rng(0)
    sure = draw.uniform(0.5, 1, 200_000)
    labels = (draw.uniform(size=sure.size) > sure).astype(int)
    found = reliability(np.stack([sure, 1 - sure], 1), labels)
    assert found.ece < 0.01
    assert abs(found.gap) < 0.01


def test_certainty_and_impossibility_stay_finite() -> None:
    found = reliability(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]))
    assert found.ece == pytest.approx(0.5)
    assert np.isfinite(found.nll)
