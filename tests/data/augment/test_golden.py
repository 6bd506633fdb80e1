"""Batches that must never change: what (seed, step, sample) has meant since the first version.

Sums stand for batches that pass through interpolation or blending, where machines may differ in a last bit;
a batch of pure pixel moves and whole grey levels is known to the bit.
"""

import hashlib

import numpy as np
import pytest
import torch
from test_pipeline import BEYER, HCAST, HEXFORMER

from polarvit.data import Augmentation, Augmenter, BatchPlan, ResidentDataset
from polarvit.data.augment.draws import Draws, Stream

EXACT = Augmentation(
    flip=0.5, crop_padding=4, rand_augment="big_vision", rand_magnitude=10, erase_probability=0.5, erase_mode="mean"
)
DIGESTS = {
    0: "d1a6f7c51ac22531",
    7: "71db6c14596b9464",
    1000: "420257d7384eff12",
}
#: Of images and targets, at steps 0, 7 and 1000.
SUMS = {
    "hexformer": ((14.4650, 38.4510, -25.2248), (-0.5109, -0.5371, 0.2040)),
    "beyer": ((-43.4458, 9.6729, 10.5867), (-0.5994, 0.2463, -0.3088)),
    "hcast": ((25.9511, -6.4986, -0.2211), (-0.5248, -0.5252, -0.0460)),
}


def dataset(count: int = 60, size: int = 32) -> ResidentDataset:
    i, y, x, c = np.ogrid[:count, :size, :size, :3]
    images = ((i * 37 + y * 5 + x * 3 + c * 50 + (x * y * i) % 29 * 4) % 256).astype(np.uint8)
    return ResidentDataset("waves", images, np.arange(count) % 10, tuple(map(str, range(10))), "cpu")


def weighted_sum(values: torch.Tensor) -> float:
    """A number that every value moves, each by its own weight."""
    weights = (torch.arange(values.numel(), dtype=torch.float64) * 7919 % 1009) / 1009 - 0.5
    return float(values.double().flatten() @ weights)


@pytest.mark.parametrize("step", DIGESTS)
def test_moved_pixels_and_grey_levels_are_known_to_the_bit(step: int) -> None:
    images, _ = Augmenter(EXACT, 10, 32)(dataset(), BatchPlan(60, 30, seed=2026), step)
    levels = ((images + 1) * 127.5).round().to(torch.uint8).numpy()
    assert hashlib.sha256(levels.tobytes()).hexdigest()[:16] == DIGESTS[step]


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("name", SUMS)
def test_batches_of_the_recipes_are_known(name: str, world: int) -> None:
    config = {"hexformer": HEXFORMER, "beyer": BEYER, "hcast": HCAST}[name]
    data, plan = dataset(), BatchPlan(60, 15, seed=2026)
    images, targets = [], []
    for step in (0, 7, 1000):
        parts = [Augmenter(config, 10, 32)(data, plan, step, rank, world) for rank in range(world)]
        images.append(weighted_sum(torch.cat([part[0] for part in parts])))
        targets.append(weighted_sum(torch.cat([part[1] for part in parts])))
    # One grey level of one pixel moves a sum by 0.01; another draw for one image moves it by several units.
    assert images == pytest.approx(SUMS[name][0], abs=0.05)
    assert targets == pytest.approx(SUMS[name][1], abs=2e-4)


def test_orders_and_shares_are_known() -> None:
    assert BatchPlan(1000, 5, seed=2026).indices(777).tolist() == [193, 730, 41, 457, 6]
    shares = HCAST.mixer(32, 32).sample(2026, np.arange(4)).share.tolist()
    assert shares == pytest.approx([0.28712815657615404, 0.9375, 0.609375, 0.484375], abs=1e-12)
    draws = Draws(2026, np.array([3]), np.array([-1]))
    assert draws.uniform(Stream.MIX, 2)[0].tolist() == [0.4215884593973349, 0.4859968827029931]
