"""What a run tells: JSON lines for machines, a progress bar for people, TensorBoard and wandb on request."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column


class RunLog:
    """The log of one run: `log.jsonl` in its folder, and whatever else was asked for.

    Resuming cuts the file back to the step that is resumed from, so that every step stands in it once.
    """

    def __init__(
        self,
        folder: Path,
        *,
        start: int,
        steps: int,
        tensorboard: bool,
        wandb: str | None,
        config: dict[str, Any],
        quiet: bool,
    ) -> None:
        self.path = folder / "log.jsonl"
        self._cut(start)
        self._file = self.path.open("a", encoding="utf-8", buffering=1)
        self._writers = [_tensorboard(folder, start)] if tensorboard else []
        self._wandb = _wandb(wandb, folder, config) if wandb else None
        self._shown: dict[str, str] = {}
        self._bar = Progress(
            BarColumn(bar_width=10),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[facts]}", table_column=Column()),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TextColumn("left"),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=Console(stderr=True),
            disable=quiet,
        )
        self._task = self._bar.add_task(folder.name, total=steps, completed=start, facts="")
        self._bar.start()

    def _cut(self, start: int) -> None:
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= start:
                    kept.append(line)
            except (ValueError, KeyError, TypeError):
                continue  # a line that a kill cut short
        new = self.path.with_name(".log.jsonl.partial")
        new.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        os.replace(new, self.path)

    def write(self, step: int, **values: float | int | None) -> None:
        """One line of numbers at a step."""
        numbers = {key: value for key, value in values.items() if value is not None}
        self._file.write(json.dumps({"step": step, **numbers}) + "\n")
        for writer in self._writers:
            for key, value in numbers.items():
                writer.add_scalar(key, value, step)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)
        self._shown.update({key: _short(key, value) for key, value in numbers.items() if key in _SHOWN})
        facts = [self._shown[key] for key in _SHOWN if key in self._shown]
        rows = ["  ".join(facts[i : i + 2]) for i in range(0, len(facts), 2)]  # 80 columns hold two, and the times
        self._bar.update(self._task, facts="\n".join(rows))

    def at(self, step: int) -> None:
        """Move the progress bar."""
        self._bar.update(self._task, completed=step)

    def say(self, text: str) -> None:
        """A line for people, above the bar."""
        if not self._bar.disable:
            self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._bar.stop()
        self._file.close()
        for writer in self._writers:
            writer.close()
        if self._wandb is not None:
            self._wandb.finish()


class NoLog:
    """The log of a process that does not lead."""

    def write(self, step: int, **values: float | int | None) -> None: ...

    def at(self, step: int) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


_SHOWN = {
    "loss": "loss {:.3f}",
    "top1": "top-1 {:.2f} %",
    "dice": "Dice {:.4f}",
    "images_per_second": "{:.0f} images/s",
    "radius": "radius {:.2f}",
}


def _short(key: str, value: float) -> str:
    return _SHOWN[key].format(value)


def _tensorboard(folder: Path, start: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise RuntimeError("watch.tensorboard needs the extra: pip install 'polarvit[tensorboard]'") from error
    return SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)


def _wandb(project: str, folder: Path, config: dict[str, Any]) -> Any:
    try:
        import wandb
    except ImportError as error:
        raise RuntimeError("watch.wandb needs the extra: pip install 'polarvit[wandb]'") from error
    kept = folder / "wandb.txt"
    if not kept.exists():
        kept.write_text(uuid.uuid4().hex, encoding="utf-8")
    run = kept.read_text(encoding="utf-8")
    return wandb.init(project=project, name=folder.name, dir=str(folder), config=config, id=run, resume="allow")


class Speed:
    """Images per second since the last reading."""

    def __init__(self) -> None:
        self.since, self.images = time.perf_counter(), 0

    def read(self) -> float:
        now = time.perf_counter()
        rate = self.images / max(now - self.since, 1e-9)
        self.since, self.images = now, 0
        return rate
