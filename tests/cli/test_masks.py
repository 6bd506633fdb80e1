"""Segmentation on the command line: from a folder of images and masks to overlays."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import masked_images
import numpy as np
import pytest
import torch
from commands import call, done, flat
from PIL import Image

from polarvit import create_model
from polarvit.cli.masks import overlay_files
from polarvit.cli.trained import find_model
from polarvit.data import PackedDataset
from polarvit.data.sources.mask_sets import MASK_SETS, MaskSet
from polarvit.experiments import mask_card
from polarvit.models import weights
from polarvit.training.recipe import load

TOY = [
    *("--set", "model.options={img_size: 16, width: 2, levels: 1}", "--set", "train.cuda_graph=false"),
    *("--set", "train.steps=4", "--set", "train.batch_size=4", "--set", "watch.eval_every=2", "--device", "cpu"),
]


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images and masks of 24 x 32, prepared and trained on by the commands themselves."""
    root = tmp_path_factory.mktemp("scans")
    masked_images.folder(root / "scans", 20)
    line = done(
        "data", "prepare", root / "scans", root / "data", "--image-size", 16, "--validation", 0.2, "--test", 0.2
    )
    assert "12 train, 4 validation, 4 test; 2 classes; 16 x 16; from folder scans" in line
    output = done("train", "kvasir_seg_unet", "--data", root / "data", "--out", root / "run", *TOY)
    assert "Dice" in output
    return root


def test_eval_prints_the_scores_and_writes_overlays(scans: Path, tmp_path: Path) -> None:
    output = done("eval", scans / "run", "--overlays", tmp_path / "masks", "--device", "cpu")
    for heading in ("Dice per image", "IoU", "HD95"):
        assert heading in output
    pictures = sorted((tmp_path / "masks").glob("*.png"))
    names = json.loads((scans / "data" / "meta.json").read_text())["splits"]["test"]["names"]
    assert [path.stem for path in pictures] == sorted(Path(name).name for name in names)
    assert Image.open(pictures[0]).size == (260, 128)  # 16 px, eight times as large
    metrics = json.loads((scans / "run" / "metrics.json").read_text())["test_scores"]
    found = json.loads(done("eval", scans / "run", "--json", "--device", "cpu"))
    assert found["split"] == "test"
    for name in ("dice", "image_dice", "iou", "hausdorff95", "loss"):
        assert found[name] == pytest.approx(metrics[name], rel=1e-4)
    three = json.loads(done("eval", scans / "run", "--json", "--device", "cpu", "--batch", 3))
    kept = json.loads(done("eval", scans / "run", "--json", "--device", "cpu", "--batch", 3, "--keep-last"))
    assert three["dice"] != kept["dice"]
    assert three["image_dice"] == kept["image_dice"] == pytest.approx(found["image_dice"])


def test_weights_without_their_run_are_measured_in_batches_of_eight(scans: Path, tmp_path: Path) -> None:
    weights = shutil.copytree(scans / "run" / "model", tmp_path / "weights")
    words = ("--data", scans / "data", "--split", "train", "--json", "--device", "cpu")
    alone, eight, twelve = (
        json.loads(done("eval", weights, *words, *more))["dice"] for more in ((), ("--batch", 8), ("--batch", 12))
    )
    assert alone == eight != twelve


def test_predictions_do_not_overwrite_the_images_they_are_of(scans: Path, tmp_path: Path) -> None:
    image, truth = tmp_path / "a.png", tmp_path / "a_mask.png"
    for path in (image, truth):
        Image.new("RGB", (8, 8), "red").save(path)
    before = truth.read_bytes()
    result = call("predict", tmp_path, "--weights", scans / "run", "--out", tmp_path, "--device", "cpu")
    assert result.exit_code == 2
    assert "is one of the images and would be over" in flat(result.stderr).replace("│", "")
    assert truth.read_bytes() == before
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a_mask.png").symlink_to(victim)
    done("predict", image, "--weights", scans / "run", "--out", tmp_path / "out", "--device", "cpu")
    assert victim.read_text() == "mine"
    assert Image.open(tmp_path / "out" / "a_mask.png").size == (8, 8)


def test_predictions_of_two_images_of_one_name_are_refused(scans: Path, tmp_path: Path) -> None:
    image = scans / "scans" / "images" / "00.png"
    other = Path(shutil.copy(image, tmp_path / "00.png"))
    result = call("predict", image, other, "--weights", scans / "run", "--out", tmp_path / "out", "--device", "cpu")
    assert result.exit_code == 2
    assert "two images are called 00" in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


def test_predict_writes_masks_in_the_size_of_the_image(scans: Path, tmp_path: Path) -> None:
    image = scans / "scans" / "images" / "00.png"
    output = done("predict", image, "--weights", scans / "run", "--out", tmp_path, "--device", "cpu")
    assert "% foreground" in output
    for name in ("00_mask.png", "00_overlay.png"):
        assert Image.open(tmp_path / name).size == (32, 24)
    assert set(np.unique(np.asarray(Image.open(tmp_path / "00_mask.png")))) <= {0, 255}
    words = ("--weights", scans / "run" / "model", "--out", tmp_path, "--device", "cpu", "--json")
    (answer,) = json.loads(done("predict", image, *words))
    assert 0 <= answer["foreground"] <= 1


def test_predict_takes_a_folder_of_images(scans: Path, tmp_path: Path) -> None:
    folder = scans / "scans" / "images"
    words = ("--weights", scans / "run", "--out", tmp_path / "out", "--device", "cpu", "--json")
    answers = json.loads(done("predict", folder, *words))
    assert [answer["image"] for answer in answers] == [str(path) for path in sorted(folder.iterdir())]
    (tmp_path / "empty").mkdir()
    result = call("predict", tmp_path / "empty", *words)
    assert result.exit_code == 2
    assert "no image in this folder" in " ".join(result.stderr.replace("│", " ").split())


def test_eval_tells_of_every_image_with_masks(scans: Path, tmp_path: Path) -> None:
    lines = tmp_path / "scores.csv"
    told = ("eval", scans / "run", "--device", "cpu", "--by-image", lines)
    found = json.loads(done(*told, "--twins", 0.1, "--json"))
    assert found["with_twin"]["count"] == found["count"] == 4
    assert "without_twin" not in found
    assert found["with_twin"]["dice"] == found["dice"]
    rows = list(csv.DictReader(lines.open()))
    assert [row["name"] for row in rows] == json.loads((scans / "data" / "meta.json").read_text())["splits"]["test"][
        "names"
    ]
    for key, name in (("dice", "image_dice"), ("iou", "iou"), ("hd95", "hausdorff95")):
        assert sum(float(row[key]) for row in rows) / 4 == pytest.approx(found[name], rel=1e-5)
    truth = PackedDataset.open(scans / "data", "test").masks
    assert [float(row["true"]) for row in rows] == pytest.approx([(mask > 0).mean() for mask in truth], rel=1e-5)
    assert "twin" in rows[0]
    done(*told)
    assert "twin" not in lines.read_text()


def test_overlays_are_called_like_their_images(tmp_path: Path) -> None:
    names = ["Test/B/1", "Test/A/1", "Test/A/2"]
    part = {"count": 3, "names": names, "files": {}}
    meta = {"splits": {"test": part}, "image_size": [4, 4], "classes": ["a", "b"], "source": "x"}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    found = overlay_files(Path("out"), str(tmp_path), "test", 3)
    assert found == [Path("out/B/1.png"), Path("out/A/1.png"), Path("out/A/2.png")]
    assert overlay_files(Path("out"), "discs", "test", 2) == [Path("out/00000.png"), Path("out/00001.png")]


@pytest.mark.parametrize("name", ["../../evil", "Test/../../evil", "x/../../../evil"])
def test_overlays_stay_in_their_folder_whatever_the_data_calls_its_images(
    scans: Path, tmp_path: Path, name: str
) -> None:
    data = shutil.copytree(scans / "data", tmp_path / "data")
    meta = json.loads((data / "meta.json").read_text())
    meta["splits"]["test"]["names"][0] = name
    (data / "meta.json").write_text(json.dumps(meta))
    out = tmp_path / "deep" / "out"
    result = call("eval", scans / "run", "--data", data, "--split", "test", "--overlays", out, "--device", "cpu")
    assert result.exit_code == 1
    assert f"'/{name}' leads out of" in flat(result.stderr)
    assert not list(tmp_path.rglob("evil*"))
    meta["splits"]["test"]["names"][0] = "/etc/passwd"
    (data / "meta.json").write_text(json.dumps(meta))
    assert out / "etc" / "passwd.png" in overlay_files(out, str(data), "test", 4)


def test_images_are_padded_as_in_training_where_the_data_is_gone(scans: Path, tmp_path: Path) -> None:
    shares = ("--image-size", 16, "--validation", 0.2, "--test", 0.2, "--padding", "minimum")
    done("data", "prepare", scans / "scans", tmp_path / "data", *shares)
    done("train", "kvasir_seg_unet", "--data", tmp_path / "data", "--out", tmp_path / "run", *TOY)
    shutil.rmtree(tmp_path / "data")
    weights = shutil.copytree(tmp_path / "run" / "model", tmp_path / "weights")
    for name in (tmp_path / "run", weights):
        assert find_model(str(name)).model.default_cfg["padding"] == "minimum"
    shutil.rmtree(tmp_path / "run" / "model")  # as if it were still going
    assert find_model(str(tmp_path / "run")).model.default_cfg["padding"] == "minimum"
    assert find_model(str(scans / "run")).model.default_cfg["padding"] == "zeros"


def test_a_split_that_is_missing_comes_with_a_way_to_have_it(scans: Path, tmp_path: Path) -> None:
    done("data", "prepare", scans / "scans", tmp_path / "data", "--image-size", 16)
    result = call("train", "kvasir_seg_unet", "--data", tmp_path / "data", "--out", tmp_path / "run", *TOY)
    assert result.exit_code == 1
    assert "it has train; to hold images out: polarvit data prepare" in result.stderr
    assert "--validation 0.1 --test 0.1" in result.stderr


def test_an_export_tells_how_long_a_net_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_model("unet_polar", img_size=16, width=2, levels=1).save_pretrained(tmp_path / "weights")
    monkeypatch.setattr("polarvit.models.export.export_onnx", lambda model, path, batch: path.write_bytes(b"x"))
    result = call("export", tmp_path / "weights", "--out", tmp_path / "model.onnx")
    assert result.exit_code == 0
    assert "this takes minutes" in result.stderr
    assert "block" not in result.stderr


def test_options_for_masks_are_refused_elsewhere(run: Path, photos: Path, tmp_path: Path) -> None:
    assert "segmentation" in call("eval", run, "--overlays", tmp_path).stderr
    assert "with masks only" in call("data", "prepare", photos, tmp_path / "p", "--test", 0.2).stderr


def test_orphans_are_told_in_one_line(tmp_path: Path) -> None:
    root = masked_images.folder(tmp_path / "scans", 3)
    (root / "masks" / "01.png").unlink()
    result = call("data", "prepare", root, tmp_path / "out")
    assert result.exit_code == 1
    assert "1 image (01.png) without a mask" in result.stderr
    assert not (tmp_path / "out").exists()


def test_packaged_weights_do_what_their_card_says(scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = done("models", "package", scans / "run", "--tag", "scans", "--device", "cpu", "--into", tmp_path)
    card = (tmp_path / "unet.scans" / "README.md").read_text()
    measured = json.loads((tmp_path / "unet.scans" / "evaluation.json").read_text())
    assert said.startswith(
        f"unet.scans: Dice {measured['dice']:.3f}, {measured['image_dice']:.3f} per image, on 4 images"
    )
    assert f"| **{measured['dice']:.3f}** |" in card
    assert "**Data.** `folder scans`, images with masks." in card
    assert "the best in validation" in card
    assert "Not a medical device" not in card
    assert str(scans) not in card + json.dumps(measured)
    monkeypatch.setattr(weights, "PACKAGED", tmp_path)
    words = ("--data", scans / "data", "--split", "test", "--json", "--drop-last", "--device", "cpu")
    found = json.loads(
        done("eval", "unet.scans", *words, "--batch", load(scans / "run" / "recipe.yaml").watch.eval_batch)
    )
    assert found["dice"] == pytest.approx(measured["dice"])
    assert found["image_dice"] == pytest.approx(measured["image_dice"])
    assert found["hausdorff95"] == pytest.approx(measured["hausdorff95"])


def test_a_card_is_refused_for_other_images_and_without_a_test_split(scans: Path, tmp_path: Path) -> None:
    run = shutil.copytree(scans / "run", tmp_path / "run")
    metrics = json.loads((run / "metrics.json").read_text())
    words = ("models", "package", run, "--tag", "x", "--device", "cpu", "--into", tmp_path / "home")
    metrics["test_scores"]["dice"] += 0.02
    (run / "metrics.json").write_text(json.dumps(metrics))
    assert "are these its images?" in flat(call(*words).stderr)
    del metrics["test_scores"]
    (run / "metrics.json").write_text(json.dumps(metrics))
    assert "measured no test split" in flat(call(*words).stderr)


def test_a_card_says_which_images_and_which_step(scans: Path) -> None:
    model, recipe, found = mask_card.measure(scans / "run", None, torch.device("cpu"))
    assert (recipe.watch.eval_batch, recipe.watch.drop_last, recipe.watch.keep_best) == (8, True, True)

    def text(count: int = 96, **watch: object) -> str:
        changed = replace(recipe, watch=replace(recipe.watch, **watch))  # type: ignore[arg-type]
        return mask_card.card(model, "x", changed, {**found, "count": count})

    assert "left out" not in text()
    assert "--drop-last" not in text()
    assert "; the last 4 left out |" in text(100)
    assert "polarvit eval unet.x --data ... --drop-last`" in text(100)
    assert "left out" not in text(100, drop_last=False)
    assert "--data ... --batch 6 --drop-last`" in text(100, eval_batch=6)
    assert ", the best in validation" in text()
    assert ", not the best in validation" in text(keep_best=False)


def test_a_card_is_measured_in_strict_float32_whatever_the_run_was(scans: Path, tmp_path: Path) -> None:
    run = shutil.copytree(scans / "run", tmp_path / "run")
    recipe = (run / "recipe.yaml").read_text()
    assert "precision: tf32" in recipe
    (run / "recipe.yaml").write_text(recipe.replace("precision: tf32", "precision: bf16"))
    one, other = (mask_card.measure(folder, None, torch.device("cpu"))[2] for folder in (scans / "run", run))
    assert one["dice"] == other["dice"]


@pytest.mark.parametrize("published", MASK_SETS.values(), ids=MASK_SETS)
def test_cards_of_medical_weights_say_that_they_are_for_research(scans: Path, published: MaskSet) -> None:
    model, recipe, found = mask_card.measure(scans / "run", None, torch.device("cpu"))
    text = mask_card.card(model, "x", recipe, {**found, "source": published.title})
    assert mask_card.ABOUT.get(published.title, published.title) in text
    assert "- **For research. Not a medical device" in text


def test_texts_about_sets_are_about_those_that_prepared_data_names() -> None:
    assert set(mask_card.ABOUT) <= {published.title for published in MASK_SETS.values()}
