"""The parts of the loop: evaluation, targets, clipping, precision, averages, logs, checkpoints."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tiny_runs import tiny_recipe
from torch import nn

from polarvit.training import Trainer, checkpoint, train
from polarvit.training.average import update_average
from polarvit.training.distributed import Place
from polarvit.training.evaluate import even_plan, score_images
from polarvit.training.interrupt import interruptible
from polarvit.training.logs import RunLog
from polarvit.training.run_folder import RunFolder
from polarvit.training.step import TrainingStep, seed_step
from polarvit.training.tally import Losses

HERE = Place(0, 1, torch.device("cpu"))


def trainer(tmp_path: Path, *overrides: str, name: str = "polar_vit_tiny") -> Trainer:
    return Trainer(tiny_recipe(*overrides, name=name), RunFolder(tmp_path, HERE, resume=False), HERE, quiet=True)


def pixels(run: Trainer) -> tuple[torch.Tensor, torch.Tensor]:
    """The test digits by hand: scaled to [-1, 1], channels first."""
    from polarvit.data import DigitsSource

    source = DigitsSource()
    labels = source.labels("test")
    images = np.stack([np.asarray(source.image("test", i)) for i in range(len(labels))])
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1, torch.from_numpy(labels)


@pytest.mark.parametrize("batch", [512, 100, 7], ids=lambda size: f"B{size}")
@pytest.mark.parametrize("name", ["polar_vit_tiny", "vit_tiny"])
def test_scores_are_those_of_a_plain_loop(tmp_path: Path, name: str, batch: int) -> None:
    run = trainer(tmp_path, name=name)
    images, labels = pixels(run)
    run.model.eval()
    with torch.no_grad():
        logits = run.model(images)
    run.model.train()
    assert run.data.validation is not None
    scores = score_images(run.model, run.data.validation, run.data.augmenter, HERE, batch_size=batch).scores()
    ranks = (logits > logits.gather(1, labels[:, None])).sum(1)
    assert scores.count == 359
    assert scores.loss == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)
    assert scores.top1 == pytest.approx(100 * (ranks == 0).double().mean().item(), abs=0.3)
    assert scores.top5 == pytest.approx(100 * (ranks < 5).double().mean().item(), abs=0.3)
    assert (scores.radius is None) == (name == "vit_tiny")
    assert run.model.training


@pytest.mark.parametrize(("length", "batch"), [(359, 512), (359, 100), (10, 3), (1, 1), (512, 512), (513, 512)])
def test_evaluation_batches_are_even_and_cover_everything(length: int, batch: int) -> None:
    plan = even_plan(length, batch)
    sizes = [len(plan.indices(step)) for step in range(plan.steps)]
    assert sum(sizes) == length
    assert max(sizes) <= batch
    assert len(sizes) == -(-length // batch)
    assert max(sizes) - min(sizes) < len(sizes) or len(sizes) == 1


def one_layer(clip: float | None = None, accumulate: int = 1) -> tuple[nn.Linear, TrainingStep]:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return model, TrainingStep(model, optimizer, HERE, clip=clip, accumulate=accumulate)


def test_the_loss_is_cross_entropy_with_soft_targets() -> None:
    model, step = one_layer()
    images, targets = torch.randn(5, 6), torch.softmax(torch.randn(5, 3), -1)
    expected = -(targets * torch.log_softmax(model(images), -1)).sum(-1).mean()
    gradient = torch.autograd.grad(expected, model.weight)[0]
    before = model.weight.detach().clone()
    loss = step(images, targets, 0.5)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(model.weight.detach(), before - 0.5 * gradient)


@pytest.mark.parametrize("accumulate", [2, 3, 5, 9])
def test_parts_of_a_batch_that_does_not_divide_weigh_what_they_hold(accumulate: int) -> None:
    images, targets = torch.randn(5, 6), torch.softmax(torch.randn(5, 3), -1)
    whole, step = one_layer()
    parted, parted_step = one_layer(accumulate=accumulate)
    assert parted_step(images, targets, 0.5).item() == pytest.approx(step(images, targets, 0.5).item(), rel=1e-6)
    torch.testing.assert_close(parted.weight, whole.weight)


def test_clipping_bounds_the_norm_of_the_gradient() -> None:
    model, step = one_layer(clip=1e-3)
    before = [p.detach().clone() for p in model.parameters()]
    step(torch.randn(5, 6), torch.softmax(torch.randn(5, 3), -1), 1.0)
    moved = torch.cat([(p - old).flatten() for p, old in zip(model.parameters(), before, strict=True)])
    assert moved.norm().item() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_lower_precision_trains_and_keeps_float32_weights(tmp_path: Path, precision: str) -> None:
    scores = train(
        tiny_recipe(f"train.precision={precision}", "train.steps=2"), tmp_path / "run", device="cpu", quiet=True
    )
    assert scores is not None
    assert np.isfinite(scores.loss)
    assert {t.dtype for t in load_file(tmp_path / "run" / "model" / "model.safetensors").values()} == {torch.float32}


def test_the_average_follows_the_weights() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = copy.deepcopy(model)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
        model[1].running_mean.fill_(3.0)
    update_average(average, model, decay=0.999, step=0)
    moved = 1 - 0.1  # at step 0 the decay is 1/10
    torch.testing.assert_close(average[0].weight, model[0].weight - 1 + moved)
    assert average[1].running_mean.tolist() == [3.0, 3.0]
    before = average[0].weight.detach().clone()
    update_average(average, model, decay=0.999, step=10**6)
    torch.testing.assert_close(average[0].weight, before + 0.001 * (model[0].weight - before))


def test_seeding_a_step_repeats_its_draws_and_tells_steps_and_ranks_apart() -> None:
    draws = set()
    for key in [(0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0), (0, -1, 0), (0, 0, 0)]:
        seed_step(*key)
        draws.add(torch.rand(()).item())
    assert len(draws) == 5


def test_a_loss_that_is_not_a_number_stops_the_run_before_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "_one", lambda self, step: torch.tensor(float("nan") if step >= 4 else 1.0))
    with pytest.raises(FloatingPointError, match="became nan between steps 5 and 6"):
        train(tiny_recipe("watch.eval_every=100"), tmp_path / "run", device="cpu", quiet=True)
    assert [step for step, _ in checkpoint.steps(tmp_path / "run" / "checkpoints")] == [3]
    assert [line["step"] for line in RunFolder.read_log(tmp_path / "run")] == [2, 4]


def test_losses_are_read_only_when_something_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    real = Losses.mean
    monkeypatch.setattr(Losses, "mean", lambda self, done: (reads.append(done), real(self, done))[1])
    run = trainer(tmp_path, "train.steps=6", "watch.log_every=3", "watch.checkpoint_every=5", "data.validation=null")
    run.run()
    assert reads == [3, 5, 6]


def test_a_run_folder_holds_what_the_run_was(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    recipe = tiny_recipe("train.steps=4", "watch.tensorboard=true", "watch.eval_every=2", "watch.keep=1")
    train(recipe, tmp_path / "run", device="cpu", quiet=True)
    for name in ("recipe.yaml", "environment.json", "log.jsonl", "metrics.json", "model/config.json"):
        assert (tmp_path / "run" / name).stat().st_size
    events = list((tmp_path / "run" / "tensorboard").glob("events*"))
    assert events
    assert events[0].stat().st_size > 100
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["scores"]["count"] == 359
    assert metrics["seconds"] > 0
    rates = metrics["learned"]["blocks.*.attention.position.rate"]
    assert rates["least"] <= rates["mean"] <= rates["largest"]
    assert rates["least"] != rates["largest"], "they all start at 1"
    from polarvit.training.recipe import load

    assert load(tmp_path / "run" / "recipe.yaml") == recipe


def test_checkpoints_are_cut_into_shards_and_come_back(tmp_path: Path) -> None:
    tensors = {f"w{i}": torch.randn(10, 10) for i in range(7)}
    checkpoint.save(tmp_path / "step-00000001", {"model": tensors}, {"step": 1}, shard_bytes=900)
    files = sorted(path.name for path in (tmp_path / "step-00000001").glob("*.safetensors"))
    assert files == [f"model-{i:05d}.safetensors" for i in range(4)]
    parts, state = checkpoint.load(tmp_path / "step-00000001")
    assert state["step"] == 1
    assert all(torch.equal(parts["model"][name], tensor) for name, tensor in tensors.items())


def test_the_newest_and_the_best_checkpoint_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10, 20):
        checkpoint.save(tmp_path / f"step-{step:08d}", {"model": {"w": torch.ones(1)}}, {"step": step}, 1000)
    (tmp_path / "step-notes").mkdir()
    checkpoint.prune(tmp_path, keep=2, best=2)
    assert [step for step, _ in checkpoint.steps(tmp_path)] == [20, 10, 2]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tmp_path / "step-00000001", {"model": {"w": torch.ones(1)}}, {"step": 1}, 1000)
    assert list(tmp_path.iterdir()) == []


def test_resuming_cuts_the_log_and_drops_a_broken_line(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    options = {"steps": 9, "tensorboard": False, "wandb": None, "config": {}, "quiet": True}
    RunLog(tmp_path, start=2, **options).close()
    assert [line["step"] for line in RunFolder.read_log(tmp_path)] == [1, 2]


def test_the_bar_fits_into_eighty_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    log = RunLog(tmp_path, start=0, steps=117100, tensorboard=False, wandb=None, config={}, quiet=False)
    log.write(117100, loss=0.112, top1=98.33, images_per_second=1665.0, radius=4.73)
    log.at(117100)
    log.close()
    shown = capsys.readouterr().err
    assert "…" not in shown
    assert all(
        text in shown for text in ("117100/117100", "loss 0.112", "top-1 98.33 %", "1665 images/s", "radius 4.73")
    )
    assert "left 0:00:00" in shown


def test_a_second_ctrl_c_ends_a_process_that_is_alone() -> None:
    import signal

    with interruptible() as pressed:
        signal.raise_signal(signal.SIGINT)
        assert pressed == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with interruptible(alone=False) as pressed:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert len(pressed) == 2


def test_a_graph_without_a_gpu_is_left_out(tmp_path: Path) -> None:
    run = trainer(tmp_path, "train.cuda_graph=true")
    assert run.step.graph_wanted is False
    with pytest.raises(ValueError, match="CUDA device"):
        TrainingStep(run.model, run.optimizer, HERE, graph=True)


def test_training_does_not_warn(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(tiny_recipe("train.steps=2"), tmp_path / "run", device="cpu", quiet=True)
    assert (tmp_path / "run" / "metrics.json").is_file()
