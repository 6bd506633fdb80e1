"""Training batches one after another, prepared while the device trains on those before.

    with batches(augmenter, data, plan, start, stop, device="cuda") as feed:
        for images, targets in feed:
            ...

On a GPU a thread prepares the next chunk of steps on a stream of its own: the loop that starts the training
steps never stops to draw, and the pixels of the next steps are computed beside it. At most two chunks exist:
one that is trained on and one that is ready or in preparation. On the CPU everything happens in the loop,
when a batch is asked for, because pixels would only take the cores that train.

A batch is a pure function of its step, here as everywhere; neither the chunk it was made in nor the thread
shows in it. A step that is captured as a CUDA graph while batches are prepared must be captured with
`torch.cuda.graph(..., capture_error_mode="thread_local")`, or the capture takes the thread's work for its own.
"""

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import TracebackType

import torch

from polarvit.data.augment.pipeline import Augmenter, Batch, indexed
from polarvit.data.dataset import ImageDataset
from polarvit.data.sampler import BatchPlan

_CHUNKS = 2  # that exist at a time

Turns = queue.SimpleQueue["torch.cuda.Event | None"]
Result = tuple[list[Batch], "torch.cuda.Event | None"] | BaseException | None  # None: no more
Results = queue.SimpleQueue[Result]


def batches(
    augmenter: Augmenter,
    dataset: ImageDataset,
    plan: BatchPlan,
    start: int,
    stop: int,
    rank: int = 0,
    world: int = 1,
    device: torch.device | str = "cpu",
    *,
    threaded: bool | None = None,
) -> "Batches":
    """The batches of steps start..stop-1, in order: images float32 [b, 3, H, W] and soft targets [b, classes].

    Args:
        threaded: prepare them in a thread; None: on a GPU only.
    """
    device = indexed(device)
    size = augmenter.steps_at_once(dataset, plan.batch_size // world, device)
    chunks = (range(step, min(step + size, stop)) for step in range(start, stop, size))
    prepare = partial(augmenter.prepare, dataset, plan, rank=rank, world=world, device=device)
    return Batches(chunks, prepare, device, device.type == "cuda" if threaded is None else threaded)


class Batches:
    """An iterator over batches; closing it, or leaving its `with`, ends its thread."""

    def __init__(
        self, chunks: Iterator[range], prepare: Callable[[range], list[Batch]], device: torch.device, threaded: bool
    ) -> None:
        self._chunks, self._prepare, self._device, self._threaded = chunks, prepare, device, threaded
        self._ready: deque[Batch] = deque()
        self._event: torch.cuda.Event | None = None
        self._ended = self._taken = False
        if threaded:
            self._turns, self._results = Turns(), Results()
            for _ in range(_CHUNKS):
                self._turns.put(None)
            stream = None
            if device.type == "cuda":
                stream = torch.cuda.Stream(device)
                stream.wait_stream(torch.cuda.current_stream(device))
            ending = threading.Event()
            work = (chunks, prepare, self._turns, self._results, ending, stream)
            thread = threading.Thread(target=_work, args=work, name="batches", daemon=True)
            # Also at the end of the interpreter: a thread must not be cut off in the middle of a kernel launch.
            self._finish = weakref.finalize(self, _end, ending, self._turns, thread)
            thread.start()

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Batch:
        if not self._ready:
            self._refill()
        batch = self._ready.popleft()
        if self._event is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(self._event)
            for tensor in batch:
                tensor.record_stream(stream)
        return batch

    def __enter__(self) -> "Batches":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the batches that are left; the thread ends before this returns."""
        self._ended = True
        self._ready.clear()
        if self._threaded:
            self._finish()

    def _refill(self) -> None:
        """Make the next chunk ready; raises StopIteration after the last, and what went wrong in the thread."""
        if self._ended:
            raise StopIteration
        result: Result
        if not self._threaded:
            steps = next(self._chunks, None)
            result = None if steps is None else (self._prepare(steps), None)
        else:
            if self._taken:  # the chunk before is used up: when the device has got that far, its turn is over
                self._turns.put(self._mark())
            self._taken = True
            result = self._results.get()
        if result is None or isinstance(result, BaseException):
            self.close()
            raise StopIteration if result is None else result
        chunk, self._event = result
        self._ready.extend(chunk)

    def _mark(self) -> "torch.cuda.Event | None":
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event(blocking=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


def _work(
    chunks: Iterator[range],
    prepare: Callable[[range], list[Batch]],
    turns: Turns,
    results: Results,
    ending: threading.Event,
    stream: "torch.cuda.Stream | None",
) -> None:
    """Prepare a chunk for every turn. Knows nothing of the iterator, so that one that is dropped is collected."""
    try:
        with ExitStack() as stack:
            if stream is not None:
                stack.enter_context(torch.cuda.device(stream.device))
                stack.enter_context(torch.cuda.stream(stream))
            for steps in chunks:
                turn = turns.get()
                if turn is not None:
                    turn.synchronize()
                if ending.is_set():
                    return
                chunk = prepare(steps)
                results.put((chunk, None if stream is None else stream.record_event()))
                del chunk
        results.put(None)
    except BaseException as error:  # whatever it is, the loop must hear of it instead of waiting for ever
        results.put(error)


def _end(ending: threading.Event, turns: Turns, thread: threading.Thread) -> None:
    ending.set()
    turns.put(None)
    if thread is not threading.current_thread():
        thread.join()
