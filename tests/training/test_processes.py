"""Several processes train as one does: same batches, same gradients, same weights, same scores."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from tiny_runs import differing, first_gradients, leave_a_group, run_quietly, tiny_recipe, together, weights

from polarvit.training import Trainer, checkpoint, train
from polarvit.training.recipe import load
from polarvit.training.run_folder import RunFolder

MIXED = ("augment.mixup_alpha=1.0", "augment.cutmix_alpha=1.0", "augment.flip=0.5", "augment.crop_padding=2")
PLAIN = ("model.options.drop_path=0.0",)
RARELY = ("watch.eval_every=1000", "watch.checkpoint_every=1000", "watch.log_every=10")


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_threads_of_a_group_end_before_python_does(tmp_path: Path) -> None:
    """One that wants Python's lock while the interpreter ends would abort the process."""
    together(2, leave_a_group, tmp_path)
    for rank in (0, 1):
        kept, gone = json.loads((tmp_path / f"{rank}.json").read_text())
        assert gone < kept


@pytest.mark.slow
def test_two_processes_walk_the_path_of_one(tmp_path: Path) -> None:
    recipe = tiny_recipe("train.steps=50", "train.precision=fp64", "train.ema=0.9", *MIXED, *PLAIN, *RARELY)
    train(recipe, tmp_path / "one", device="cpu", quiet=True)
    together(2, run_quietly, recipe, tmp_path / "two")
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert tensor.dtype == torch.float64 or "|step" in name or not tensor.is_floating_point()
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")
    logs = [RunFolder.read_log(tmp_path / name) for name in ("one", "two")]
    for mine, theirs in zip(*logs, strict=True):
        for values in (mine, theirs):
            values.pop("images_per_second", None)
        assert mine == pytest.approx(theirs, abs=1e-9)
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == sorted(
        path.name for path in (tmp_path / "one").iterdir()
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", ["unet", "unet_lorentz", "unet_poincare", "unet_polar"])
def test_two_processes_train_a_segmentation_model_as_one_does(tmp_path: Path, model: str) -> None:
    """The Dice of the loss, and the statistics of every batch norm, are those of the whole batch."""
    small = {"img_size": 16, "width": 4, "levels": 1}
    told = [f"model={{name: {model}, options: {small}}}", "train.steps=3", "train.precision=fp64", "train.batch_size=4"]
    recipe = load("discs_unet", [*told, "optim.warmup=0", "watch.log_every=1", "train.compile=false"])
    train(recipe, tmp_path / "one", device="cpu", quiet=True)
    together(2, run_quietly, recipe, tmp_path / "two")
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")
    logs = [RunFolder.read_log(tmp_path / name) for name in ("one", "two")]
    losses = [[line["loss"] for line in log if "loss" in line] for log in logs]
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)


@pytest.mark.slow
def test_first_gradients_and_shared_evaluation_agree(tmp_path: Path) -> None:
    recipe = tiny_recipe(*MIXED, *PLAIN)
    (tmp_path / "two").mkdir()
    first_gradients(recipe, tmp_path, "one.pt")
    together(2, first_gradients, recipe, tmp_path / "two", "two.pt")
    one, two = (torch.load(path, weights_only=True) for path in (tmp_path / "one.pt", tmp_path / "two" / "two.pt"))
    assert_close(one["gradients"], two["gradients"], 1e-5)
    assert one["scores"] == pytest.approx(two["scores"], rel=1e-6)


def assert_close(expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor], tolerance: float) -> None:
    """Gradients agree: the whole relative to its norm, and every entry absolutely."""
    assert expected.keys() == found.keys()
    difference = torch.cat([(found[name] - tensor).flatten() for name, tensor in expected.items()])
    whole = torch.cat([tensor.flatten() for tensor in expected.values()])
    assert difference.norm() < tolerance * whole.norm()
    assert difference.abs().max() < tolerance


def test_accumulation_gives_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    found = {}
    for parts in (1, 3):
        folder = tmp_path / str(parts)
        folder.mkdir()
        first_gradients(tiny_recipe(*MIXED, *PLAIN, f"train.accumulate={parts}"), folder, "out.pt")
        found[parts] = torch.load(folder / "out.pt", weights_only=True)["gradients"]
    assert_close(found[1], found[3], 1e-5)


@pytest.mark.slow
def test_two_processes_resume_what_one_began(tmp_path: Path) -> None:
    recipe = tiny_recipe("train.precision=fp64", *PLAIN)
    train(recipe, tmp_path / "one", device="cpu", quiet=True)
    with pytest.raises(Exception, match="interrupted"):
        train(recipe, tmp_path / "two", device="cpu", quiet=True, stop_after=5)
    damaged = tmp_path / "two" / "checkpoints" / "step-00000005" / "model-00000.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    together(2, run_quietly, recipe, tmp_path / "two")
    assert checkpoint.steps(tmp_path / "two" / "checkpoints")[0][0] == 12
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in differing(one, two):
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-9)


def test_a_batch_that_does_not_divide_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polarvit.data import DataError
    from polarvit.training.distributed import Place

    alone = Place(0, 1, torch.device("cpu"))
    with pytest.raises(DataError, match="not divisible by 3 processes"):
        Trainer(tiny_recipe(), RunFolder(tmp_path, alone, resume=False), Place(1, 3, torch.device("cpu")))
