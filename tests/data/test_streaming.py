"""Streaming: the same batches whatever the number of workers and processes, errors that name the file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from polarvit.data import (
    Augmentation,
    Augmenter,
    BatchPlan,
    DataError,
    FolderSource,
    PackedDataset,
    SequentialPlan,
    StreamingDataset,
    prepare,
)
from polarvit.data.augment.crop import Interpolation, sample_crops
from polarvit.data.augment.draws import Draws

CONFIG = Augmentation(resized_crop=True, flip=0.5, mixup_alpha=0.2)


@pytest.fixture
def source(tmp_path: Path) -> FolderSource:
    rng = np.random.default_rng(0)
    for i in range(24):
        folder = tmp_path / "train" / "abc"[i % 3]
        folder.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(30, 60, 2)
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / f"{i:02}.png")
    return FolderSource(tmp_path)


def test_workers_and_processes_change_nothing(source: FolderSource) -> None:
    plan = BatchPlan(24, 8, seed=1)
    alone = StreamingDataset(source, "train", 16, augmentation=CONFIG, workers=0)
    crowd = StreamingDataset(source, "train", 16, augmentation=CONFIG, workers=2)
    one, other = Augmenter(CONFIG, 3, 16), Augmenter(CONFIG, 3, 16)
    for step in (0, 1, 2, 3):
        images, targets = one(alone, plan, step)
        again, again_targets = other(crowd, plan, step)
        assert torch.equal(images, again)
        assert torch.equal(targets, again_targets)
    halves = [
        Augmenter(CONFIG, 3, 16)(StreamingDataset(source, "train", 16, augmentation=CONFIG, workers=0), plan, 3, r, 2)
        for r in range(2)
    ]
    assert torch.equal(torch.cat([h[0] for h in halves]), images)


def test_the_cut_is_drawn_by_seed_step_and_sample(source: FolderSource) -> None:
    plan = BatchPlan(24, 4, seed=6)
    config = Augmentation(resized_crop=True)
    images, _ = Augmenter(config, 3, 16)(
        StreamingDataset(source, "train", 16, augmentation=config, workers=0), plan, step=9
    )
    for row, index in enumerate(plan.indices(9).tolist()):
        picture = source.image("train", index)
        draws = Draws(6, np.array([9]), np.array([index]))
        boxes = sample_crops(draws, picture.height, picture.width, config.crop_scale, config.crop_ratio)
        top, left, height, width = boxes[0].tolist()
        expected = picture.crop((left, top, left + width, top + height)).resize((16, 16), Image.Resampling.BICUBIC)
        back = ((images[row] + 1) * 127.5).round().permute(1, 2, 0).numpy()
        np.testing.assert_array_equal(back, np.asarray(expected))


def test_evaluation_resizes_cuts_and_ends(source: FolderSource) -> None:
    stream = StreamingDataset(source, "train", 16, resize=20, workers=0)
    plan = SequentialPlan(24, 9)
    augmenter = Augmenter(CONFIG, 3, 16)
    batches = [augmenter.evaluation_batch(stream, plan, step) for step in range(plan.steps)]
    assert [len(images) for images, _ in batches] == [9, 9, 6]
    assert torch.cat([labels for _, labels in batches]).tolist() == source.labels("train").tolist()


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("size", "resize"), [(32, None), (32, 43), (31, 40)])
def test_evaluation_sees_the_same_pixels_streamed_and_packed(
    tmp_path: Path, interpolation: Interpolation, size: int, resize: int | None
) -> None:
    smooth = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 11, 3), dtype=np.uint8))
    for i in range(4):
        folder = tmp_path / "images" / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        smooth.rotate(90 * (i // 2)).resize((77, 43)).save(folder / f"{i}.png")
    source = FolderSource(tmp_path / "images")
    packed = PackedDataset.open(prepare(source, tmp_path / "packed"), "train")
    stream = StreamingDataset(source, "train", size, resize=resize, workers=0)
    augmenter = Augmenter(Augmentation(interpolation=interpolation), 2, size, resize=resize)
    here, there = (augmenter.evaluation_batch(data, SequentialPlan(4, 4), 0)[0] for data in (stream, packed))
    difference = ((here - there) * 127.5).round().abs()
    assert difference.max() <= 1
    assert difference.mean() < 0.05


def test_a_corrupt_file_is_named_through_the_worker(source: FolderSource) -> None:
    broken = source.root / "train" / "a" / "03.png"
    broken.write_bytes(b"broken")
    stream = StreamingDataset(source, "train", 16, augmentation=CONFIG, workers=1)
    with pytest.raises(DataError, match=r"03\.png: cannot be read as an image"):
        Augmenter(CONFIG, 3, 16)(stream, BatchPlan(24, 24), 0)


def test_streams_are_opened_for_what_they_are_read_for(source: FolderSource) -> None:
    stream = StreamingDataset(source, "train", 16, workers=0)
    with pytest.raises(DataError, match="was opened for evaluation but is read for training"):
        Augmenter(CONFIG, 3, 16)(stream, BatchPlan(24, 8), 0)
    with pytest.raises(DataError, match="streamed with augment"):
        StreamingDataset(source, "train", 16, augmentation=Augmentation(crop_padding=4))
    with pytest.raises(DataError, match="has no split 'test'"):
        StreamingDataset(source, "test", 16)
