"""The training loop: from a recipe and a folder to a trained, evaluated, saved model.

    batch -> step -> log -> evaluate -> checkpoint, for `train.steps` steps

A run can be killed at any moment and resumed to the same weights: the state is the checkpoint and the step number, and
nothing else (`polarvit.training.checkpoint`).
"""

from __future__ import annotations

import copy
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.sampler import BatchPlan
from polarvit.models import VisionModel, calibrate, create_model
from polarvit.models.polar_vit import PolarViT
from polarvit.optim import RiemannianAdamW, cosine, param_groups
from polarvit.training import checkpoint
from polarvit.training.distributed import Place, place
from polarvit.training.evaluate import Scores, evaluate
from polarvit.training.logs import RunLog, Speed
from polarvit.training.recipe import Recipe
from polarvit.training.run_folder import RunFolder
from polarvit.training.sets import Sets, open_sets
from polarvit.training.settings import plain
from polarvit.training.step import TrainingStep, seed_step, set_precision

CALIBRATION_IMAGES = 128


class Interrupted(Exception):
    """Ctrl-C: the run was saved at `step`."""

    def __init__(self, step: int) -> None:
        super().__init__(f"interrupted at step {step}")
        self.step = step


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

    `resume` continues from the newest whole checkpoint in the folder, or starts if there is none. `stop_after` ends the
    call after that many steps of this call, saved, as if interrupted on purpose.
    """
    with place(device) as here:
        trainer = Trainer(recipe, RunFolder(Path(folder), here, resume=resume), here, quiet=quiet or not here.leads)
        return trainer.run(stop_after)


class Trainer:
    """One run: its model, data, optimizer and logs."""

    def __init__(self, recipe: Recipe, folder: RunFolder, here: Place, *, quiet: bool = False) -> None:
        self.recipe, self.folder, self.place, self.quiet = recipe, folder, here, quiet
        set_precision(recipe.train.precision)
        self.data = open_sets(recipe, here.device)
        self.plan = BatchPlan(len(self.data.train), recipe.train.batch_size, recipe.train.seed)
        self.plan.local(here.rank, here.world)  # the batch divides among the processes, or this raises
        saved = checkpoint.load_newest(folder.checkpoints)
        self.model = build_model(recipe, self.data, self.plan, here, calibrated=saved is None)
        self.average = copy.deepcopy(self.model).requires_grad_(False) if recipe.train.ema else None
        graph = recipe.train.cuda_graph and here.device.type == "cuda"
        self.optimizer = RiemannianAdamW(
            param_groups(self.model, recipe.optim.lr, recipe.optim.weight_decay),
            betas=recipe.optim.betas,
            eps=recipe.optim.eps,
            capturable=graph,
        )
        self.start, self.best = 0, Best()
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
        recipe, watch = self.recipe, self.recipe.watch
        last = recipe.train.steps
        if self.place.leads:
            self.folder.describe(recipe, self.model)
        log = RunLog(
            self.folder.path if self.place.leads else self.folder.aside(self.place.rank),
            start=self.start,
            steps=last,
            tensorboard=watch.tensorboard and self.place.leads,
            wandb=watch.wandb if self.place.leads else None,
            config=plain(recipe),
            quiet=self.quiet,
        )
        scores: Scores | None = None
        speed, losses = Speed(), torch.zeros((), dtype=torch.float64, device=self.place.device)
        began, counted = time.perf_counter(), 0
        saved_at = self.start
        try:
            with interruptible() as pressed:
                for step in range(self.start, last):
                    losses += self._one(step)
                    counted += 1
                    speed.images += recipe.train.batch_size
                    done = step + 1
                    log.at(done)
                    if done % watch.log_every == 0 or done == last:
                        loss = losses.item() / counted
                        if not loss == loss:
                            raise FloatingPointError(f"the loss became NaN between steps {done - counted} and {done}")
                        log.write(done, loss=loss, lr=self._lr(step), images_per_second=speed.read())
                        losses.zero_()
                        counted = 0
                    if self.data.validation is not None and (done % watch.eval_every == 0 or done == last):
                        scores = self._evaluate(done, log)
                        speed.read()
                    stop = (
                        self.place.any(bool(pressed))
                        if done % watch.log_every == 0
                        else bool(pressed) and self.place.world == 1
                    )
                    stop = stop or (stop_after is not None and done - self.start >= stop_after)
                    if done % watch.checkpoint_every == 0 or done == last or stop:
                        self._save(done, log)
                        saved_at = done
                    if stop and done < last:
                        raise Interrupted(saved_at)
        finally:
            log.close()
        if self.place.leads:
            self.folder.finish(recipe, self.model, self.average, scores, time.perf_counter() - began, self.place)
        self.place.wait()
        return scores

    def _one(self, step: int) -> Tensor:
        """Train on the batch of `step`."""
        seed_step(self.recipe.train.seed, step, self.place.rank)
        self.model.train()
        images, targets = self.data.augmenter(
            self.data.train, self.plan, step, self.place.rank, self.place.world, self.place.device
        )
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

    def _evaluate(self, done: int, log: RunLog) -> Scores:
        assert self.data.validation is not None
        options: dict[str, Any] = {
            "batch_size": self.recipe.watch.eval_batch,
            "precision": self.recipe.train.precision,
        }
        scores = evaluate(self.model, self.data.validation, self.data.augmenter, self.place, **options)
        log.write(done, val_loss=scores.loss, top1=scores.top1, top5=scores.top5, radius=scores.radius)
        if self.average is not None:
            averaged = evaluate(self.average, self.data.validation, self.data.augmenter, self.place, **options)
            log.write(done, ema_top1=averaged.top1, ema_top5=averaged.top5)
        log.say(f"step {done}: top-1 {scores.top1:.2f} %, top-5 {scores.top5:.2f} %, loss {scores.loss:.3f}")
        self.best.see(done, scores.top1)
        return scores

    def _save(self, done: int, log: RunLog) -> None:
        """Write a checkpoint; a full disk costs this one, not the run."""
        if not self.place.leads:
            self.place.wait()
            return
        parts = {
            "model": self.model.state_dict(),
            "optimizer": checkpoint.optimizer_tensors(self.model, self.optimizer),
        }
        if self.average is not None:
            parts["ema"] = self.average.state_dict()
        state = {
            "step": done,
            "seed": self.recipe.train.seed,
            "best": self.best.to_dict(),
            "recipe": plain(self.recipe),
        }
        try:
            target = self.folder.checkpoints / f"step-{done:08d}"
            checkpoint.save(target, parts, state, self.recipe.watch.shard_mb * 10**6)
            checkpoint.prune(self.folder.checkpoints, self.recipe.watch.keep, self.best.step)
        except OSError as error:
            warnings.warn(f"checkpoint at step {done} was not written ({error}); the one before stays", stacklevel=2)
            log.say(f"warning: checkpoint at step {done} was not written: {error}")
        self.place.wait()

    def _restore(self, parts: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
        if state["seed"] != self.recipe.train.seed:
            raise checkpoint.CheckpointError(
                f"the checkpoint has seed {state['seed']}, the recipe {self.recipe.train.seed}; use another folder"
            )
        self.model.load_state_dict(parts["model"])
        checkpoint.restore_optimizer(self.model, self.optimizer, parts["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(parts.get("ema", parts["model"]))
        self.start, self.best = state["step"], Best(**state["best"])


class Best:
    """The step with the highest validation accuracy so far."""

    def __init__(self, step: int | None = None, top1: float = float("-inf")) -> None:
        self.step, self.top1 = step, top1

    def see(self, step: int, top1: float) -> None:
        if top1 > self.top1:
            self.step, self.top1 = step, top1

    def to_dict(self) -> dict[str, Any]:
        return {} if self.step is None else {"step": self.step, "top1": self.top1}


def build_model(recipe: Recipe, data: Sets, plan: BatchPlan, here: Place, *, calibrated: bool) -> VisionModel:
    """The recipe's model on its device; drawn from the seed, calibrated on the first batch if asked for."""
    seed_step(recipe.train.seed, 0)
    options = {"num_classes": len(data.classes), **recipe.model.options}
    if recipe.model.pretrained:
        model = create_model(recipe.model.pretrained, pretrained=True, **options)
    else:
        model = create_model(recipe.model.name, **options)
    if recipe.train.precision == "fp64":
        model = model.double()
    model = model.to(here.device)
    model.set_grad_checkpointing(recipe.train.grad_checkpointing)
    if recipe.model.calibrate and calibrated and not recipe.model.pretrained and isinstance(model, PolarViT):
        images, _ = Augmenter(data.augmenter.config, len(data.classes), data.augmenter.image_size)(
            data.train, plan, 0, device=here.device
        )
        calibrate(model, images[:CALIBRATION_IMAGES].to(next(model.parameters()).dtype))
    return model


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Exponential moving average of the weights; early steps average over what there is."""
    weight = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), weight)
    for mine, theirs in zip(average.buffers(), model.buffers(), strict=True):
        mine.copy_(theirs)


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM fill the list instead of ending the program; a second Ctrl-C ends it."""
    pressed: list[int] = []

    def note(number: int, _: Any) -> None:
        if pressed:
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
