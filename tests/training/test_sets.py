"""Opening the data of a recipe: what is held out is neither trained on nor the test split."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from polarvit.data import DataError, DigitsSource, PackedDataset, prepare
from polarvit.training.recipe import Recipe, load
from polarvit.training.sets import open_sets

CPU = torch.device("cpu")


def recipe(path: object, **data: object) -> Recipe:
    digits = load("digits")
    return dataclasses.replace(digits, data=dataclasses.replace(digits.data, path=str(path), **data))


@pytest.mark.parametrize("resident", [True, False])
def test_held_out_images_are_a_part_of_the_training_split_of_their_own(tmp_path: Path, resident: bool) -> None:
    folder = prepare(DigitsSource(), tmp_path / "digits")
    whole = PackedDataset.open(folder, "train")
    sets = open_sets(recipe(folder, holdout=0.25, resident=resident), CPU)
    again = open_sets(recipe(folder, holdout=0.25), CPU)
    assert sets.validation is not None
    assert again.validation is not None
    assert len(sets.train) + len(sets.validation) == len(whole)
    shares = np.bincount(sets.validation.labels) / np.bincount(whole.labels)
    assert np.abs(shares - 0.25).max() < 0.01
    assert (sets.validation.labels == again.validation.labels).all()
    images = [np.asarray(part.images)[..., :3] for part in (sets.train, sets.validation)]
    seen = sorted(image.tobytes() for part in images for image in part)
    assert seen == sorted(np.ascontiguousarray(image).tobytes() for image in whole.images)
    assert "held out" in sets.validation.name


def test_holding_out_needs_packed_images_and_a_share_below_one() -> None:
    with pytest.raises(DataError, match=r"data\.holdout needs a folder of `polarvit data prepare`"):
        open_sets(recipe("discs", holdout=0.1), CPU)
    with pytest.raises(ValueError, match="holdout must be at least 0 and below 1, got 1"):
        recipe("digits", holdout=1.0)
