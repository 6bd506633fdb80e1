"""The table of segmentation and what its weights are used for, at toy size."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from polarvit.data import Augmentation, MaskAugmenter, SequentialPlan
from polarvit.data.discs import discs
from polarvit.data.square import padding_of
from polarvit.experiments import EXPERIMENTS, Settings
from polarvit.experiments.catalogue.segmentation import SETS
from polarvit.experiments.run_table import listed
from polarvit.experiments.runs import Result, attempt, resolved
from polarvit.experiments.segmentation import corruptions, pictures, robustness, rows, table
from polarvit.training import SettingsError
from polarvit.training.tally import Losses

QUICK = ("euclidean_kvasir", "polar_kvasir")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("segmentation")
    return Settings(root / "results", quick=True, steps=2, runs=root / "runs", device="cpu", only=QUICK)


@pytest.fixture(scope="module")
def done(settings: Settings) -> Path:
    """The table at toy size."""
    assert table.run(settings) == []
    return settings.out


def test_the_table_records_ours_beside_the_papers(
    done: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads((done / "segmentation-quick.json").read_text())
    found = {row["name"]: row for row in record["rows"]}
    assert len(found) == 25
    for name in QUICK:
        assert found[name]["paper"]["mean"] == 0.86
        assert found[name]["seeds"] == 1
        assert 0 < found[name]["mean"] < 1
        assert found[name]["runs"][0]["hausdorff95"] >= 0
    assert found["polar_busi"]["seeds"] == 0
    assert record["summary"]["polar_kvasir"]["value"].endswith("(1 seed of 2 steps)")
    capsys.readouterr()
    table.run(settings)  # nothing is left to train
    printed = capsys.readouterr().out
    assert "HD95, px" in printed
    assert "2 steps of 8, 1 seed: test Dice" in printed
    assert f"{found['polar_kvasir']['runs'][0]['orders_mean']:.3f} ± " in printed
    assert f"{found['polar_kvasir']['runs'][0]['image_dice']:.3f}" in printed


def test_every_row_resolves_to_the_papers_recipe() -> None:
    steps = {"isic2016": 5100, "isic2018": 14600, "kvasir": 5100, "sanet": 8200, "busi": 3900}
    for row in rows.ROWS:
        recipe, key = resolved(row, 1, Settings()), row.name.rpartition("_")[2]
        assert recipe.task == "segmentation"
        net = row.name.rpartition("_")[0]
        assert recipe.model.name == rows.NETS[net.removesuffix("_clipped")]
        assert recipe.train.steps == steps[key]
        assert (recipe.train.batch_size, recipe.optim.weight_decay, recipe.optim.final_lr) == (8, 0.05, 1e-6)
        assert (recipe.optim.lr, recipe.optim.warmup) == ((3e-4, 390) if key == "busi" else (1e-3, 0))
        assert recipe.data.path == f"data/{rows.folder_of(row)}"
        assert recipe.optim.clip == (1 if net == "ambient_clipped" else None)
        assert recipe.train.precision == ("fp32" if recipe.model.name == "unet_lorentz" else "tf32")
        assert recipe.train.compile == (recipe.model.name in ("unet_lorentz", "unet_poincare"))
        assert recipe.train.cuda_graph


def test_data_names_the_folder_of_the_sets_and_what_is_not_there_is_not_run(tmp_path: Path) -> None:
    found, settings = rows.at(Settings(data=str(tmp_path)))
    assert settings.data is None
    assert resolved(found[2], 0, settings).data.path == str(tmp_path / "kvasir-seg")
    with pytest.raises(SettingsError, match="no segmentation set is prepared"):
        table.run(Settings(tmp_path / "out", data=str(tmp_path), runs=tmp_path / "runs"))


@pytest.mark.parametrize("seeds", [1, 3])
def test_where_no_set_is_prepared_the_records_are_shown_and_nothing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seeds: int
) -> None:
    shutil.copytree(Path(__file__).parents[2] / "results" / "segmentation", tmp_path / "segmentation")
    monkeypatch.setattr(table, "study", lambda *_, **__: pytest.fail("trains without data"))
    assert table.run(Settings(tmp_path, data=str(tmp_path / "none"), runs=tmp_path / "runs", seeds=seeds)) == []
    printed = " ".join(capsys.readouterr().out.split())
    assert "No set is prepared here: these are records." in printed
    assert "0.842" in printed


def test_rows_that_are_run_without_being_named(tmp_path: Path) -> None:
    quick = [row.name for row in rows.ROWS if rows.usual(row, Settings(tmp_path, quick=True))]
    assert quick == [f"{net}_kvasir" for net in rows.NETS]  # the discs are the same for every set
    (tmp_path / "busi").mkdir()
    (tmp_path / "busi" / "meta.json").write_text("{}")
    found, settings = rows.at(Settings(data=str(tmp_path)))
    assert [row.name for row in found if rows.usual(row, settings)] == [f"{net}_busi" for net in rows.NETS]
    clipped = resolved(next(row for row in found if row.name == "ambient_clipped_busi"), 0, settings)
    assert (clipped.optim.clip, clipped.data.path) == (1, str(tmp_path / "busi"))


def test_a_cell_tells_what_was_reached_before_a_run_diverged_and_which_lost_their_best_weights() -> None:
    def result(seed: int, dice: float, **more: Any) -> Result:
        return Result.read(rows.ROWS[0], seed, {"test_scores": {"dice": dice}, **more})

    lost, early = result(1, 0.7123, diverged="nan", kept_step=40), Result.read(rows.ROWS[0], 2, {"diverged": "nan"})
    assert table.cell([]) == "-"
    assert table.cell([lost]) == "0.712 before it diverged"
    assert table.cell([early]) == "1 diverged"
    assert table.cell([result(0, 0.8), lost, early]) == "0.800, 2 diverged (0.712 before)"
    assert table.cell([result(0, 0.8, best_lost=20)]) == "0.800, 1 best lost"
    assert lost.record() == {"seed": 1, "diverged": "nan", "before": {"dice": 0.7123}}
    told = listed([rows.ROWS[0]], [replace(lost, origin={"date": "", "machine": {}})], Settings())
    assert told[rows.ROWS[0].name]["value"] == "diverged (5,100 steps), before that 0.712"


def test_a_run_that_diverges_is_recorded_with_what_its_best_weights_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = Losses.mean

    def broken(self: Losses, done: int) -> float:
        if done > 2:
            raise FloatingPointError("the loss became nan; try something else")
        return mean(self, done)

    monkeypatch.setattr(Losses, "mean", broken)
    told = Settings(tmp_path, quick=True, steps=4, sets=("watch.eval_every=1", "watch.checkpoint_every=1"))
    attempt(resolved(rows.ROWS[0], 0, told), tmp_path / "run", "cpu", quiet=True)
    found = json.loads((tmp_path / "run" / "diverged.json").read_text())
    assert found["diverged"] == "the loss became nan"
    assert found["kept_step"] in (1, 2)
    assert 0 < found["test_scores"]["dice"] < 1


@pytest.mark.slow
def test_robustness_measures_every_strength(done: Path, settings: Settings) -> None:
    assert robustness.run(settings) == []
    record = json.loads((done / "segmentation-robustness-quick.json").read_text())
    assert len(record["points"]) == 2 * 3 * 6
    assert set(record["summary"]) == {"kvasir_blur", "kvasir_noise", "kvasir_contrast"}
    trained = json.loads((done / "segmentation-quick.json").read_text())["rows"]
    clean = [p for p in record["points"] if p["net"] == "polar" and p["strength"] == 0]
    expected = next(row["mean"] for row in trained if row["name"] == "polar_kvasir")
    assert record["command"] == "polarvit reproduce segmentation-robustness --quick --steps 2"
    assert clean[0]["dice"] == pytest.approx(expected, rel=1e-4)
    assert (done / "segmentation-robustness-quick.png").is_file()


def test_labels_that_would_cover_each_other_move_apart() -> None:
    found = robustness.apart({"a": 0.80, "b": 0.79, "c": 0.5}, 0.1)
    assert found == pytest.approx({"a": 0.845, "b": 0.745, "c": 0.5})
    assert robustness.apart({"a": 1.0, "b": 0.0}, 0.1) == {"a": 1.0, "b": 0.0}
    close = robustness.apart({"a": 0.5, "b": 0.42, "c": 0.45}, 0.1)
    assert [round(close[name] - close["b"], 6) for name in ("c", "a")] == [0.1, 0.2]


def test_runs_of_another_length_leave_the_table_of_the_paper_alone(tmp_path: Path) -> None:
    assert rows.at(Settings(tmp_path))[1].out == tmp_path
    assert rows.at(Settings(tmp_path, steps=200))[1].out == tmp_path / "segmentation" / "200-steps"


def test_pictures_show_the_bottleneck(done: Path, settings: Settings) -> None:
    assert pictures.run(settings) == []
    record = json.loads((done / "segmentation-pictures-quick.json").read_text())
    assert set(record["sets"]["kvasir"]) == {"euclidean", "polar"}
    assert record["sets"]["kvasir"]["polar"]["inside"] > 0
    assert record["command"] == "polarvit reproduce segmentation-pictures --quick --steps 2"
    assert (done / "segmentation-kvasir-quick.png").is_file()


def test_padding_is_told_from_the_image() -> None:
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    images[0, :, 5:] = 0.0  # three rows at the bottom
    images[1, :, :, 6:] = 0.2  # two columns on the right, not black
    images[2, :, 2:4] = 0.0  # a dark stripe that reaches no side
    found = padding_of(images)
    assert found.sum((1, 2)).tolist() == [24, 16, 0]
    assert found[0, 5:].all()
    assert found[1, :, 6:].all()


def test_without_trained_nets_the_others_say_what_to_run(tmp_path: Path) -> None:
    for experiment in (robustness, pictures):
        with pytest.raises(SettingsError, match="run first: polarvit reproduce segmentation"):
            experiment.run(Settings(tmp_path, quick=True, runs=tmp_path, device="cpu"))


def test_corruptions_do_what_they_say() -> None:
    images, seeds = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)), (0, 1)
    flat = torch.full((1, 3, 9, 9), 0.4)
    torch.testing.assert_close(corruptions.blur(flat, 2.0, seeds), flat)
    assert corruptions.blur(images, 2.0, seeds).std() < 0.5 * images.std()
    noisy = corruptions.noise(torch.full((1, 3, 64, 64), 0.5), 0.1, (1,))
    assert noisy.std().item() == pytest.approx(0.1, rel=0.05)
    torch.testing.assert_close(corruptions.contrast(images, 1.0, seeds), images)
    half = corruptions.contrast(images, 0.5, seeds)
    torch.testing.assert_close(half.mean((1, 2, 3)), images.mean((1, 2, 3)))
    torch.testing.assert_close(half.std((1, 2, 3)), 0.5 * images.std((1, 2, 3)))


def test_a_corrupted_batch_is_the_same_each_time_and_keeps_its_masks() -> None:
    data, plan = discs("test", 16, "cpu"), SequentialPlan(32, 4)
    plain = MaskAugmenter(Augmentation(), 2, 16)
    worse = corruptions.CorruptingAugmenter(plain, corruptions.noise, 0.2)
    clean, masks = plain.evaluation_batch(data, plan, 3)
    first, again, other = (worse.evaluation_batch(data, plan, step) for step in (3, 3, 4))
    torch.testing.assert_close(first[0], again[0])
    torch.testing.assert_close(first[1], masks)
    assert not torch.equal(first[0] - clean, other[0] - plain.evaluation_batch(data, plan, 4)[0])
    half = worse.evaluation_batch(data, SequentialPlan(32, 2), 7)  # however many images go through the net together
    torch.testing.assert_close(half[0], first[0][2:])


@pytest.mark.parametrize("name", corruptions.CORRUPTIONS)
def test_padding_is_not_corrupted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays as it was, and has no say in what the rest becomes."""
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    images[:, :, 10:] = 0.0
    monkeypatch.setattr(MaskAugmenter, "evaluation_batch", lambda *_: (images, torch.zeros(2, 16, 16)))
    corrupt, _, strengths = corruptions.CORRUPTIONS[name]
    plain = MaskAugmenter(Augmentation(mean=(0, 0, 0), std=(1, 1, 1)), 2, 16)
    worse = corruptions.CorruptingAugmenter(plain, corrupt, strengths[0])
    found = worse.evaluation_batch(discs("test", 16, "cpu"), SequentialPlan(2, 2), 0)[0]
    assert torch.equal(found[:, :, 10:], images[:, :, 10:])
    assert not torch.equal(found[:, :, :10], images[:, :, :10])
    if name != "noise":  # whose draws go by the size of the image
        torch.testing.assert_close(found[:, :, :10], corrupt(images[:, :, :10], strengths[0], (0, 1)))


def test_the_catalogue_declares_every_corruption() -> None:
    declared = {row.key for row in EXPERIMENTS["segmentation-robustness"].rows}
    assert declared == {f"{key}_{name}" for key in SETS for name in corruptions.CORRUPTIONS}
