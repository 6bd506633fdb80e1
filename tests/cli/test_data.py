"""`polarvit data prepare`, `polarvit data list`, `polarvit data twins`, and what `polarvit eval` makes of twins."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import call, done, flat
from PIL import Image, ImageOps

from polarvit.cli.by_image import twins_of
from polarvit.cli.data import Kind, guess
from polarvit.data import PackedDataset
from polarvit.data.splits import stratified_split
from polarvit.training.recipe import Data, load


def test_a_folder_is_packed_and_listed(photos: Path, tmp_path: Path) -> None:
    line = "12 train, 6 validation; 3 classes; 16 x 16; from folder photos"
    target = tmp_path / "data" / "photos"
    assert line in done("data", "prepare", photos, target, "--image-size", 16, "--validation", 0.33)
    assert line in done("data", "list", tmp_path / "data")
    assert "checksums match" in done("data", "list", target, "--verify")


def test_a_set_without_anything_held_out_says_so(photos: Path, tmp_path: Path) -> None:
    assert "nothing is held out" in call("data", "prepare", photos, tmp_path / "p", "--image-size", 16).stderr
    kept = call("data", "prepare", photos, tmp_path / "q", "--image-size", 16, "--validation", 0.33)
    assert "nothing is held out" not in kept.stderr


def test_a_changed_file_is_found(photos: Path, tmp_path: Path) -> None:
    done("data", "prepare", photos, tmp_path / "p", "--image-size", 16)
    path = tmp_path / "p" / "train-images.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    result = call("data", "list", tmp_path / "p", "--verify")
    assert result.exit_code == 1
    assert "train-images.npy: was modified" in result.stderr


def test_digits_are_packed(tmp_path: Path) -> None:
    assert "1,438 train, 359 test; 10 classes" in done("data", "prepare", "digits", tmp_path / "digits")


def test_images_of_different_sizes_need_a_size(photos: Path, tmp_path: Path) -> None:
    result = call("data", "prepare", photos, tmp_path / "p")
    assert result.exit_code == 1
    assert "give an image size" in result.stderr
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "red" / "0.png").write_bytes(b"nothing"), "0.png: cannot be read as an image"),
        (lambda root: (root / "empty").mkdir(), "class 'empty' has no images"),
        (lambda root: shutil.rmtree(root), "no such folder"),
    ],
    ids=["corrupt", "empty class", "missing"],
)
def test_what_is_wrong_with_the_images_is_named(photos: Path, tmp_path: Path, spoil, message: str) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    spoil(tmp_path / "photos")
    result = call("data", "prepare", tmp_path / "photos", tmp_path / "p", "--image-size", 16)
    assert result.exit_code == 1
    assert message in result.stderr


def test_an_existing_folder_is_not_overwritten(photos: Path, tmp_path: Path) -> None:
    result = call("data", "prepare", photos, tmp_path)
    assert result.exit_code == 1
    assert "already exists" in result.stderr


def test_hub_options_are_for_the_hub_only(photos: Path, tmp_path: Path) -> None:
    result = call("data", "prepare", photos, tmp_path / "p", "--image-column", "img")
    assert result.exit_code == 1
    assert "Hugging Face" in result.stderr


def test_a_folder_without_prepared_data_says_how_to_make_some(tmp_path: Path) -> None:
    assert "polarvit data prepare" in done("data", "list", tmp_path)


def test_a_damaged_description_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(json.dumps({"splits": []}))
    result = call("data", "list", tmp_path)
    assert result.exit_code == 1
    assert "meta.json: not written by" in result.stderr


def test_sources_are_told_by_their_looks(tmp_path: Path, photos: Path) -> None:
    for name, file in (("ten", "batches.meta"), ("hundred", "meta"), ("hub", "dataset_dict.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    assert guess(str(tmp_path / "ten")) == guess(str(tmp_path / "hundred")) == Kind.CIFAR
    assert guess(str(tmp_path / "hub")) == Kind.HUB
    assert guess(str(photos)) == Kind.FOLDER
    assert guess("digits") == Kind.DIGITS
    assert guess("uoft-cs/cifar10") == Kind.HUB
    assert guess("./nowhere/photos") == Kind.FOLDER


@pytest.fixture
def doubles(tmp_path: Path) -> Path:
    """A prepared folder: of six test images two were taken from the training split, one of them mirrored."""
    for split, count in (("train", 9), ("test", 6)):
        for index in range(count):
            rng = np.random.default_rng([index, split == "test"])
            pixels = rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)
            image = Image.fromarray(pixels).resize((32, 32), Image.Resampling.BICUBIC)
            path = tmp_path / "photos" / split / "ab"[index % 2] / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
    photos = tmp_path / "photos"
    shutil.copy(photos / "train" / "a" / "4.png", photos / "test" / "a" / "0.png")
    ImageOps.mirror(Image.open(photos / "train" / "b" / "7.png")).save(photos / "test" / "b" / "5.png")
    done("data", "prepare", photos, tmp_path / "data")
    return tmp_path / "data"


def test_twins_between_splits_are_counted_listed_and_drawn(doubles: Path, tmp_path: Path) -> None:
    found = json.loads(done("data", "twins", doubles, "--json"))
    assert (found["images"], found["near"], found["above"]) == (6, 2, 0.98)
    assert sorted(pair[:2] for pair in found["pairs"]) == [[0, 2], [5, 8]]
    text = done("data", "twins", doubles, "--picture", tmp_path / "new" / "twins.png")
    assert "images of test (6) that resemble one of train (9)" in flat(text)
    assert "a, image 0" in text
    assert Image.open(tmp_path / "new" / "twins.png").size == (4 * 132 - 4, 128)
    other = json.loads(done("data", "twins", doubles, "--split", "train", "--among", "test", "--json"))
    assert sorted(pair[:2] for pair in other["pairs"]) == [[2, 0], [8, 5]]


def test_twins_of_a_split_in_itself_are_refused(doubles: Path) -> None:
    result = call("data", "twins", doubles, "--split", "train")
    assert result.exit_code == 1
    assert "--split and --among are both 'train'" in flat(result.stderr)
    odd = call("data", "twins", doubles, "--picture", "twins.txt")
    assert odd.exit_code == 2
    assert "does not end in .png" in flat(odd.stderr)
    assert "has no split 'validation'" in flat(call("data", "twins", doubles, "--among", "validation").stderr)


def test_eval_scores_twins_apart_and_tells_of_every_image(doubles: Path, tmp_path: Path) -> None:
    settings = ("--set", "model.options={dim: 16, depth: 1, heads: 2, mlp_dim: 16, img_size: 32}", "--device", "cpu")
    steps = ("--set", "train.steps=2", "--set", "train.batch_size=4", "--set", "data.validation=test")
    done("train", "digits", "--data", doubles, "--out", tmp_path / "run", *steps, *settings)
    lines = tmp_path / "new" / "scores.csv"
    found = json.loads(done("eval", tmp_path / "run", "--twins", 0.98, "--by-image", lines, "--json"))
    assert [found[key]["count"] for key in ("with_twin", "without_twin")] == [2, 4]
    for key in ("top1", "loss", "radius"):
        mean = (2 * found["with_twin"][key] + 4 * found["without_twin"][key]) / 6
        assert found[key] == pytest.approx(mean, rel=1e-6)
    rows = list(csv.DictReader(lines.open()))
    assert [row["image"] for row in rows] == list("012345")
    assert [row["class"] for row in rows] == ["a", "a", "a", "b", "b", "b"]
    assert sum(float(row["loss"]) for row in rows) / 6 == pytest.approx(found["loss"], rel=1e-5)
    assert 100 * sum(row["class"] == row["answer"] for row in rows) / 6 == pytest.approx(found["top1"])
    assert all(row["right"] == str(int(row["class"] == row["answer"])) for row in rows)
    assert [row["twin"] for row in rows if float(row["correlation"]) > 0.98] == ["2", "8"]
    text = done("eval", tmp_path / "run", "--twins", 0.98)
    assert "with twin" in text
    assert "without twin" in text
    assert found["twins_from"] == 0.98
    result = call("eval", tmp_path / "run", "--twins", 0.98, "--split", "train")
    assert result.exit_code == 1
    assert "'train' is what was trained on" in flat(result.stderr)
    streamed = call("eval", tmp_path / "run", "--data", doubles.parent / "photos", "--twins", 0.98)
    assert "--twins needs a folder of `polarvit data prepare`" in flat(streamed.stderr)
    done("eval", tmp_path / "run", "--data", doubles.parent / "photos", "--by-image", lines)
    named = [Path(row["name"]) for row in csv.DictReader(lines.open())]
    assert [path.parent.name for path in named] == ["a", "a", "a", "b", "b", "b"]
    assert all(path.is_file() for path in named)


def test_twins_among_images_that_a_run_held_out_do_not_count(doubles: Path) -> None:
    recipe = replace(load("digits"), data=Data(str(doubles), holdout=0.5))
    kept, _ = stratified_split(PackedDataset.open(doubles).labels, 0.5, 0)
    found = twins_of(recipe, "test")
    assert set(found.place.tolist()) <= set(kept.tolist())
    assert found.near().tolist() == [place in kept for place in (2, -1, -1, -1, -1, 8)]
