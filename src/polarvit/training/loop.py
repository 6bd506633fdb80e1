"""The training loop: from a recipe and a folder to a trained, evaluated, saved model.

    batch -> step -> log -> evaluate -> checkpoint, for `train.steps` steps

A run can be killed at any moment and resumed to the same weights: the state is the checkpoint and the step number, and
nothing else (`polarvit.training.checkpoint`).
"""

from __future__ import annotations

import copy
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
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
from polarvit.training.interrupt import Interrupted, interruptible
from polarvit.training.logs import NoLog, RunLog, Speed
from polarvit.training.overlays import write_sheet
from polarvit.training.recipe import Recipe
from polarvit.training.run_folder import RunFolder
from polarvit.training.sets import open_sets, open_split
from polarvit.training.settings import SettingsError, plain
from polarvit.training.step import TrainingStep, autocast, seed_step, set_precision
from polarvit.training.tally import Best, Losses
from polarvit.training.task import LOSSES, AnyScores, by_image
from polarvit.training.trial import OUTCOMES, try_compiled

__all__ = ["Interrupted", "Trainer", "train"]


def train(
    recipe: Recipe,
    folder: str | Path,
    *,
    resume: bool = False,
    device: str | None = None,
    quiet: bool = False,
    stop_after: int | None = None,
) -> AnyScores | None:
    """Run a recipe in `folder`; returns the final scores: of the test split if the recipe names one, else of the
    validation split (None without one).

    `resume` continues from the newest whole checkpoint in the folder, or starts if there is none; a finished run stays
    as it is. `stop_after` ends the call after that many steps of this call, saved, as if interrupted on purpose.
    """
    with place(device) as here:
        run = RunFolder(Path(folder), here, resume=resume)
        with run.alone() if here.leads else nullcontext():  # what is read there must still hold when it goes on
            ended = here.told(run.finished_as(recipe.train.steps) if here.leads else None)
            if ended:
                continuity.check(ended[0], recipe, ended[1], finished=True)
                return here.told(run.scores(recipe.task) if here.leads else None)
            return Trainer(recipe, run, here, quiet=quiet).run(stop_after)


def best_of(recipe: Recipe, folder: Path, *, device: str | None = None) -> tuple[int, AnyScores] | None:
    """Step and test scores of the best weights of a run that broke off; None if it has none, or no test split."""
    kept = recipe.watch.keep_best and recipe.data.test is not None
    if not kept or not checkpoint.steps(folder / "checkpoints"):
        return None
    plainly = replace(recipe, train=replace(recipe.train, compile=False, cuda_graph=False))
    with place(device) as here:
        run = RunFolder(folder, here, resume=True)
        with run.alone() if here.leads else nullcontext():
            return Trainer(plainly, run, here, quiet=True).best_on_test()


class Trainer:
    """One run: its model, data, optimizer and logs."""

    def __init__(self, recipe: Recipe, folder: RunFolder, here: Place, *, quiet: bool = False) -> None:
        self.began = time.perf_counter()  # data, calibration and compilation are time of the run too
        self.recipe, self.folder, self.place, self.quiet = recipe, folder, here, quiet
        self.feed: Batches | None = None
        graph = recipe.train.cuda_graph and here.device.type == "cuda" and here.world == 1
        if graph and recipe.train.grad_checkpointing:
            raise SettingsError("train.cuda_graph and train.grad_checkpointing cannot both be on; set one to false")
        set_precision(recipe.train.precision)
        self.data = open_sets(recipe, here.device)
        self.shown = self.data.validation
        self.plan = BatchPlan(len(self.data.train), recipe.train.batch_size, recipe.train.seed)
        self.plan.local(here.rank, here.world)  # the batch divides among the processes, or this raises
        saved = here.told(checkpoint.load_newest(folder.checkpoints) if here.leads else None)
        if saved is None and here.told(folder.ended() if here.leads else None):
            text = "a run of another length is finished here and its checkpoints are gone, so it cannot go on"
            raise checkpoint.CheckpointError(f"{folder.path}: {text}; use another folder")
        if saved is not None:
            recipe = self.recipe = continuity.continued(recipe, saved[1]["recipe"], saved[1].get("config"))
        self.model = build_model(recipe, self.data, self.plan, here, calibrated=saved is None)
        self.average = copy.deepcopy(self.model).requires_grad_(False) if recipe.train.ema else None
        self.optimizer = build_optimizer(recipe, self.model, capturable=graph)
        self.start, self.best, self.seconds = 0, Best(), 0.0
        self.best_written = Best()
        self.best_lost: int | None = None
        self.parts: list[dict[str, Any]] = []
        self.losses = Losses(here)
        if saved is not None:
            self._restore(*saved)
            if here.leads:
                checkpoint.set_aside(folder.checkpoints, self.start)
        if recipe.train.compile:
            self.model.compile_blocks()
        wrapped: nn.Module = self.model
        if here.world > 1:
            wrapped = DistributedDataParallel(self.model)
        self.step = TrainingStep(
            wrapped,
            self.optimizer,
            here,
            loss=LOSSES[recipe.task],
            precision=recipe.train.precision,
            accumulate=recipe.train.accumulate,
            clip=recipe.optim.clip,
            graph=graph,
        )

    def run(self, stop_after: int | None = None) -> AnyScores | None:
        """Steps from where the run stands to the end."""
        recipe, watch, last = self.recipe, self.recipe.watch, self.recipe.train.steps
        log: RunLog | NoLog = NoLog()
        tries = recipe.train.compile and self.place.world == 1 and self.start < last
        compilation = self._try_compiled() if tries else {}
        if self.place.leads:
            origin = self.folder.describe(recipe, self.model, compilation)
            keys = ("commit", "date", "machine", *OUTCOMES)
            self.parts.append({"from_step": self.start} | {key: origin[key] for key in keys if key in origin})
            log = RunLog(
                self.folder.path,
                start=self.start,
                steps=last,
                tensorboard=watch.tensorboard,
                wandb=watch.wandb,
                config=plain(recipe),
                quiet=self.quiet,
            )
        scores: dict[str, AnyScores] = {}
        speed = Speed()
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
                        if watch.keep_best and self.best.step == done and not saves:
                            self.losses.mean(done)
                            saves = True
                    if saves and self._save(done):
                        saved_at = done
                    if stop and done < last:
                        raise Interrupted(saved_at)
            kept = self._keep_best(last, log)
            if kept != last or (not scores and self.data.validation is not None):
                scores = self._evaluate(kept, log, final=True)  # or killed after the last step, before the end
            scores |= self._test(log)
            self._illustrate()
        finally:
            log.close()
        if self.place.leads:
            told = (scores, self._elapsed(), self.place, kept, self.best_lost, self.parts)
            self.folder.finish(recipe, self.model, self.average, *told)
        self.place.wait()
        return scores.get("test_scores") or scores.get("scores")

    def best_on_test(self) -> tuple[int, AnyScores] | None:
        """Go back to the best weights and measure them on the test split; None if there are none."""
        step = self._keep_best(0, NoLog())
        return (step, self._test(NoLog())["test_scores"]) if step else None

    def _try_compiled(self) -> dict[str, Any]:
        """Try the compiled model on a batch; if it fails the run goes uncompiled. Returns what there is to say of it.

        Several processes would have to agree on that: there, what fails ends the run.
        """
        self.model.train()

        def once() -> None:  # what it holds is gone when it ends, however it ends
            images, targets = (each.chunk(self.recipe.train.accumulate)[0] for each in self._batch(0))
            with autocast(self.recipe.train.precision, self.place.device):
                logits = self.model(images)
            LOSSES[self.recipe.task](logits, targets).backward()

        found = try_compiled(self.model, once)
        if "not_compiled" in found:
            for group in self.optimizer.param_groups:
                group["compile"] = False
        if self.place.device.type == "cuda":
            torch.cuda.empty_cache()  # training steps run on a stream of their own, which cannot use what is cached
        return found

    def _feed(self, last: int) -> Batches:
        """The batches of this process from where the run stands, prepared ahead on a GPU."""
        rank, world, device = self.place.rank, self.place.world, self.place.device
        return batches(self.data.augmenter, self.data.train, self.plan, self.start, last, rank, world, device)

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Images and soft targets of `step`: the next of the feed, which runs in step with the loop."""
        if self.feed is not None:
            images, targets = next(self.feed)
        else:
            rank, world, device = self.place.rank, self.place.world, self.place.device
            images, targets = self.data.augmenter(self.data.train, self.plan, step, rank, world, device)
        if self.recipe.train.precision == "fp64":
            images, targets = images.double(), targets.double() if targets.is_floating_point() else targets
        return images, targets

    def _one(self, step: int) -> Tensor:
        """Train on the batch of `step`; the loss stays on the device."""
        seed_step(self.recipe.train.seed, step, self.place.rank)
        if not self.model.training:
            self.model.train()
        images, targets = self._batch(step)
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

    def _evaluate(self, done: int, log: RunLog | NoLog, *, final: bool = False) -> dict[str, AnyScores]:
        """Scores of the weights, and of their average if there is one; the `final` ones are not logged again."""
        assert self.data.validation is not None
        told = (self.data.validation, self.data.augmenter, self.place)
        found = {"scores": by_image(self.recipe, self.model, *told).scores()}
        if self.average is not None:
            found["ema_scores"] = by_image(self.recipe, self.average, *told).scores()
        if final:
            return found
        log.write(done, **found["scores"].logged())
        if self.average is not None:
            averaged = found["ema_scores"].logged()
            log.write(done, **{f"ema_{key}": value for key, value in averaged.items() if key != "radius"})
        log.say(f"step {done}: {found['scores'].line()}")
        self.best.see(done, found["scores"].best)
        return found

    def _keep_best(self, last: int, log: RunLog | NoLog) -> int:
        """Go back to the best weights if the recipe asks for them; returns the step of the weights that are kept."""
        best = self.best.step
        if not self.recipe.watch.keep_best or best is None or best == last:
            return last
        try:
            parts = checkpoint.load(self.folder.checkpoints / f"step-{best:08d}")[0] if self.place.leads else None
        except checkpoint.CheckpointError as error:
            warnings.warn(f"the best weights cannot be read, the last ones are kept ({error})", stacklevel=2)
            parts = None
        parts = self.place.told(parts)
        if parts is None:
            self.best_lost = best
            return last
        self.model.load_state_dict(parts["model"])
        if self.average is not None:
            self.average.load_state_dict(parts.get("ema", parts["model"]))  # from before there was an average
        log.say(f"the weights of step {best} are kept: they were the best")
        return best

    def _test(self, log: RunLog | NoLog) -> dict[str, AnyScores]:
        """Scores on the test split, if the recipe names one."""
        if self.recipe.data.test is None:
            return {}
        split = open_split(self.recipe, self.recipe.data.test, self.place.device, training=False)
        self.shown = split
        told = (split, self.data.augmenter, self.place)
        found = {"test_scores": by_image(self.recipe, self.model, *told, thorough=True).scores()}
        if self.average is not None:
            found["ema_test_scores"] = by_image(self.recipe, self.average, *told, thorough=True).scores()
        log.say(f"{split.name}: {found['test_scores'].line()}")
        return found

    def _illustrate(self) -> None:
        """Segmentation: a picture of some masks of the test (or validation) split, overlays.png."""
        if self.recipe.task == "segmentation" and self.place.leads and self.shown is not None:
            told = (self.model, self.shown, self.data.augmenter, self.place)
            write_sheet(self.folder.path / "overlays.png", *told, precision=self.recipe.train.precision)

    def _elapsed(self) -> float:
        return self.seconds + time.perf_counter() - self.began

    def _save(self, done: int) -> bool:
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
                "parts": self.parts,
                "recipe": plain(self.recipe),
                "config": self.model.config.to_dict(),
            }
            try:
                target = self.folder.checkpoints / f"step-{done:08d}"
                checkpoint.save(target, parts, state, self.recipe.watch.shard_mb * 10**6)
                checkpoint.prune(self.folder.checkpoints, self.recipe.watch.keep, self.best.step)
            except OSError as error:
                written = False
                text = f"checkpoint at step {done} was not written ({error}); the one before stays"
                warnings.warn(text, stacklevel=2)
        written = self.place.told(written)
        if written:
            self.best_written = copy.copy(self.best)
        elif self.recipe.watch.keep_best:
            self.best = copy.copy(self.best_written)  # weights that are not on the disk cannot be gone back to
        return written

    def _restore(self, parts: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
        if state["step"] > self.recipe.train.steps:
            text = f"the run has done {state['step']} steps already, train.steps is {self.recipe.train.steps}"
            raise checkpoint.CheckpointError(f"{text}; use another folder for a shorter run")
        finished = state["step"] == self.recipe.train.steps and self.folder.finished(state["step"])
        continuity.check(state["recipe"], self.recipe, state.get("config"), finished=finished)
        try:
            self.model.load_state_dict(parts["model"])
            if self.average is not None:
                self.average.load_state_dict(parts.get("ema", parts["model"]))
        except RuntimeError as error:
            raise checkpoint.CheckpointError(f"another model is in this folder; use another folder: {error}") from error
        checkpoint.restore_optimizer(self.model, self.optimizer, parts["optimizer"])
        self.start, self.best, self.seconds = state["step"], Best.restored(state["best"]), state["seconds"]
        self.best_written = copy.copy(self.best)
        self.parts = state.get("parts", [])
        self.losses.restore(**state["losses"])
