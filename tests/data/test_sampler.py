"""The plan of batches: a pure function of the step."""

import numpy as np
import pytest

from polarvit.data import BatchPlan, DataError, SequentialPlan
from polarvit.data.sampler import evaluation_order, share


def test_every_pass_sees_every_sample_once() -> None:
    plan = BatchPlan(96, 8, seed=3)
    for turn in range(3):
        seen = np.concatenate([plan.indices(turn * 12 + step) for step in range(12)])
        assert sorted(seen) == list(range(96))


def test_passes_have_different_orders_and_seeds_too() -> None:
    first = BatchPlan(96, 96, seed=3)
    assert not np.array_equal(first.indices(0), first.indices(1))
    assert not np.array_equal(first.indices(0), BatchPlan(96, 96, seed=4).indices(0))


def test_the_incomplete_batch_is_dropped() -> None:
    plan = BatchPlan(100, 32)
    assert plan.steps_per_pass == 3
    assert all(len(set(plan.indices(step))) == 32 for step in range(7))


def test_a_step_is_the_same_in_any_order_of_asking() -> None:
    late = BatchPlan(1000, 10, seed=1).indices(2345)
    plan = BatchPlan(1000, 10, seed=1)
    plan.indices(0)
    late[:] += 0
    np.testing.assert_array_equal(plan.indices(2345), late)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_processes_share_the_batch_without_overlap(world: int) -> None:
    plan = BatchPlan(64, 16)
    parts = [plan.indices(5)[plan.local(rank, world)] for rank in range(world)]
    np.testing.assert_array_equal(np.concatenate(parts), plan.indices(5))


def test_evaluation_sees_every_sample_once_in_order() -> None:
    plan = SequentialPlan(103, 25)
    assert plan.steps == 5
    parts = [plan.indices(s)[share(len(plan.indices(s)), r, 2)] for s in range(5) for r in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(103))


def test_a_random_order_of_evaluation_has_every_sample_once_and_is_the_same_each_time() -> None:
    first = evaluation_order(103)
    np.testing.assert_array_equal(first, evaluation_order(103))
    np.testing.assert_array_equal(np.sort(first), np.arange(103))
    assert (first[1:] < first[:-1]).sum() > 25
    assert (evaluation_order(103, 1) != first).any()


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: BatchPlan(10, 11), "batch size 11 is not between 1 and the 10 samples"),
        (lambda: BatchPlan(10, 0), "batch size 0"),
        (lambda: BatchPlan(10, 5).indices(-1), "step -1 is negative"),
        (lambda: BatchPlan(10, 5).local(0, 2), "batch size 5 is not divisible by 2 processes"),
        (lambda: share(8, 2, 2), "rank 2 is not one of 2 processes"),
        (lambda: SequentialPlan(10, 5).indices(2), "step 2 is outside the evaluation of 2 steps"),
        (lambda: SequentialPlan(10, 0), "batch size 0 is not positive"),
    ],
)
def test_impossible_plans_are_refused(action: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        action()
