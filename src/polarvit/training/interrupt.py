"""Ctrl-C and SIGTERM as a request to stop at the next step, not in the middle of one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(Exception):
    """The run was stopped on request; `step` is the checkpoint it resumes from."""

    def __init__(self, step: int) -> None:
        super().__init__(f"interrupted; the newest checkpoint is of step {step}")
        self.step = step


@contextmanager
def interruptible(*, alone: bool = True) -> Iterator[list[int]]:
    """Signals fill the list instead of ending the program; a second one ends it if the process is `alone`.

    Under `torchrun` a Ctrl-C arrives twice, from the terminal and from the launcher, which kills after half a minute
    whoever does not come to an end.
    """
    pressed: list[int] = []

    def note(number: int, _: Any) -> None:
        if pressed and alone:
            raise KeyboardInterrupt
        pressed.append(number)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread
        before = {}
    try:
        yield pressed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
