"""The folder of a run: config, environment, logs, checkpoints, final metrics and weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from polarvit.models import VisionModel
from polarvit.provenance import provenance, write_json
from polarvit.training import checkpoint
from polarvit.training.distributed import Place
from polarvit.training.evaluate import Scores
from polarvit.training.recipe import Recipe, dump


class RunFolder:
    """`path/` with recipe.yaml, environment.json, log.jsonl, checkpoints/, and at the end metrics.json and model/."""

    def __init__(self, path: Path, here: Place, *, resume: bool) -> None:
        self.path, self.checkpoints = path, path / "checkpoints"
        if here.leads:
            if not resume and checkpoint.steps(self.checkpoints):
                raise FileExistsError(f"{path} already holds a run; continue it with --resume or choose another folder")
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        here.wait()

    def aside(self, rank: int) -> Path:
        """Where a process that does not lead keeps its own log."""
        folder = self.path / f"rank-{rank}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def describe(self, recipe: Recipe, model: VisionModel) -> None:
        """Write what is known before the first step."""
        (self.path / "recipe.yaml").write_text(dump(recipe), encoding="utf-8")
        write_json(
            self.path / "environment.json",
            {
                **provenance(seed=recipe.train.seed, product_precision=recipe.train.precision),
                "parameters": model.count(),
                "config": model.config.to_dict(),
            },
        )

    def finish(
        self,
        recipe: Recipe,
        model: VisionModel,
        average: nn.Module | None,
        scores: Scores | None,
        seconds: float,
        here: Place,
    ) -> None:
        """Write the final metrics and the weights."""
        metrics: dict[str, Any] = {
            **provenance(seed=recipe.train.seed, product_precision=recipe.train.precision),
            "title": recipe.title,
            "model": recipe.model.name,
            "parameters": model.count(),
            "steps": recipe.train.steps,
            "batch_size": recipe.train.batch_size,
            "processes": here.world,
            "seconds": seconds,
            "scores": scores.to_dict() if scores is not None else None,
        }
        write_json(self.path / "metrics.json", metrics)
        model.save_pretrained(self.path / "model")
        if isinstance(average, VisionModel):
            average.save_pretrained(self.path / "model-ema")

    def log(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        path = self.path / "log.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
