"""The training loop: from a recipe and a folder to a trained, evaluated, saved model.

    batch -> step -> log -> evaluate -> checkpoint, for `train.steps` steps

A run can be killed at any moment and resumed to the same weights: the state is the checkpoint and the step number, and
nothing else (`polarvit.training.checkpoint`).
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from polarvit.data.ahead import Batches, batches
from polarvit.data.sampler import BatchPlan
from polarvit.optim import cosine
from polarvit.training import checkpoint, continuity
from polarvit.training.average import update_average
from polarvit.training.build import build_model, build_optimizer
from polarvit.training.distributed import Place, place
from polarvit.training.evaluate import Scores, evaluate
from polarvit.training.interrupt import Interrupted, interruptible
from polarvit.training.logs import NoLog, RunLog, Speed
from polarvit.training.recipe import Recipe
from polarvit.training.run_folder import RunFolder
from polarvit.training.sets import open_sets
from polarvit.training.settings import SettingsError, plain
from polarvit.training.step import TrainingStep, seed_step, set_precision

__all__ = ["Interrupted", "Trainer", "train"]


def train(
    recipe: Recipe,
    folder: str | Path,
    *,
    resume: bool = False,
    device: str | None = None,
    quiet: bool = False,
    stop_after: int | None = None,
) -> Scores | None:
    """Run a recipe in `folder`; returns the scores of the last step (None without a validation split).

    `resume` continues from the newest whole checkpoint in the folder, or starts if there is none; a finished run stays
    as it is. `stop_after` ends the call after that many steps of this call, saved, as if interrupted on purpose.
    """
    with place(device) as here:
        trainer = Trainer(recipe, RunFolder(Path(folder), here, resume=resume), here, quiet=quiet)
        return trainer.run(stop_after)


class Trainer:
    """One run: its model, data, optimizer and logs."""

    def __init__(self, recipe: Recipe, folder: RunFolder, here: Place, *, quiet: bool = False) -> None:
        self.recipe, self.folder, self.place, self.quiet = recipe, folder, here, quiet
        self.feed: Batches | None = None
        graph = recipe.train.cuda_graph and here.device.type == "cuda" and here.world == 1
        if graph and recipe.train.grad_checkpointing:
            raise SettingsError("train.cuda_graph and train.grad_checkpointing cannot both be on; set one to false")
        set_precision(recipe.train.precision)
        self.data = open_sets(recipe, here.device)
        self.plan = BatchPlan(len(self.data.train), recipe.train.batch_size, recipe.train.seed)
        self.plan.local(here.rank, here.world)  # the batch divides among the processes, or this raises
        saved = here.told(checkpoint.load_newest(folder.checkpoints) if here.leads else None)
        self.model = build_model(recipe, self.data, self.plan, here, calibrated=saved is None)
        self.average = copy.deepcopy(self.model).requires_grad_(False) if recipe.train.ema else None
        self.optimizer = build_optimizer(recipe, self.model, capturable=graph)
        self.start, self.best, self.seconds = 0, Best(), 0.0
        self.losses = Losses(here)
        if saved is not None:
            self._restore(*saved)
        if recipe.train.compile:
            self.model.compile_blocks()
        wrapped: nn.Module = self.model
        if here.world > 1:
            wrapped = DistributedDataParallel(self.model)
        self.step = TrainingStep(
            wrapped,
            self.optimizer,
            here,
            precision=recipe.train.precision,
            accumulate=recipe.train.accumulate,
            clip=recipe.optim.clip,
            graph=graph,
        )

    def run(self, stop_after: int | None = None) -> Scores | None:
        """Steps from where the run stands to the end."""
        recipe, watch, last = self.recipe, self.recipe.watch, self.recipe.train.steps
        if self.start >= last and self.folder.finished(last):
            return self.folder.scores()
        log: RunLog | NoLog = NoLog()
        if self.place.leads:
            self.folder.describe(recipe, self.model)
            log = RunLog(
                self.folder.path,
                start=self.start,
                steps=last,
                tensorboard=watch.tensorboard,
                wandb=watch.wandb,
                config=plain(recipe),
                quiet=self.quiet,
            )
        scores: dict[str, Scores] = {}
        speed, self.began = Speed(), time.perf_counter() - self.seconds
        saved_at = self.start
        try:
            with self._feed(last) as self.feed, interruptible(alone=self.place.world == 1) as pressed:
                for step in range(self.start, last):
                    self.losses.add(self._one(step))
                    speed.images += recipe.train.batch_size
                    done = step + 1
                    log.at(done)
                    logs = done % watch.log_every == 0 or done == last
                    # Processes must agree to stop, which costs a message: they ask each other when they log.
                    stop = self.place.any(bool(pressed)) if logs else bool(pressed) and self.place.world == 1
                    stop = stop or (stop_after is not None and done - self.start >= stop_after)
                    evaluates = self.data.validation is not None and (done % watch.eval_every == 0 or done == last)
                    saves = done % watch.checkpoint_every == 0 or done == last or stop
                    if logs or saves:
                        loss = self.losses.mean(done)  # raises before a broken model is saved
                    if logs:
                        log.write(done, loss=loss, lr=self._lr(step), images_per_second=speed.read())
                        self.losses.reset()
                    if evaluates:
                        scores = self._evaluate(done, log)
                        speed.read()
                    if saves and self._save(done, log):
                        saved_at = done
                    if stop and done < last:
                        raise Interrupted(saved_at)
            if not scores and self.data.validation is not None:  # killed after the last step, before the end
                scores = self._evaluate(last, log)
        finally:
            log.close()
        if self.place.leads:
            self.folder.finish(recipe, self.model, self.average, scores, self._elapsed(), self.place)
        self.place.wait()
        return scores.get("scores")

    def _feed(self, last: int) -> Batches:
        """The batches of this process from where the run stands, prepared ahead on a GPU."""
        rank, world, device = self.place.rank, self.place.world, self.place.device
        return batches(self.data.augmenter, self.data.train, self.plan, self.start, last, rank, world, device)

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Images and soft targets of `step`: the next of the feed, which runs in step with the loop."""
        if self.feed is not None:
            return next(self.feed)
        return self.data.augmenter(
            self.data.train, self.plan, step, self.place.rank, self.place.world, self.place.device
        )

    def _one(self, step: int) -> Tensor:
        """Train on the batch of `step`; the loss stays on the device."""
        seed_step(self.recipe.train.seed, step, self.place.rank)
        if not self.model.training:
            self.model.train()
        images, targets = self._batch(step)
        if self.recipe.train.precision == "fp64":
            images, targets = images.double(), targets.double()
        loss = self.step(images, targets, self._lr(step))
        if self.average is not None:
            update_average(self.average, self.model, self.recipe.train.ema or 0.0, step)
        return loss

    def _lr(self, step: int) -> float:
        optim = self.recipe.optim
        return cosine(
            step,
            steps=self.recipe.train.steps,
            lr=optim.lr,
            warmup=optim.warmup,
            start=optim.warmup_lr,
            floor=optim.final_lr,
        )

    def _evaluate(self, done: int, log: RunLog | NoLog) -> dict[str, Scores]:
        """Scores of the weights, and of their average if there is one."""
        assert self.data.validation is not None
        options: dict[str, Any] = {
            "batch_size": self.recipe.watch.eval_batch,
            "precision": self.recipe.train.precision,
        }
        scores = evaluate(self.model, self.data.validation, self.data.augmenter, self.place, **options)
        found = {"scores": scores}
        log.write(done, val_loss=scores.loss, top1=scores.top1, top5=scores.top5, radius=scores.radius)
        if self.average is not None:
            averaged = evaluate(self.average, self.data.validation, self.data.augmenter, self.place, **options)
            log.write(done, ema_val_loss=averaged.loss, ema_top1=averaged.top1, ema_top5=averaged.top5)
            found["ema_scores"] = averaged
        log.say(f"step {done}: top-1 {scores.top1:.2f} %, top-5 {scores.top5:.2f} %, loss {scores.loss:.3f}")
        self.best.see(done, scores.top1)
        return found

    def _elapsed(self) -> float:
        return time.perf_counter() - self.began

    def _save(self, done: int, log: RunLog | NoLog) -> bool:
        """Write a checkpoint; a full disk costs this one, not the run."""
        written = True
        if self.place.leads:
            parts = {
                "model": self.model.state_dict(),
                "optimizer": checkpoint.optimizer_tensors(self.model, self.optimizer),
            }
            if self.average is not None:
                parts["ema"] = self.average.state_dict()
            state = {
                "step": done,
                "best": self.best.to_dict(),
                "losses": self.losses.to_dict(),
                "seconds": self._elapsed(),
                "recipe": plain(self.recipe),
            }
            try:
                target = self.folder.checkpoints / f"step-{done:08d}"
                checkpoint.save(target, parts, state, self.recipe.watch.shard_mb * 10**6)
                checkpoint.prune(self.folder.checkpoints, self.recipe.watch.keep, self.best.step)
            except OSError as error:
                written = False
                text = f"checkpoint at step {done} was not written ({error}); the one before stays"
                warnings.warn(text, stacklevel=2)
                log.say(f"warning: {text}")
        return self.place.told(written)

    def _restore(self, parts: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
        continuity.check(state["recipe"], self.recipe)
        try:
            self.model.load_state_dict(parts["model"])
            if self.average is not None:
                self.average.load_state_dict(parts.get("ema", parts["model"]))
        except RuntimeError as error:
            raise checkpoint.CheckpointError(f"another model is in this folder; use another folder: {error}") from error
        checkpoint.restore_optimizer(self.model, self.optimizer, parts["optimizer"])
        self.start, self.best, self.seconds = state["step"], Best(**state["best"]), state["seconds"]
        self.losses.restore(**state["losses"])


class Best:
    """The step with the highest validation accuracy so far."""

    def __init__(self, step: int | None = None, top1: float = float("-inf")) -> None:
        self.step, self.top1 = step, top1

    def see(self, step: int, top1: float) -> None:
        if top1 > self.top1:
            self.step, self.top1 = step, top1

    def to_dict(self) -> dict[str, Any]:
        return {} if self.step is None else {"step": self.step, "top1": self.top1}


class Losses:
    """The losses since the last line of the log, added up on the device; only reading them waits for it."""

    def __init__(self, here: Place) -> None:
        self.place, self.steps = here, 0
        self.local = torch.zeros((), dtype=torch.float64, device=here.device)
        self.total = 0.0

    def add(self, loss: Tensor) -> None:
        self.local += loss
        self.steps += 1

    def mean(self, done: int) -> float:
        """Mean over steps and processes; raises if it is not a number."""
        self.total += self.place.sum(self.local).item() / self.place.world
        self.local.zero_()
        if not math.isfinite(self.total):
            first = done - self.steps + 1
            raise FloatingPointError(
                f"the loss became {self.total} between steps {first} and {done}; the last checkpoint is from before. "
                "Try a lower optim.lr, a longer optim.warmup or optim.clip=1"
            )
        return self.total / max(self.steps, 1)

    def reset(self) -> None:
        self.total, self.steps = 0.0, 0

    def to_dict(self) -> dict[str, Any]:
        return {"total": self.total, "steps": self.steps}

    def restore(self, total: float, steps: int) -> None:
        self.total, self.steps = total, steps
