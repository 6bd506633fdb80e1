"""The folder of a run: config, environment, logs, checkpoints, final metrics and weights."""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from polarvit.files import put_text
from polarvit.models import VisionModel
from polarvit.provenance import provenance, write_json
from polarvit.text import unmarked
from polarvit.training import checkpoint
from polarvit.training.distributed import Place
from polarvit.training.learned import learned_numbers
from polarvit.training.recipe import Recipe, dump, load
from polarvit.training.settings import plain
from polarvit.training.step import products
from polarvit.training.task import SCORES, AnyScores

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

METRICS, LOCK = "metrics.json", ".lock"
PATIENCE = 10
"""How many times, a second apart, a folder that another process holds is asked for."""
WEIGHTS = ("model", "model-ema")
"""Folders of the final weights, and of their average."""


def holds_run(path: Path) -> bool:
    """Whether a run began in this folder, or came to its end there."""
    signs = (METRICS, "log.jsonl", *WEIGHTS)
    return bool(checkpoint.steps(path / "checkpoints")) or any((path / sign).exists() for sign in signs)


class RunFolder:
    """`path/` with recipe.yaml, environment.json, log.jsonl, checkpoints/, and at the end metrics.json and model/."""

    def __init__(self, path: Path, here: Place, *, resume: bool) -> None:
        self.path, self.checkpoints, self.device, self.resume = path, path / "checkpoints", here.device, resume
        if here.leads:
            self._must_be_free()
        here.wait()

    def _must_be_free(self) -> None:
        if not self.resume and holds_run(self.path):
            text = f"{self.path} already holds a run; continue it with --resume or choose another folder"
            raise FileExistsError(text)

    def ended(self) -> bool:
        """Whether a run, of whatever length, came to its end here and its checkpoints are gone."""
        return self._metrics() is not None and not checkpoint.steps(self.checkpoints)

    def finished_as(self, steps: int) -> tuple[dict[str, Any], dict[str, Any] | None] | None:
        """The settings of a run of that many steps that came to its end here, and its model's config; else None.

        Whatever became of its checkpoints: it is not begun again for them.
        """
        if not self.finished(steps):
            return None
        config = json.loads((self.path / "model" / "config.json").read_text(encoding="utf-8")).get("config")
        return plain(load(self.path / "recipe.yaml")), config

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder while what is in it is read and a run goes on: two at once would delete each other's work.

        Where there are no such locks everybody is let in. A folder in which nothing came to be is gone afterwards.
        """
        lock = self.path / LOCK
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = lock.open("a")
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            yield  # a finished run may be looked at where nothing can be written
            return
        with file:
            for _ in range(PATIENCE):
                if fcntl is None:
                    break
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(1)  # a worker of a run that was just killed holds it for a moment more
                except OSError:
                    break
                else:
                    break
            else:
                raise checkpoint.CheckpointError(f"{self.path}: another process trains here; use another folder")
            try:
                self._must_be_free()
                yield
            finally:
                if [path.name for path in self.path.iterdir()] == [LOCK]:
                    lock.unlink(missing_ok=True)
                    self.path.rmdir()

    def finished(self, steps: int) -> bool:
        """Whether a run of that many steps came to its end here."""
        metrics = self._metrics()
        return metrics is not None and metrics["steps"] == steps and (self.path / "model").is_dir()

    def scores(self, task: str) -> AnyScores | None:
        """The final scores that were written, of the test split if it was measured, to the digits written."""
        metrics = self._metrics() or {}
        found = metrics.get("test_scores") or metrics.get("scores")
        return SCORES[task](**found) if found else None

    def _metrics(self) -> dict[str, Any] | None:
        path = self.path / METRICS
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def describe(self, recipe: Recipe, model: VisionModel, compilation: Mapping[str, Any]) -> dict[str, Any]:
        """Write what is known before the first step; until then a run that cannot start leaves no folder behind.

        `compilation` says what became of a model that did not compile at once. Returns what this part of the run is
        made with: sources may change on the disk while it goes.
        """
        origin = self._provenance(recipe)
        origin |= compilation
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        (self.path / METRICS).unlink(missing_ok=True)  # of a shorter run that goes on: it is not whole any more,
        for stale in WEIGHTS:  # and its weights are those of its checkpoint
            shutil.rmtree(self.path / stale, ignore_errors=True)
        put_text(self.path / "recipe.yaml", dump(recipe))
        write_json(
            self.path / "environment.json",
            {
                **origin,
                "parameters": model.count(),
                "config": model.config.to_dict(),
                "class_names": model.class_names,
                **{key: model.default_cfg[key] for key in ("padding",) if key in model.default_cfg},
            },
        )
        return origin

    def finish(
        self,
        recipe: Recipe,
        model: VisionModel,
        average: nn.Module | None,
        scores: dict[str, AnyScores],
        seconds: float,
        here: Place,
        kept: int,
        best_lost: int | None,
        parts: list[dict[str, Any]],
    ) -> None:
        """Write the weights, which are those of step `kept`, and the final metrics; `parts` say what made them.

        `best_lost` is the step of better weights that the recipe asks for and that could not be read any more.
        """
        metrics: dict[str, Any] = {
            **self._provenance(recipe),
            "commit": parts[-1]["commit"],
            "title": recipe.title,
            "model": recipe.model.name,
            "parameters": model.count(),
            "task": recipe.task,
            "steps": recipe.train.steps,
            "kept_step": kept,
            **({} if best_lost is None else {"best_lost": best_lost}),
            "batch_size": recipe.train.batch_size,
            "processes": here.world,
            "seconds": seconds,
            "parts": parts,
            **{name: found.to_dict() for name, found in scores.items()},
            "learned": learned_numbers(model),
        }
        used = metrics["product_precision"]
        for name, weights, key in zip(WEIGHTS, (model, average), ("scores", "ema_scores"), strict=True):
            if isinstance(weights, VisionModel):
                weights.save_pretrained(self.path / name, model_card_kwargs=on_card(recipe, scores.get(key), used))
        write_json(self.path / METRICS, metrics)  # last: its presence says that the run is whole

    def _provenance(self, recipe: Recipe) -> dict[str, Any]:
        return provenance(seed=recipe.train.seed, product_precision=products(recipe.train.precision, self.device))

    @staticmethod
    def read_log(path: Path) -> list[dict[str, Any]]:
        """The lines of the log in a run folder."""
        lines = (path / "log.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


def on_card(recipe: Recipe, scores: AnyScores | None, used: str) -> dict[str, str]:
    """What the card of a run's weights says of their training: the recipe, the products it `used`, and the scores."""
    train = recipe.train
    about = (
        f"{unmarked(recipe.title).rstrip('.')}. Trained for {train.steps:,} steps of {train.batch_size} images, "
        f"products in {used}, seed {train.seed}."
    )
    if scores is None:
        return {"summary": about}
    measured = f"On {scores.count:,} images of the split `{recipe.data.evaluated}`: {scores.line()}."
    return {"summary": about, "results": measured}
