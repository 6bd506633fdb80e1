"""Training on images with masks: the same loop, another loss, other scores."""

from __future__ import annotations

import json
import shutil
import statistics
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import masked_images
import numpy as np
import pytest
import torch
from PIL import Image
from tiny_runs import differing, tiny_recipe, weights
from torch._inductor.exc import InductorError

from polarvit import create_model, list_models
from polarvit.data import DataError, PackedDataset, SequentialPlan
from polarvit.data.packed_masks import prepare_masks
from polarvit.data.sampler import evaluation_order
from polarvit.data.sources.masks import MaskFolderSource
from polarvit.experiments.report import write_report
from polarvit.models import unet
from polarvit.training import Interrupted, MaskScores, SettingsError, checkpoint, continuity, recipe, train
from polarvit.training.distributed import Place, place
from polarvit.training.loop import best_of
from polarvit.training.mask_metrics import soft_dice
from polarvit.training.overlays import BLUE, GREEN, VERMILION, overlay
from polarvit.training.recipe import Recipe
from polarvit.training.run_folder import RunFolder
from polarvit.training.segmentation import AT_ONCE, ORDERS, dice_cross_entropy, score_masks
from polarvit.training.settings import build, plain
from polarvit.training.task import make_augmenter


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images of 16 x 16: 20 to train on, 5 to validate, 5 to test."""
    root = tmp_path_factory.mktemp("discs")
    source = MaskFolderSource(masked_images.folder(root / "files", 30, 12, 16))
    return prepare_masks(source, root / "packed", image_size=16, validation=0.17, test=0.17)


def tiny(discs: Path, *overrides: str) -> Recipe:
    values: dict[str, Any] = {
        "title": "tiny",
        "model": {"name": "unet", "options": {"img_size": 16, "width": 4, "levels": 1}},
        "data": {"path": str(discs), "validation": "validation", "test": "test"},
        "augment": {"mean": [0, 0, 0], "std": [1, 1, 1]},
        "optim": {"lr": 1e-2, "weight_decay": 0.05},
        "train": {"steps": 12, "batch_size": 4, "precision": "fp32"},
        "watch": {"log_every": 4, "eval_every": 2, "eval_batch": 4, "checkpoint_every": 6, "keep_best": True},
    }
    for override in overrides:
        recipe.apply(values, override)
    return build(Recipe, values)


@pytest.fixture(scope="module")
def run(discs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "discs"
    train(tiny(discs, "train.steps=60", "watch.eval_every=10"), folder, device="cpu", quiet=True)
    return folder


def test_it_learns_where_the_discs_are(run: Path) -> None:
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["task"] == "segmentation"
    assert metrics["test_scores"]["image_dice"] > 0.85
    assert metrics["test_scores"]["hausdorff95"] < 4
    assert metrics["test_scores"]["count"] == 5
    assert 0 <= metrics["test_scores"]["orders_std"] < 0.1
    assert metrics["scores"]["hausdorff95"] is None
    log = RunFolder.read_log(run)
    assert log[-1]["dice"] > log[0].get("dice", 0)
    assert Image.open(run / "overlays.png").size == (6 * 132 - 4, 2 * 132 - 4)  # 16 px, eight times as large


def test_the_best_weights_are_kept_and_measured(discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = iter([0.2, 0.5, 0.9, 0.3, 0.1, 0.2])
    monkeypatch.setattr(MaskScores, "best", property(lambda self: next(order)))
    train(tiny(discs), tmp_path / "run", device="cpu", quiet=True)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["kept_step"] == 6
    kept = checkpoint.load(tmp_path / "run" / "checkpoints" / "step-00000006")[0]["model"]
    saved = create_model(str(tmp_path / "run" / "model"), pretrained=True)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in saved.state_dict().items())
    with place("cpu") as here:
        test = PackedDataset.open(discs, "test")
        scores = score_masks(saved, test, make_augmenter(tiny(discs), 2, 16), here, batch_size=4).scores()
    assert metrics["test_scores"]["dice"] == pytest.approx(scores.dice, rel=1e-4)


def test_a_run_whose_best_weights_are_gone_says_so(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = iter([0.2, 0.5, 0.9, 0.3, 0.1, 0.2])
    monkeypatch.setattr(MaskScores, "best", property(lambda self: next(order)))
    with pytest.raises(Interrupted):
        train(tiny(discs), tmp_path / "run", device="cpu", quiet=True, stop_after=8)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000006")
    with pytest.warns(UserWarning, match="the best weights cannot be read"):
        train(tiny(discs), tmp_path / "run", device="cpu", quiet=True, resume=True)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["best_lost"], metrics["kept_step"]) == (6, 12)


def test_the_best_weights_of_a_run_that_broke_off_are_measured(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert best_of(tiny(discs), tmp_path / "none", device="cpu") is None
    order = iter([0.2, 0.9, 0.5, 0.3])
    monkeypatch.setattr(MaskScores, "best", property(lambda self: next(order)))
    with pytest.raises(Interrupted):
        train(tiny(discs), tmp_path / "run", device="cpu", quiet=True, stop_after=8)
    found = best_of(tiny(discs), tmp_path / "run", device="cpu")
    assert found is not None
    step, scores = found
    model = create_model("unet", img_size=16, width=4, levels=1)
    model.load_state_dict(checkpoint.load(tmp_path / "run" / "checkpoints" / "step-00000004")[0]["model"])
    told = (PackedDataset.open(discs, "test"), make_augmenter(tiny(discs), 2, 16), Place(0, 1, torch.device("cpu")))
    assert step == 4
    assert scores.to_dict() == pytest.approx(score_masks(model, *told, batch_size=4, thorough=True).scores().to_dict())
    assert best_of(tiny(discs, "data.test=null"), tmp_path / "run", device="cpu") is None


def test_how_masks_are_evaluated_belongs_to_the_run(discs: Path) -> None:
    before = plain(tiny(discs))
    for change in ("watch.eval_every=3", "watch.eval_batch=2", "watch.keep_best=false", "watch.drop_last=true"):
        with pytest.warns(UserWarning, match=change.partition("=")[0]):
            continuity.check(before, tiny(discs, change))
        assert continuity.free(change.partition("=")[0], tiny_recipe()) != (change == "watch.keep_best=false")
    for change in ("watch.log_every=1", "watch.checkpoint_every=3", "watch.keep=7"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            continuity.check(before, tiny(discs, change))


@pytest.mark.parametrize("works", [True, False])
def test_a_model_that_does_not_compile_trains_uncompiled(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """And a trial of the compiled model leaves no trace in the weights and the running statistics."""

    def broken(*_: object) -> None:
        raise RuntimeError("no compiler here\nand much more")

    train(tiny(discs), tmp_path / "plain", device="cpu", quiet=True)
    monkeypatch.setattr(unet, "compiled", lambda function, **_: function if works else broken)
    told = nullcontext() if works else pytest.warns(UserWarning, match=r"uncompiled \(RuntimeError: no compiler here\)")
    with told:
        train(tiny(discs, "train.compile=true"), tmp_path / "run", device="cpu", quiet=True)
    assert not differing(weights(tmp_path / "plain"), weights(tmp_path / "run"))
    metrics, environment = (
        json.loads((tmp_path / "run" / name).read_text()) for name in ("metrics.json", "environment.json")
    )
    expected = None if works else "RuntimeError: no compiler here"
    assert metrics["parts"][0].get("not_compiled") == environment.get("not_compiled") == expected


def test_where_the_compiler_fails_smaller_kernels_are_tried(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int | None] = []

    class Broken(InductorError):
        def __init__(self) -> None:
            Exception.__init__(self, "operand does not dominate this use")

    def compiled(function: Callable[..., object], largest_kernel: int | None = None) -> Callable[..., object]:
        def compiles(*inputs: object) -> object:
            tried.append(largest_kernel)
            if largest_kernel != 2:
                raise Broken
            return function(*inputs)

        return compiles

    train(tiny(discs), tmp_path / "plain", device="cpu", quiet=True)
    monkeypatch.setattr(unet, "compiled", compiled)
    told = "kernels of {} loops are tried, larger ones failed .*does not dominate"
    with pytest.warns(UserWarning, match=told.format(8)), pytest.warns(UserWarning, match=told.format(2)):
        train(tiny(discs, "train.compile=true"), tmp_path / "run", device="cpu", quiet=True)
    assert tried[:4] == [None, 8, 2, 2]
    assert set(tried[4:]) == {2}
    assert not differing(weights(tmp_path / "plain"), weights(tmp_path / "run"))
    part = json.loads((tmp_path / "run" / "metrics.json").read_text())["parts"][0]
    assert part["largest_kernel"] == 2
    assert "not_compiled" not in part


def test_a_model_without_memory_is_not_taken_for_one_that_does_not_compile(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(unet, "compiled", lambda function, **_: full)
    with pytest.raises(torch.OutOfMemoryError):
        train(tiny(discs, "train.compile=true"), tmp_path, device="cpu", quiet=True)


def test_a_run_that_was_stopped_ends_with_the_same_weights(discs: Path, tmp_path: Path) -> None:
    train(tiny(discs), tmp_path / "whole", device="cpu", quiet=True)
    with pytest.raises(Interrupted):
        train(tiny(discs), tmp_path / "parts", device="cpu", quiet=True, stop_after=5)
    train(tiny(discs), tmp_path / "parts", device="cpu", quiet=True, resume=True)
    assert not differing(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    whole, parts = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("whole", "parts"))
    assert whole["test_scores"] == parts["test_scores"]
    again = train(tiny(discs), tmp_path / "whole", device="cpu", quiet=True, resume=True)
    assert isinstance(again, MaskScores)
    assert again.to_dict() == whole["test_scores"]


def test_dice_is_the_mean_over_batches_with_or_without_the_last(discs: Path) -> None:
    torch.manual_seed(0)
    model = create_model("unet", img_size=16, width=4, levels=1).eval()
    data, augmenter = PackedDataset.open(discs, "test"), make_augmenter(tiny(discs), 2, 16)
    images, masks = augmenter.evaluation_batch(data, SequentialPlan(len(data), 5), 0)
    order = torch.from_numpy(evaluation_order(len(data)))
    batches = [(images[part], masks[part]) for part in order.split(2)]  # of 2, 2, 1
    with torch.no_grad():
        dice = [soft_dice(model(images).softmax(1), masks).item() for images, masks in batches]
        losses = [dice_cross_entropy(model(images), masks).item() for images, masks in batches]
    here = Place(0, 1, torch.device("cpu"))
    told = (model, data, augmenter, here)
    assert score_masks(*told, batch_size=2).scores().dice == pytest.approx(sum(dice) / 3, rel=1e-5)
    dropped = score_masks(*told, batch_size=2, drop_last=True).scores()
    assert dropped.dice == pytest.approx(sum(dice[:2]) / 2, rel=1e-5)
    assert dropped.loss == pytest.approx(sum(losses[:2]) / 2, rel=1e-5)
    assert dropped.count == 5
    assert score_masks(*told, batch_size=8, drop_last=True).scores().dice == pytest.approx(
        score_masks(*told, batch_size=5).scores().dice
    )


def test_the_soft_dice_is_measured_over_random_orders_too(discs: Path) -> None:
    torch.manual_seed(0)
    model = create_model("unet", img_size=16, width=4, levels=1).eval()
    data, augmenter = PackedDataset.open(discs, "test"), make_augmenter(tiny(discs), 2, 16)
    images, masks = augmenter.evaluation_batch(data, SequentialPlan(5, 5), 0)
    with torch.no_grad():
        p = model(images).softmax(1)
    orders = [torch.from_numpy(evaluation_order(5, which)) for which in range(1, 1 + ORDERS)]
    dice = [statistics.fmean(soft_dice(p[part], masks[part]).item() for part in order.split(2)) for order in orders]
    found = score_masks(model, data, augmenter, Place(0, 1, torch.device("cpu")), batch_size=2, thorough=True).scores()
    assert found.orders_mean == pytest.approx(statistics.fmean(dice), rel=1e-5)
    assert found.orders_std == pytest.approx(statistics.stdev(dice), rel=1e-3)
    assert f"{found.orders_mean:.4f} ± {found.orders_std:.4f} over 20 orders" in found.line()


def test_several_batches_at_once_change_no_score(discs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the net sees four images, Dice is still that of two."""
    torch.manual_seed(0)
    model = create_model("unet_polar", img_size=16, width=2, levels=1)
    seen: list[int] = []
    model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    told = (model, PackedDataset.open(discs, "test"), make_augmenter(tiny(discs), 2, 16))
    found = []
    for together, passes in ((1, [2, 2, 1]), (4, [4, 1])):
        monkeypatch.setitem(AT_ONCE, "cpu", together)
        for drop_last in (False, True):
            seen.clear()
            here = Place(0, 1, torch.device("cpu"))
            scores = score_masks(*told, here, batch_size=2, drop_last=drop_last, thorough=True).scores()
            found.append(scores.to_dict())
            assert seen == passes
    assert found[2] == pytest.approx(found[0], rel=1e-5)
    assert found[3] == pytest.approx(found[1], rel=1e-5)
    assert found[0]["dice"] != found[1]["dice"]


def test_the_model_decides_the_task_and_what_cannot_be_is_refused(discs: Path) -> None:
    assert tiny(discs).task == "segmentation"
    with pytest.raises(SettingsError, match="accumulate must be 1"):
        tiny(discs, "train.accumulate=2")
    with pytest.raises(SettingsError, match=r"keep_best needs data\.validation"):
        tiny(discs, "data.validation=null")


def test_a_test_split_that_is_not_there_is_missed_before_the_first_step(discs: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no split 'held'"):
        train(tiny(discs, "data.test=held"), tmp_path / "run", device="cpu", quiet=True)
    assert not (tmp_path / "run").exists()


def test_labels_and_masks_are_not_mixed_up(discs: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="labels instead of masks"):
        train(tiny(discs, "data.path=digits", "data.validation=test", "data.test=null"), tmp_path / "a", device="cpu")
    vit = "{img_size: 16, patch_size: 8, depth: 1, dim: 8, mlp_dim: 8, heads: 1}"
    wrong = tiny(discs, f"model={{name: vit_tiny, options: {vit}}}", "watch.keep_best=false")
    with pytest.raises(DataError, match="masks instead of labels"):
        train(wrong, tmp_path / "b", device="cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", list_models(task="segmentation"))
def test_graph_and_eager_take_the_same_path(tmp_path: Path, name: str) -> None:
    losses = []
    for graph in ("false", "true"):
        changes = [f"model.name={name}", "train.steps=10", "watch.log_every=2", f"train.cuda_graph={graph}"]
        train(recipe.load("discs", changes), tmp_path / graph, device="cuda:0", quiet=True)
        losses.append([line["loss"] for line in RunFolder.read_log(tmp_path / graph) if "loss" in line])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3 if name in ("unet", "unet_polar") else 1e-2)


def test_a_report_of_masks_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="reports are of classifiers"):
        write_report([run], tmp_path / "report.html")


def test_an_overlay_tells_agreement_excess_and_miss_apart() -> None:
    pixels, (predicted, truth) = np.full((9, 9, 3), 100, np.uint8), np.zeros((2, 9, 9), dtype=bool)
    predicted[1:8, 1:5], truth[1:8, 3:8] = True, True
    found = overlay(pixels, predicted, truth)
    assert [tuple(found[1, x]) for x in (2, 4, 6)] == [VERMILION, GREEN, BLUE]
    assert (found[0] == 100).all()
    assert tuple(overlay(pixels, predicted)[1, 1]) == GREEN
