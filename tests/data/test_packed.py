"""Packing: lossless, atomic, checked."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from polarvit.data import (
    DataError,
    DigitsSource,
    FolderSource,
    PackedDataset,
    SequentialPlan,
    StreamingDataset,
    prepare,
)
from polarvit.data.augment.layout import EvaluationRequest
from polarvit.data.splits import stratified_split


@pytest.fixture(scope="module")
def digits() -> DigitsSource:
    return DigitsSource()


@pytest.fixture(scope="module")
def packed(digits: DigitsSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(digits, tmp_path_factory.mktemp("data") / "digits", validation=0.1, seed=7)


def folder_of(root: Path, sizes: list[tuple[int, int]]) -> FolderSource:
    for i, size in enumerate(sizes):
        (root / "a").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(
            root / "a" / f"{i}.png"
        )
    return FolderSource(root)


def test_packed_images_and_labels_are_those_of_the_source(packed: Path, digits: DigitsSource) -> None:
    test = PackedDataset.open(packed, "test")
    assert test.classes == digits.classes
    assert test.images.dtype == np.uint8
    assert isinstance(test.images, np.memmap)
    assert test.labels.dtype == np.int64
    np.testing.assert_array_equal(test.labels, digits.labels("test"))
    for index in (0, 100, len(test) - 1):
        np.testing.assert_array_equal(test.images[index], np.asarray(digits.image("test", index)))
    test.verify()


def test_the_validation_split_is_recorded_and_can_be_made_again(packed: Path, digits: DigitsSource) -> None:
    record = json.loads((packed / "meta.json").read_text())["validation"]
    rest, held = stratified_split(digits.labels("train"), 0.1, 7)
    assert record == {"fraction": 0.1, "seed": 7, "train": rest.tolist(), "validation": held.tolist()}
    validation = PackedDataset.open(packed, "validation")
    np.testing.assert_array_equal(validation.labels, digits.labels("train")[held])
    np.testing.assert_array_equal(validation.images[3], np.asarray(digits.image("train", int(held[3]))))
    assert len(PackedDataset.open(packed, "train")) == len(rest)


def test_a_split_keeps_the_share_of_every_class_and_follows_its_seed() -> None:
    labels = np.repeat(np.arange(5), [10, 20, 30, 40, 2])
    rest, held = stratified_split(labels, 0.25, 0)
    assert np.bincount(labels[held]).tolist() == [2, 5, 8, 10, 1]
    assert sorted([*rest, *held]) == list(range(102))
    assert stratified_split(labels, 0.25, 1)[1].tolist() != held.tolist()


def test_a_class_that_cannot_be_split_is_named(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "raw", [(8, 8)])
    with pytest.raises(DataError, match=f"class {source.classes[0]} has one image only"):
        prepare(source, tmp_path / "out", validation=0.2)


def test_the_checksum_tells_data_apart(packed: Path, digits: DigitsSource, tmp_path: Path) -> None:
    again = prepare(digits, tmp_path / "again", validation=0.1, seed=7)
    other = prepare(digits, tmp_path / "other", validation=0.1, seed=8)
    first = PackedDataset.open(packed, "train").checksum
    assert PackedDataset.open(again, "train").checksum == first
    assert PackedDataset.open(other, "train").checksum != first


def test_images_are_resized_by_the_shorter_side_and_cut_to_the_centre(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "raw", [(40, 20), (20, 30), (16, 16)])
    packed = PackedDataset.open(prepare(source, tmp_path / "out", image_size=16))
    assert packed.images.shape == (3, 16, 16, 3)
    expected = source.image("train", 0).resize((32, 16), Image.Resampling.BICUBIC).crop((8, 0, 24, 16))
    np.testing.assert_array_equal(packed.images[0], np.asarray(expected))
    np.testing.assert_array_equal(packed.images[2], np.asarray(source.image("train", 2)))


def test_odd_margins_are_cut_as_in_evaluation(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "raw", [(43, 32), (32, 43), (35, 32)])
    packed = PackedDataset.open(prepare(source, tmp_path / "out", image_size=32))
    stream = StreamingDataset(source, "train", 32, workers=0)
    images = stream.fetch(EvaluationRequest(SequentialPlan(3, 3), 0, 1), 0, torch.device("cpu"))
    np.testing.assert_array_equal(packed.images, images[..., :3].numpy())
    np.testing.assert_array_equal(packed.images[0], np.asarray(source.image("train", 0).crop((6, 0, 38, 32))))


def test_images_of_different_sizes_need_a_size(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "raw", [(16, 16), (20, 30)])
    with pytest.raises(DataError, match=r"1\.png: is 30 x 20 but the first image is 16 x 16; give an image size"):
        prepare(source, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


def test_a_failed_preparation_leaves_nothing_behind(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "raw", [(16, 16), (16, 16)])
    (tmp_path / "raw" / "a" / "1.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"a.1\.png: cannot be read as an image"):
        prepare(source, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


def test_progress_counts_to_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    prepare(folder_of(tmp_path / "raw", [(8, 8)] * 3), tmp_path / "out", progress=lambda *x: seen.append(x))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_an_existing_folder_is_not_overwritten(packed: Path, digits: DigitsSource) -> None:
    with pytest.raises(DataError, match="digits: already exists"):
        prepare(digits, packed)


@pytest.mark.parametrize("name", ["test-images.npy", "test-labels.npy"])
def test_a_truncated_file_is_named(packed: Path, tmp_path: Path, name: str) -> None:
    copy = _copy(packed, tmp_path)
    (copy / name).write_bytes((copy / name).read_bytes()[:-7])
    with pytest.raises(DataError, match=rf"{name}: has \d+ bytes instead of \d+"):
        PackedDataset.open(copy, "test")


def test_a_modified_file_is_named(packed: Path, tmp_path: Path) -> None:
    copy = _copy(packed, tmp_path)
    content = bytearray((copy / "test-images.npy").read_bytes())
    content[5000] ^= 1
    (copy / "test-images.npy").write_bytes(content)
    dataset = PackedDataset.open(copy, "test")
    with pytest.raises(DataError, match=r"test-images\.npy: was modified"):
        dataset.verify()


def test_a_missing_or_damaged_folder_is_named(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"meta\.json: no such file; pack the data first"):
        PackedDataset.open(tmp_path)
    with pytest.raises(DataError, match="has no split 'dev'; it has train, validation, test"):
        PackedDataset.open(packed, "dev")
    copy = _copy(packed, tmp_path)
    (copy / "test-labels.npy").unlink()
    with pytest.raises(DataError, match=r"test-labels\.npy: is missing"):
        PackedDataset.open(copy, "test")
    (copy / "meta.json").write_text("{")
    with pytest.raises(DataError, match=r"meta\.json: is damaged"):
        PackedDataset.open(copy, "test")


def test_a_resident_copy_gathers_the_same_pixels(packed: Path) -> None:
    dataset = PackedDataset.open(packed, "test")
    resident = dataset.to("cpu")
    rows = torch.tensor([5, 0, 5])
    np.testing.assert_array_equal(resident.gather(rows)[..., :3].numpy(), dataset.images[rows.numpy()])
    assert resident.classes == dataset.classes


def _copy(packed: Path, target: Path) -> Path:
    copy = target / "copy"
    copy.mkdir()
    for file in packed.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy
