"""Workers on one device: all come to their end, one that dies leaves the others alone, and stopping saves."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import tiny_recipe

from polarvit.experiments import mps as mps_module
from polarvit.experiments import side_by_side as module
from polarvit.experiments.mps import mps
from polarvit.experiments.side_by_side import Job, in_processes, side_by_side
from polarvit.training import checkpoint
from polarvit.training.recipe import dump


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK", 0.05)


def job(folder: Path, *overrides: str, text: str | None = None) -> Job:
    recipe = tiny_recipe(*overrides)
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(dump(recipe) if text is None else text)
    return Job(folder.name, folder, recipe.train.steps)


@pytest.mark.slow
def test_a_dead_worker_is_reported_and_the_others_finish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [job(tmp_path / "one", "train.steps=2"), job(tmp_path / "broken", text="bogus: 1")]
    said: list[str] = []
    kept: list[str] = []
    for each in jobs:
        each.keep = lambda name=each.name, run=each.folder: kept.append(f"{name} {(run / 'metrics.json').is_file()}")
    side_by_side(jobs, 2, device="cpu", say=said.append)
    assert [each.state for each in jobs] == ["finished", "dead"]
    assert kept == ["one True"], "what has finished is written down, what died is not"
    assert json.loads((tmp_path / "one" / "metrics.json").read_text())["steps"] == 2
    assert len(said) == 1
    assert said[0].startswith("broken: ended with 1; ")
    assert "unknown setting 'bogus'" in said[0]
    shown = capsys.readouterr().out
    assert "2 of 2" in shown
    assert "dead" in shown


def test_what_cannot_be_written_down_stops_no_other_run(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError("No space left on device")

    jobs, said = [job(tmp_path / "one"), job(tmp_path / "two")], []
    for each, keep in zip(jobs, (full, lambda: said.append("kept")), strict=True):
        each.state, each.keep = "running", keep
        each.process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)
        each.process.wait()
    module.collect(jobs, said.append)
    assert [each.state for each in jobs] == ["finished", "finished"]
    assert said == ["one: not written down yet (No space left on device)", "kept"]


@pytest.mark.slow
def test_the_end_of_the_time_saves_and_the_run_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = job(tmp_path / "long", "train.steps=100000", "watch.checkpoint_every=100000", "watch.eval_every=100000")
    waiting = job(tmp_path / "waiting")
    clock = iter([0.0])
    begun = tmp_path / "long" / "log.jsonl"
    monkeypatch.setattr(  # the time is over once the first steps are logged
        module.time, "monotonic", lambda: next(clock, 61.0 if begun.exists() and begun.stat().st_size else 1.0)
    )
    side_by_side([long, waiting], 1, device="cpu", minutes=1, say=lambda _: None)
    assert (long.state, waiting.state) == ("stopped", "waiting")
    (step, _), *_ = checkpoint.steps(tmp_path / "long" / "checkpoints")
    assert 0 < step < 100000
    assert f"step {step}" in (tmp_path / "long" / "worker.log").read_text()


def test_a_worker_is_told_to_stop_when_its_parent_is_gone() -> None:
    """Stopping on that signal is what the test above shows; here the signal must come."""
    words = [sys.executable, "-c", "from polarvit.experiments.worker import end_with_parent as f; print(1); f()"]
    worker = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"1\n"
        assert worker.poll() is None
        worker.stdin.close()
        assert worker.wait(60) == -signal.SIGTERM
    finally:
        worker.kill()
        worker.wait()


def test_a_worker_stopped_before_its_first_step_is_not_dead(tmp_path: Path) -> None:
    started = Job("a", tmp_path, 1, "running")
    started.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.PIPE)
    said: list[str] = []
    module.stop([started])
    module.collect([started], said.append)
    assert (started.state, said) == ("stopped", [])


def test_a_worker_killed_from_outside_is_dead(tmp_path: Path) -> None:
    victim = Job("victim", tmp_path, 5)
    with (tmp_path / "worker.log").open("wb") as log:
        victim.process = subprocess.Popen(
            [sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(60)"],
            stdin=subprocess.PIPE,
            stdout=log,
        )
    victim.state = "running"
    os.kill(victim.process.pid, signal.SIGKILL)
    victim.process.wait()
    said: list[str] = []
    module.collect([victim], said.append)
    assert victim.state == "dead"
    assert "killed by signal 9" in said[0]


CONTROL = """#!/bin/sh
echo "$* $(cat) $CUDA_MPS_PIPE_DIRECTORY" >> {log}
test -d "$CUDA_MPS_PIPE_DIRECTORY" && test -d "$CUDA_MPS_LOG_DIRECTORY"
"""


@pytest.mark.parametrize("works", [True, False])
def test_mps_gets_a_daemon_of_its_own_that_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    log = tmp_path / "log"
    control = tmp_path / mps_module.CONTROL
    control.write_text(CONTROL.format(log=log))
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv(mps_module.PIPES, raising=False)
    monkeypatch.setattr(mps_module, "PROBE", "" if works else "raise SystemExit('no GPU under MPS')")
    said: list[str] = []
    with mps(said.append) as environment:
        folder = log.read_text().split()[-1]
        assert Path(folder).is_dir()
        assert environment.get("CUDA_MPS_PIPE_DIRECTORY") == (folder if works else None)
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["-d", "quit"]
    assert not Path(folder).exists()
    assert said == ([] if works else ["CUDA MPS does not work here (no GPU under MPS): workers take turns on the GPU"])


def test_without_mps_workers_take_turns_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(mps_module.PIPES, raising=False)
    monkeypatch.setattr(mps_module.shutil, "which", lambda _: None)
    said: list[str] = []
    with mps(said.append) as environment:
        assert environment == {}
    assert "not installed" in said[0]


def test_workers_join_a_daemon_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "control").touch()
    monkeypatch.setenv(mps_module.PIPES, str(tmp_path))
    monkeypatch.setattr(mps_module, "command", lambda *_: pytest.fail("started a daemon beside the one that runs"))
    said: list[str] = []
    with mps(said.append) as environment:
        assert environment == {}
    assert said == ["workers join the CUDA MPS daemon that CUDA_MPS_PIPE_DIRECTORY names"]


@pytest.mark.parametrize("named", ["", "gone"])
def test_a_daemon_that_does_not_run_is_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv(mps_module.PIPES, named and str(tmp_path / named))
    monkeypatch.setattr(mps_module.shutil, "which", lambda _: mps_module.CONTROL)
    monkeypatch.setattr(mps_module, "command", lambda *_: "")
    with mps(lambda _: None) as environment:
        assert environment[mps_module.PIPES].endswith("/pipe")


@pytest.mark.slow
def test_what_runs_beside_a_failure_is_not_lost() -> None:
    found = []
    with pytest.raises(ValueError, match="math domain error"):  # noqa: PT012
        for each in in_processes(math.sqrt, iter([(4.0,), (-1.0,)]), 2, device="cpu"):
            found.append(each)
    assert found == [2.0]
    assert sorted(in_processes(math.sqrt, iter([(4.0,), (9.0,), (16.0,)]), 2, device="cpu")) == [2.0, 3.0, 4.0]


@pytest.mark.slow
@pytest.mark.parametrize("ended", [signal.SIGTERM, signal.SIGKILL])
def test_processes_of_a_pool_end_with_the_one_that_started_them(tmp_path: Path, ended: signal.Signals) -> None:
    text = f"""
import os, time
from pathlib import Path
from polarvit.experiments.side_by_side import in_processes

def wait(name):
    (Path({str(tmp_path)!r}) / name).write_text(str(os.getpid()))
    time.sleep(300)

if __name__ == "__main__":
    list(in_processes(wait, iter([("one",), ("two",)]), 2, device="cpu", say=print))
"""
    script = tmp_path / "waits.py"
    script.write_text(text)
    process = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": "src"})
    assert_soon(lambda: all((tmp_path / name).exists() and (tmp_path / name).read_text() for name in ("one", "two")))
    process.send_signal(ended)
    process.wait(60)
    for name in ("one", "two"):
        assert_soon(lambda name=name: not alive(int((tmp_path / name).read_text())))


def assert_soon(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def alive(process: int) -> bool:
    """Whether a process runs; one that ended and that nobody has asked after does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
