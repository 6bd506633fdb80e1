"""Batches prepared ahead: the same batches, in order, errors told, threads ended."""

import gc
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from polarvit.data import Augmentation, Augmenter, BatchPlan, DataError, ResidentDataset, batches
from polarvit.data.ahead import Batches

CONFIG = Augmentation(flip=0.5, crop_padding=2, erase_probability=0.3, mixup_alpha=0.8, cutmix_alpha=1.0)
PLAN = BatchPlan(40, 8, seed=4)
GPU = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
)


def dataset(device: str = "cpu") -> ResidentDataset:
    images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    return ResidentDataset("noise", images, np.arange(40) % 5, tuple("abcde"), device)


def threads() -> int:
    return sum(thread.name == "batches" for thread in threading.enumerate())


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("threaded", [False, True])
def test_batches_are_those_of_the_augmenter_in_order(device: str, threaded: bool) -> None:
    data = dataset(device)
    with batches(Augmenter(CONFIG, 5, 16), data, PLAN, 3, 150, 1, 2, device, threaded=threaded) as feed:
        found = [(images.clone(), targets.clone()) for images, targets in feed]
    assert len(found) == 147
    augmenter = Augmenter(CONFIG, 5, 16)
    for step, (images, targets) in zip(range(3, 150), found, strict=True):
        expected = augmenter(data, PLAN, step, 1, 2, device)
        assert torch.equal(images, expected[0])
        assert torch.equal(targets, expected[1])
    assert threads() == 0


def test_a_processor_that_trains_gets_no_second_thread() -> None:
    with batches(Augmenter(CONFIG, 5, 16), dataset(), PLAN, 0, 10) as feed:
        next(feed)
        assert threads() == 0


def test_an_end_stays_an_end_and_nothing_is_prepared_for_no_steps() -> None:
    feed = batches(Augmenter(CONFIG, 5, 16), dataset(), PLAN, 5, 5, threaded=True)
    assert list(feed) == []
    assert list(feed) == []


class Counter:
    """Prepares chunks of empty batches and remembers which."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.prepared: list[int] = []
        self.fails_at = fails_at

    def __call__(self, steps: range) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if self.fails_at in steps:
            raise DataError("a file is broken")
        self.prepared.append(steps.start)
        return [(torch.tensor(step), torch.zeros(())) for step in steps]

    def feed(self, chunks: int = 50) -> Batches:
        return Batches(iter([range(4 * k, 4 * k + 4) for k in range(chunks)]), self, torch.device("cpu"), True)


def test_no_more_than_two_chunks_exist() -> None:
    counter = Counter()
    with counter.feed() as feed:
        for expected in range(0, 80, 4):
            assert [int(next(feed)[0]) for _ in range(4)] == list(range(expected, expected + 4))
            time.sleep(0.002)
            assert max(counter.prepared) <= expected + 4


def test_an_error_is_told_after_the_batches_before_it() -> None:
    feed = Counter(fails_at=9).feed()
    assert [int(next(feed)[0]) for _ in range(8)] == list(range(8))
    with pytest.raises(DataError, match="a file is broken"):
        next(feed)
    assert threads() == 0
    assert list(feed) == []


def test_data_that_does_not_match_is_refused() -> None:
    with pytest.raises(DataError, match="noise has 5 classes but the model has 6"):
        next(batches(Augmenter(CONFIG, 6, 16), dataset(), PLAN, 0, 10, threaded=True))


def test_leaving_early_ends_the_thread() -> None:
    def first_steps() -> Iterator[int]:
        with Counter().feed() as feed:
            for images, _ in feed:
                yield int(images)
                if images == 5:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(first_steps())
    assert threads() == 0


def test_a_dropped_iterator_takes_its_thread_along() -> None:
    feed = Counter().feed()
    next(feed)
    assert threads() == 1
    del feed
    gc.collect()
    assert threads() == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_graph_is_captured_and_replayed_while_batches_are_prepared() -> None:
    data, weights = dataset("cuda"), torch.randn(3 * 16 * 16, device="cuda")
    inputs, found, graph = torch.zeros(8, 3, 16, 16, device="cuda"), [], None
    inputs.flatten(1) @ weights  # the libraries are loaded before the capture
    with batches(Augmenter(CONFIG, 5, 16), data, PLAN, 0, 400, device="cuda") as feed:
        for step, (images, _) in enumerate(feed):
            inputs.copy_(images)
            if step == 3:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    outputs = inputs.flatten(1) @ weights
            if graph is not None:
                graph.replay()
                found.append(outputs.clone())
    augmenter = Augmenter(CONFIG, 5, 16)
    for step, output in zip(range(3, 400), found, strict=True):
        torch.testing.assert_close(output, augmenter(data, PLAN, step, device="cuda")[0].flatten(1) @ weights)
