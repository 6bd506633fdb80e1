"""Images with masks: pairing, squares, splits, packing and batches."""

from __future__ import annotations

import json
from pathlib import Path

import masked_images
import numpy as np
import pytest
import torch
from masked_images import draw, save_image, save_mask
from PIL import Image

from polarvit.data import Augmentation, BatchPlan, DataError, MaskAugmenter, PackedDataset, SequentialPlan
from polarvit.data.packed_masks import prepare_masks, split_pairs
from polarvit.data.sources.mask_sets import MASK_SETS, NamedMaskSource
from polarvit.data.sources.masks import MaskFolderSource, holds_masks, read_mask, read_pair
from polarvit.data.square import square_image, square_mask, unsquare


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("masks")
    source = MaskFolderSource(masked_images.folder(root / "discs"))
    return prepare_masks(source, root / "packed", image_size=16, validation=0.2, test=0.1, seed=3)


def test_an_image_without_a_mask_and_a_mask_without_an_image_are_named(tmp_path: Path) -> None:
    root = masked_images.folder(tmp_path / "a", 3)
    (root / "masks" / "01.png").unlink()
    with pytest.raises(DataError, match=r"1 image \(01.png\) without a mask"):
        MaskFolderSource(root)
    (root / "images" / "00.png").unlink()
    with pytest.raises(DataError, match=r"1 mask \(00.png\) without an image"):
        MaskFolderSource(root)


def test_several_masks_of_one_image_are_joined(tmp_path: Path) -> None:
    pixels, _ = draw(0, 20, 30)
    left, right = np.zeros((2, 20, 30), dtype=bool)
    left[2:5, 3:6], right[10:12, 20:25] = True, True
    for layout, where in (("one", ""), ("two", "mask")):
        root = tmp_path / layout
        save_image(root / ("images" if where else "") / "benign (1).png", pixels)
        save_mask(root / where / "benign (1)_mask.png", left)
        save_mask(root / where / "benign (1)_mask_1.png", right, white=1)
        (pair,) = MaskFolderSource(root).pairs["train"]
        image, mask = read_pair(pair)
        np.testing.assert_array_equal(mask, left | right)
        np.testing.assert_array_equal(np.asarray(image), pixels)
        assert holds_masks(root)


def test_masks_of_zero_and_one_and_of_zero_and_255_are_the_same(tmp_path: Path) -> None:
    _, mask = draw(0, 12, 12)
    for name, white in (("a", 1), ("b", 255), ("c", 254)):
        save_mask(tmp_path / f"{name}.png", mask, white)
        np.testing.assert_array_equal(read_mask(tmp_path / f"{name}.png"), mask)
    for white in (1, 255, 65535):
        Image.fromarray(mask.astype(np.uint16) * white).save(tmp_path / "deep.png")
        np.testing.assert_array_equal(read_mask(tmp_path / "deep.png"), mask)
    save_mask(tmp_path / "d.jpg", mask)
    assert (read_mask(tmp_path / "d.jpg") == mask).mean() > 0.95
    save_mask(tmp_path / "empty.jpg", np.zeros((8, 8)))
    assert not read_mask(tmp_path / "empty.jpg").any()
    save_mask(tmp_path / "classes.png", mask, 3)
    with pytest.raises(DataError, match="largest value is 3"):
        read_mask(tmp_path / "classes.png")
    save_image(tmp_path / "photo.png", np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8))
    with pytest.raises(DataError, match="neither black nor white; is it an image"):
        read_mask(tmp_path / "photo.png")


def test_a_mask_of_another_size_is_an_error(tmp_path: Path) -> None:
    save_image(tmp_path / "images" / "a.png", draw(0, 10, 10)[0])
    save_mask(tmp_path / "masks" / "a.png", np.ones((10, 11)))
    (pair,) = MaskFolderSource(tmp_path).pairs["train"]
    with pytest.raises(DataError, match="10 x 11 but its image"):
        read_pair(pair)


def test_squares_are_padded_at_the_bottom_and_on_the_right() -> None:
    pixels = np.full((4, 8, 3), 200, np.uint8)
    pixels[0, 0] = 7
    black = square_image(Image.fromarray(pixels), 8)
    darkest = square_image(Image.fromarray(pixels), 8, "minimum")
    np.testing.assert_array_equal(black[:4], pixels)
    assert (black[4:] == 0).all()
    assert (darkest[4:] == 7).all()
    mask = square_mask(np.ones((8, 4), bool), 8)
    assert mask[:, :4].all()
    assert not mask[:, 4:].any()


def test_images_are_resized_as_pytorch_does_without_antialiasing() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    found = square_image(Image.fromarray(pixels), 16)
    planes = torch.from_numpy(pixels).permute(2, 0, 1)[None].double() / 255
    expected = torch.nn.functional.interpolate(planes, (16, 16), mode="bicubic")[0].permute(1, 2, 0) * 255
    np.testing.assert_allclose(found, expected.clamp(0, 255).numpy(), atol=0.51)


def test_unsquare_takes_a_map_back_to_the_shape_of_the_image() -> None:
    mask = masked_images.disc(30, 48, (14, 20), 9)
    there = torch.from_numpy(square_mask(mask, 48)).float()
    np.testing.assert_array_equal((unsquare(there, 30, 48) > 0.5).numpy(), mask)


def test_packing_records_the_splits(packed: Path) -> None:
    meta = json.loads((packed / "meta.json").read_text())
    assert meta["held_out"] == {"validation": 0.2, "test": 0.1, "seed": 3}
    names = {split: part["names"] for split, part in meta["splits"].items()}
    assert {split: len(found) for split, found in names.items()} == {"train": 14, "validation": 4, "test": 2}
    assert sorted(name for found in names.values() for name in found) == [f"{i:02d}" for i in range(20)]
    for split, found in names.items():
        data = PackedDataset.open(packed, split)
        data.verify()
        assert data.masked
        assert data.masks is not None
        pixels, mask = draw(int(found[0]), 24, 32)
        np.testing.assert_array_equal(data.images[0], square_image(Image.fromarray(pixels), 16))
        np.testing.assert_array_equal(data.masks[0], square_mask(mask, 16))


def test_splits_follow_their_seed_and_leave_given_splits_alone(tmp_path: Path) -> None:
    source = MaskFolderSource(masked_images.folder(tmp_path / "a", 20, 4, 4))
    first, again, other = (split_pairs(source, 0.1, 0.0, seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    for split in ("train", "test"):
        masked_images.folder(tmp_path / "b" / split, 5, 4, 4)
    given = MaskFolderSource(tmp_path / "b")
    assert len(split_pairs(given, 0.2, 0.0, 0)["test"]) == 5
    with pytest.raises(DataError, match="has a test split of its own"):
        split_pairs(given, 0.0, 0.2, 0)


def test_shares_are_rounded_down_and_impossible_ones_say_why(tmp_path: Path) -> None:
    source = MaskFolderSource(masked_images.folder(tmp_path / "a", 100, 2, 2))
    assert len(split_pairs(source, 0.57, 0.0, 0)["validation"]) == 57
    assert len(split_pairs(source, 0.119, 0.0, 0)["validation"]) == 11
    with pytest.raises(DataError, match="110 of 100 images held out leave none to train on"):
        split_pairs(source, 0.6, 0.5, 0)
    with pytest.raises(DataError, match=r"0\.009 of 100 images are none for test"):
        split_pairs(source, 0.0, 0.009, 0)


def test_named_sets_read_the_folders_of_their_downloads(tmp_path: Path) -> None:
    pixels, mask = draw(0, 4, 4)
    for stem in ("12", "cju1", "cju2"):
        save_image(tmp_path / "polyp" / "TrainDataset" / "image" / f"{stem}.png", pixels)
        save_mask(tmp_path / "polyp" / "TrainDataset" / "masks" / f"{stem}.png", mask)
        save_image(tmp_path / "polyp" / "TrainDataset" / "edges" / f"{stem}.png", pixels)
    for place in ("Kvasir", "CVC-300"):
        save_image(tmp_path / "polyp" / "TestDataset" / place / "images" / "1.png", pixels)
        save_mask(tmp_path / "polyp" / "TestDataset" / place / "masks" / "1.png", mask)
    for word in ("Training", "Test"):
        save_image(tmp_path / "isic" / f"ISIC2018_Task1-2_{word}_Input" / "ISIC_1.jpg", pixels)
        save_mask(tmp_path / "isic" / f"ISIC2018_Task1_{word}_GroundTruth" / "ISIC_1_segmentation.png", mask)
    expected = {"kvasir-seg": ("polyp", 2, 1), "sanet": ("polyp", 3, 2), "isic2018": ("isic", 1, 1)}
    for name, (place, train, test) in expected.items():
        with pytest.warns(UserWarning, match="the paper's"):
            found = NamedMaskSource(name, tmp_path / place).pairs
        assert (len(found["train"]), len(found["test"])) == (train, test)
    assert MASK_SETS["busi"].counts == {"train": 624, "validation": 78, "test": 78}


@pytest.mark.parametrize("resident", [True, False])
def test_batches_hold_images_and_their_masks(packed: Path, resident: bool) -> None:
    data = PackedDataset.open(packed, "train")
    assert data.masks is not None
    plan = BatchPlan(len(data), 4, seed=1)
    augmenter = MaskAugmenter(Augmentation(mean=(0, 0, 0), std=(1, 1, 1)), 2, 16)
    for step in (0, 5):
        images, masks = augmenter(data.to("cpu") if resident else data, plan, step)
        rows = plan.indices(step)
        np.testing.assert_allclose(images.permute(0, 2, 3, 1).numpy() * 255, data.images[rows], atol=1e-4)
        np.testing.assert_array_equal(masks.numpy(), data.masks[rows])
    whole = SequentialPlan(len(data), 8)
    images, masks = augmenter.evaluation_batch(data, whole, 1)
    np.testing.assert_array_equal(masks.numpy(), data.masks[8:])


def test_a_flip_moves_the_mask_with_the_image(packed: Path) -> None:
    data = PackedDataset.open(packed, "train")
    assert data.masks is not None
    plan = BatchPlan(len(data), 4)
    _, masks = MaskAugmenter(Augmentation(flip=1.0), 2, 16)(data, plan, 0)
    np.testing.assert_array_equal(masks.numpy(), data.masks[plan.indices(0)][..., ::-1])
    images, masks = MaskAugmenter(Augmentation(crop_padding=5), 2, 16)(data, plan, 0)
    bright = images.mean(1) > 0.1
    agree = (bright == masks.bool()).float().mean()
    assert agree > 0.93


def test_what_would_part_image_and_mask_is_refused(packed: Path) -> None:
    with pytest.raises(DataError, match=r"augment.mixup_alpha .* not their masks"):
        MaskAugmenter(Augmentation(mixup_alpha=0.2), 2, 16)
    data = PackedDataset.open(packed, "train")
    for batch in (
        lambda augmenter: augmenter.evaluation_batch(data, SequentialPlan(len(data), 2), 0),
        lambda augmenter: augmenter(data, BatchPlan(len(data), 2), 0),
    ):
        with pytest.raises(DataError, match=r"--image-size 32, or set model\.options\.img_size=16$"):
            batch(MaskAugmenter(Augmentation(), 2, 32))
