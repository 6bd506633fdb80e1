"""Segmentation on the command line: from a folder of images and masks to overlays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import masked_images
import numpy as np
import pytest
from commands import call, done
from PIL import Image

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
    assert [path.name for path in pictures] == [f"{i:05d}.png" for i in range(4)]
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
