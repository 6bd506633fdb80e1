"""Random erasing: where, how large, and with what."""

import numpy as np
import pytest
import torch
from scipy import stats

from polarvit.data.augment.draws import Draws
from polarvit.data.augment.erasing import erase_with, erase_with_noise, sample_erasing


def draws(count: int, seed: int = 0) -> Draws:
    return Draws(seed, np.zeros(count, np.int64), np.arange(count))


def keys(drawn: Draws) -> torch.Tensor:
    return torch.from_numpy(drawn.key.view(np.int64))


def boxes(mode: str, size: int = 256, count: int = 20000) -> np.ndarray:
    return sample_erasing(draws(count), size, size, 0.25, (0.02, 0.4), (0.3, 1 / 0.3), mode).astype(float)


@pytest.mark.parametrize("mode", ["mean", "pixel"])
def test_a_quarter_of_the_images_is_erased_inside_their_borders(mode: str) -> None:
    all_boxes = boxes(mode)
    erased = all_boxes[:, 2] > 0
    assert stats.binomtest(int(erased.sum()), len(erased), 0.25).pvalue > 1e-3
    top, left, rows, columns = all_boxes[erased].T
    assert top.min() >= 0
    assert left.min() >= 0
    assert max((top + rows).max(), (left + columns).max()) <= 256
    assert max(rows.max(), columns.max()) < 256


@pytest.mark.parametrize(
    ("mode", "law"),
    [("mean", stats.uniform(0.3, 1 / 0.3 - 0.3)), ("pixel", stats.loguniform(0.3, 1 / 0.3))],
)
def test_small_boxes_follow_the_aspect_law_of_their_mode(mode: str, law: object) -> None:
    # Up to 0.2 of the area no aspect is refused, so the law shows undisturbed.
    chosen = sample_erasing(draws(20000), 512, 512, 1.0, (0.1, 0.2), (0.3, 1 / 0.3), mode).astype(float)
    assert stats.kstest(chosen[:, 2] / chosen[:, 3], law.cdf).statistic < 0.02
    assert stats.kstest(chosen[:, 2] * chosen[:, 3] / 512**2, stats.uniform(0.1, 0.1).cdf).statistic < 0.02


def test_only_the_box_changes_and_takes_the_colour() -> None:
    images = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    holes = torch.tensor([[2, 3, 4, 5], [0, 0, 0, 0], [12, 0, 4, 16]])
    color = torch.tensor([0.5, 0.25, 0.125])
    out = erase_with(images, holes, color)
    expected = images.clone()
    expected[0, :, 2:6, 3:8] = color[:, None, None]
    expected[2, :, 12:] = color[:, None, None]
    assert torch.equal(out, expected)


def test_noise_is_normal_own_to_each_value_and_to_each_image() -> None:
    images = torch.zeros(8, 3, 64, 64)
    out = erase_with_noise(images, torch.tensor([[0, 0, 64, 63]]).expand(8, 4), keys(draws(8)))
    assert torch.equal(out[..., 63], images[..., 63])
    noise = out[..., :63]
    assert stats.kstest(noise.reshape(-1).numpy(), "norm").pvalue > 1e-3
    assert noise.unique().numel() > 0.98 * noise.numel()
    alone = erase_with_noise(images[:1], torch.tensor([[0, 0, 64, 63]]), keys(draws(8).of(np.array([5]))))
    assert torch.equal(alone[0], out[5])
