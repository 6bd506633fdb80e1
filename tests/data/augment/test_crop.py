"""Crops and flips against Pillow."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from pillow_reference import arrays, batch, pictures
from scipy import stats

from polarvit.data.augment.crop import flip_and_crop, resized_crop, sample_crops
from polarvit.data.augment.draws import Draws


def test_flip_and_padded_crop_equal_pillow_exactly() -> None:
    rng = np.random.default_rng(0)
    images = pictures(40, 20, 32, 0)
    flip, top, left = rng.random(40) < 0.5, rng.integers(0, 9, 40), rng.integers(0, 9, 40)
    ours = flip_and_crop(batch(images), *(torch.from_numpy(x) for x in (flip, top, left)), padding=4)
    for i, image in enumerate(images):
        theirs = Image.fromarray(image)
        theirs = ImageOps.expand(ImageOps.mirror(theirs) if flip[i] else theirs, 4)
        theirs = theirs.crop((left[i], top[i], left[i] + 32, top[i] + 20))
        np.testing.assert_array_equal(arrays(ours)[i], np.asarray(theirs))


@pytest.mark.parametrize("target", [(24, 24), (64, 48)], ids=["smaller", "larger"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resized_crop_is_within_one_grey_level_of_pillow(interpolation: str, target: tuple[int, int]) -> None:
    height, width = 60, 80
    images = pictures(24, height, width, 1)
    draws = Draws(1, np.zeros(24, np.int64), np.arange(24))
    boxes = sample_crops(draws, height, width, (0.08, 1.0), (0.75, 4 / 3))
    flip = torch.arange(24) % 2 == 0
    ours = arrays(resized_crop(batch(images), torch.from_numpy(boxes), flip, target, interpolation))
    how = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[interpolation]
    theirs = []
    for image, (top, left, rows, columns), mirror in zip(images, boxes.tolist(), flip.tolist(), strict=True):
        part = Image.fromarray(image).crop((left, top, left + columns, top + rows)).resize(target[::-1], how)
        theirs.append(np.asarray(ImageOps.mirror(part) if mirror else part))
    difference = np.abs(ours.astype(int) - np.stack(theirs))
    assert (difference <= 1).mean() >= 0.999
    assert (difference == 0).mean() >= 0.99


def test_a_crop_of_its_own_size_changes_nothing() -> None:
    images = pictures(6, 32, 32, 2)
    whole, still = torch.tensor([[0, 0, 32, 32]]).expand(6, 4), torch.zeros(6, dtype=torch.bool)
    np.testing.assert_array_equal(arrays(resized_crop(batch(images), whole, still, (32, 32), "bicubic")), images)


def test_random_parts_lie_inside_and_have_the_asked_areas_and_aspects() -> None:
    draws = Draws(3, np.zeros(20000, np.int64), np.arange(20000))
    top, left, rows, columns = sample_crops(draws, 200, 200, (0.1, 0.5), (0.75, 4 / 3)).astype(float).T
    assert top.min() >= 0
    assert left.min() >= 0
    assert (top + rows).max() <= 200
    assert (left + columns).max() <= 200
    assert stats.kstest(rows * columns / 200**2, stats.uniform(0.1, 0.4).cdf).statistic < 0.02
    log_aspect = np.log(columns / rows)
    assert stats.kstest(log_aspect, stats.uniform(np.log(0.75), np.log(16 / 9)).cdf).statistic < 0.02
    assert stats.kstest(top / (201 - rows), "uniform").statistic < 0.03


def test_where_no_part_fits_the_centre_is_taken() -> None:
    draws = Draws(4, np.zeros(50, np.int64), np.arange(50))
    boxes = sample_crops(draws, 10, 1000, (0.9, 1.0), (0.75, 4 / 3))
    assert np.unique(boxes, axis=0).tolist() == [[0, 493, 10, 13]]
