"""`polarvit data prepare` and `polarvit data list`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import call, done

from polarvit.cli.data import Kind, guess


def test_a_folder_is_packed_and_listed(photos: Path, tmp_path: Path) -> None:
    line = "12 train, 6 validation; 3 classes; 16 x 16; from folder photos"
    target = tmp_path / "data" / "photos"
    assert line in done("data", "prepare", photos, target, "--image-size", 16, "--validation", 0.33)
    assert line in done("data", "list", tmp_path / "data")
    assert "checksums match" in done("data", "list", target, "--verify")


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
