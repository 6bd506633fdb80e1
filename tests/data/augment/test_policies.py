"""Policies: every draw has the frequency its definition gives it."""

import numpy as np
import pytest
from scipy import stats

from polarvit.data.augment.draws import Draws
from polarvit.data.augment.operations import Op, Requests
from polarvit.data.augment.policies import (
    CIFAR10,
    IMAGENET,
    RAND_OPS,
    AutoAugment,
    BigVisionRandAugment,
    RandAugment,
    level_value,
)

COUNT = 40000


def draws(seed: int) -> Draws:
    return Draws(seed, np.zeros(COUNT, np.int64), np.arange(COUNT))


def frequencies_fit(observed: dict, expected: dict) -> bool:
    """Chi-square test of counts against probabilities; nothing impossible may have happened."""
    assert set(observed) <= set(expected), set(observed) - set(expected)
    keys = sorted(expected)
    counts = np.array([observed.get(k, 0) for k in keys])
    wanted = np.array([expected[k] for k in keys]) * counts.sum()
    return bool(stats.chisquare(counts, wanted).pvalue > 1e-3)


def magnitudes(requests: Requests, chosen: np.ndarray) -> list[float]:
    """Different values without their sign, up to rounding."""
    return np.unique(np.abs(requests.value[chosen]).round(12)).tolist()


def count(rows: list) -> dict:
    values, counts = np.unique(np.array(rows), axis=0, return_counts=True)
    return {tuple(v.tolist()): int(c) for v, c in zip(values, counts, strict=True)}


@pytest.mark.parametrize(("policy", "seed"), [(CIFAR10, 1), (IMAGENET, 2)], ids=["cifar10", "imagenet"])
def test_pairs_of_operations_come_as_often_as_the_policy_says(policy: tuple, seed: int) -> None:
    expected: dict[tuple, float] = {}
    for (first, p, _), (second, q, _) in policy:
        for a, pa in ((int(first), p), (0, 1 - p)):
            for b, pb in ((int(second), q), (0, 1 - q)):
                if pa * pb > 0:
                    expected[a, b] = expected.get((a, b), 0) + pa * pb / 25
    first, second = AutoAugment(policy).sample(draws(seed))
    assert frequencies_fit(count(list(zip(first.op.tolist(), second.op.tolist(), strict=True))), expected)


def test_values_come_with_both_signs_equally_often() -> None:
    first, _ = AutoAugment(CIFAR10).sample(draws(3))
    for op, level in ((Op.ROTATE, 2), (Op.SHEAR_Y, 8), (Op.CONTRAST, 7)):
        base, swing = level_value(op, level)
        values = first.value[first.op == int(op)]
        values = values[np.isin(values, [base - swing, base + swing])]
        assert frequencies_fit(count([[v] for v in values]), {(base - swing,): 0.5, (base + swing,): 0.5})


@pytest.mark.parametrize(
    ("op", "level", "expected"),
    [
        (Op.SHEAR_X, 9, (0, 0.3)),
        (Op.TRANSLATE_Y, 9, (0, 150 / 331)),
        (Op.ROTATE, 3, (0, 10)),
        (Op.COLOR, 9, (1, 0.9)),
        (Op.POSTERIZE, 0, (8, 0)),
        (Op.POSTERIZE, 9, (4, 0)),
        (Op.SOLARIZE, 0, (256, 0)),
        (Op.SOLARIZE, 9, (0, 0)),
        (Op.EQUALIZE, 5, (0, 0)),
    ],
)
def test_levels_run_over_the_ranges_of_autoaugment(op: Op, level: int, expected: tuple) -> None:
    assert level_value(op, level) == pytest.approx(expected)


def test_timm_layers_are_independent_and_apply_half_the_time() -> None:
    first, second = RandAugment(2, 9, 0.5, (0, 0, 0)).sample(draws(4))
    each = {int(op): 1 / 30 for op in RAND_OPS} | {0: 0.5}
    expected = {(a, b): p * q for a, p in each.items() for b, q in each.items()}
    assert frequencies_fit(count(list(zip(first.op.tolist(), second.op.tolist(), strict=True))), expected)


def test_timm_levels_are_normal_about_the_magnitude_and_clipped() -> None:
    (only,) = RandAugment(1, 9, 0.5, (0, 0, 0)).sample(draws(5))
    level = np.abs(only.value[only.op == int(Op.ROTATE)]) / 3
    inner = level[level < 10 - 1e-9]
    assert level.max() <= 10 + 1e-9
    assert abs((level >= 10 - 1e-9).mean() - stats.norm.sf(2)) < 0.012
    assert stats.kstest(inner, lambda x: stats.norm.cdf(x, 9, 0.5) / stats.norm.cdf(10, 9, 0.5)).pvalue > 1e-3


def test_timm_operations_grow_with_the_level() -> None:
    (weak,) = RandAugment(1, 0, 0, (0, 0, 0)).sample(draws(6))
    (strong,) = RandAugment(1, 10, 0, (0, 0, 0)).sample(draws(6))
    expected = {
        Op.POSTERIZE: (4, 0),
        Op.SOLARIZE: (256, 0),
        Op.SOLARIZE_ADD: (0, 110),
        Op.SHEAR_X: (0, 0.3),
        Op.TRANSLATE_X: (0, 0.45),
        Op.ROTATE: (0, 30),
    }
    for op, (low, high) in expected.items():
        chosen = weak.op == int(op)
        assert magnitudes(weak, chosen) == pytest.approx([low]), op.name
        assert magnitudes(strong, chosen) == pytest.approx([high]), op.name
    assert magnitudes(strong, strong.op == int(Op.COLOR)) == pytest.approx([0.1, 1.9])


def test_big_vision_layers_always_apply_one_of_sixteen_at_full_strength() -> None:
    first, second = BigVisionRandAugment(2, 10).sample(draws(7))
    expected = {
        (a, b): 1 / 256 for a in [*map(int, RAND_OPS), int(Op.CUTOUT)] for b in [*map(int, RAND_OPS), int(Op.CUTOUT)]
    }
    assert frequencies_fit(count(list(zip(first.op.tolist(), second.op.tolist(), strict=True))), expected)
    for op, value in ((Op.POSTERIZE, 4), (Op.SOLARIZE, 256), (Op.COLOR, 1.9), (Op.CUTOUT, 40 / 224), (Op.ROTATE, 30)):
        assert magnitudes(first, first.op == int(op)) == pytest.approx([value]), op.name
