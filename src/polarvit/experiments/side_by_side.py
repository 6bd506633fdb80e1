"""Several training runs at the same time on one GPU, each in a process of its own.

A small model leaves most of a large GPU idle, so N runs side by side finish sooner than one after the other. Workers
(`polarvit.experiments.worker`) write their logs into their folders; one table shows them all. A worker that dies is
reported with the end of its log and leaves the others alone. Ctrl-C, or the end of the time that was given, lets every
worker save a checkpoint first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import active_children, connection, get_context, parent_process
from pathlib import Path
from typing import IO, Any, TypeVar

from rich.live import Live

from polarvit.experiments.mps import mps
from polarvit.experiments.worker import STOPPED
from polarvit.processes import own_process
from polarvit.tables import console, table

T = TypeVar("T")

LOG = "worker.log"
LOOK, TELL, GRACE = 1.0, 60.0, 120.0
"""Seconds between looks at the workers, between tables where there is no terminal, and given to a worker to save."""


class Unfinished(Exception):
    """Runs that were stopped and saved; the same command continues them."""

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Unfinished | None:
        """What is left of these, if anything is."""
        left = [job.name for job in jobs if job.state in ("stopped", "waiting")]
        many = f"{len(left)} runs are not finished, the same command continues them: {'; '.join(left)}"
        return cls(many) if left else None


@dataclass
class Job:
    """One run: its name in the table, its folder with the recipe, and how it stands."""

    name: str
    folder: Path
    steps: int
    state: str = "waiting"
    """waiting, running, finished, stopped (saved) or dead."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    asked: bool = False
    """Whether it was asked to stop."""
    keep: Callable[[], object] | None = field(default=None, repr=False)
    """Called when it has finished: what it found is then written down, whatever becomes of the others."""

    def why(self) -> str:
        """The last words of a worker that died."""
        code = self.process.returncode if self.process else None
        lines = (self.folder / LOG).read_text(errors="replace").strip().splitlines()
        signalled = f"killed by signal {-code}" if code is not None and code < 0 else f"ended with {code}"
        return f"{signalled}; {self.folder / LOG} ends with: {lines[-1] if lines else '(nothing)'}"

    def newest(self) -> dict[str, Any]:
        """The newest values of the run's log."""
        found: dict[str, Any] = {}
        try:
            text = (self.folder / "log.jsonl").read_text(encoding="utf-8")
        except OSError:
            return found
        for line in text.splitlines():
            try:
                found.update(json.loads(line))
            except ValueError:
                continue  # it is being written
        return found


def side_by_side(
    jobs: Sequence[Job],
    at_once: int,
    *,
    device: str | None = None,
    minutes: float | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Bring every job to its end, `at_once` at a time, and leave in each how it stands; stop all after `minutes`."""
    if not jobs:
        return
    deadline = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    with raised_on_terminate(), shared(device, at_once, say) as environment:
        try:
            with watched(jobs) as look:
                while any(job.state in ("waiting", "running") for job in jobs):
                    if time.monotonic() > deadline:
                        say(f"the {minutes:g} minutes are over: workers save and stop")
                        break
                    start_waiting(jobs, at_once, device, environment)
                    collect(jobs, say)
                    look()
                    time.sleep(LOOK)
        except KeyboardInterrupt:
            say("stopping: workers save and stop; a second Ctrl-C kills them")
        finally:
            stop(jobs)
            collect(jobs, say)
            console().print(progress(jobs))


def in_processes(
    function: Callable[..., T],
    calls: Iterator[tuple[Any, ...]],
    at_once: int,
    *,
    device: str | None = None,
    say: Callable[[str], None] = print,
) -> Iterator[T]:
    """`function(*call)` for each call, `at_once` at a time in processes of their own, as they are done.

    If one raises no more are begun, those that run come to their end, and then it is raised. They end when this process
    ends, however it ends.
    """
    failed: list[BaseException] = []
    with (
        raised_on_terminate(),
        shared(device, at_once, say) as environment,
        ProcessPoolExecutor(at_once, get_context("spawn"), prepare, (environment, threads(at_once))) as pool,
    ):
        running = {pool.submit(function, *call) for call in islice(calls, at_once)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                failed += [error for run in done if (error := run.exception()) is not None]
                if not failed:
                    running |= {pool.submit(function, *call) for call in islice(calls, len(done))}
                yield from (run.result() for run in done if run.exception() is None)
        except KeyboardInterrupt:
            for process in active_children():
                process.terminate()
            raise
    if failed:
        raise failed[0]


def prepare(environment: dict[str, str], count: int) -> None:
    """What a process of a pool does first."""
    import torch

    os.environ.update(environment)
    torch.set_num_threads(count)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait until the process that started this one is gone, and go too."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def threads(at_once: int) -> int:
    """How many threads each of so many processes may have."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // at_once)


def shared(device: str | None, at_once: int, say: Callable[[str], None]) -> AbstractContextManager[dict[str, str]]:
    """The environment for processes that share a GPU; empty where there is none to share."""
    return mps(say) if at_once > 1 and on_gpu(device) else nullcontext({})


def on_gpu(device: str | None) -> bool:
    """Whether runs on this device would share a GPU."""
    import torch

    return torch.device(device).type == "cuda" if device else torch.cuda.is_available()


def start_waiting(jobs: Sequence[Job], at_once: int, device: str | None, environment: dict[str, str]) -> None:
    """Start as many waiting jobs as there is room for."""
    free = at_once - sum(job.state == "running" for job in jobs)
    own = {"OMP_NUM_THREADS": str(threads(at_once))}
    for job in [job for job in jobs if job.state == "waiting"][: max(free, 0)]:
        words, known = own_process("polarvit.experiments.worker", str(job.folder), *([device] if device else []))
        with log_of(job) as log:
            job.process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,  # closes when this process ends, however it ends
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**own, **known, **environment},
                start_new_session=True,  # a Ctrl-C in the terminal comes to this process only, which passes it on once
            )
        job.state = "running"


def log_of(job: Job) -> IO[bytes]:
    job.folder.mkdir(parents=True, exist_ok=True)
    return (job.folder / LOG).open("ab")


def collect(jobs: Sequence[Job], say: Callable[[str], None]) -> None:
    """Note which workers came to an end, and report those that died."""
    for job in jobs:
        if job.state == "running" and job.process is not None and job.process.poll() is not None:
            assert job.process.stdin is not None
            job.process.stdin.close()
            job.state = {0: "finished", STOPPED: "stopped"}.get(job.process.returncode, "dead")
            if job.asked and job.process.returncode == -signal.SIGTERM:
                job.state = "stopped"  # before its first step: it had nothing to save yet
            if job.state == "dead":
                say(f"{job.name}: {job.why()}")
            if job.state == "finished" and job.keep is not None:
                try:
                    job.keep()
                except Exception as error:  # the others go on; what is written at the end tries again, and raises
                    say(f"{job.name}: not written down yet ({' '.join(str(error).split())})")


def stop(jobs: Sequence[Job]) -> None:
    """Ask running workers to save and stop, wait for them, and kill who does not come to an end."""
    asked = [job for job in jobs if job.process is not None and job.process.poll() is None]
    for job in asked:
        job.asked = True
    running = [job.process for job in asked if job.process is not None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    end = time.monotonic() + GRACE
    try:
        for process in running:
            process.wait(max(0.0, end - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        for process in running:
            process.kill()
            process.wait()


@contextmanager
def raised_on_terminate() -> Iterator[None]:
    """Inside, SIGTERM is a Ctrl-C: workers and the daemon are stopped before this process ends."""

    def raise_(*_: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, raise_)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def watched(jobs: Sequence[Job]) -> Iterator[Callable[[], None]]:
    """One table of all workers: live in a terminal, else printed every minute."""
    out = console()
    if out.is_terminal:
        with Live(progress(jobs), console=out, auto_refresh=False, transient=True) as live:
            yield lambda: live.update(progress(jobs), refresh=True)
        return
    told = time.monotonic()

    def look() -> None:
        nonlocal told
        if time.monotonic() - told >= TELL:
            told = time.monotonic()
            out.print(progress(jobs))

    yield look


def progress(jobs: Sequence[Job]) -> Any:
    """How all runs stand."""
    rows, total = [], 0.0
    for job in jobs:
        newest = job.newest()
        speed = newest.get("images_per_second", 0.0) if job.state == "running" else 0.0
        total += speed
        rows.append(
            [
                job.name,
                job.state,
                f"{newest.get('step', 0):,} of {job.steps:,}",
                f"{newest['loss']:.3f}" if "loss" in newest else "",
                f"{newest['top1']:.2f}" if "top1" in newest else f"{newest['dice']:.4f}" if "dice" in newest else "",
                f"{speed:,.0f}" if speed else "",
            ]
        )
    columns = ["run", "state", "steps", "loss", "top-1 % or Dice", "images/s"]
    together = f"{total:,.0f} images/s together" if total else ""
    return table("", columns, rows, caption=together, text=["state"])
