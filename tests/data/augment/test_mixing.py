"""MixUp and CutMix: one decision for a step, the right lambda, the right targets."""

import numpy as np
import pytest
import torch
from scipy import stats

from polarvit.data.augment.draws import Draws
from polarvit.data.augment.mixing import Mixer, beta, mix_images, partners, soft_targets


def draws(count: int) -> Draws:
    return Draws(7, np.arange(count), np.full(count, -1))


def test_steps_mix_as_often_as_asked_and_switch_evenly() -> None:
    mixer = Mixer(1.0, 1.0, 0.5, 0.5, "pairs", 32, 32)
    mixes = mixer.sample(0, np.arange(2000))
    blends = mixes.weight < 1
    counts = [(~mixes.active).sum(), blends.sum(), (mixes.active & ~blends).sum()]
    # A cut of no pixels mixes nothing; at 32 x 32 that is lambda above 1 - (2/32)^2, or a box outside.
    assert stats.chisquare(counts, [1000 + 2, 500, 500 - 2]).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 4.0])
def test_lambda_follows_the_beta_law(alpha: float) -> None:
    assert stats.kstest(beta(alpha, draws(1500)), stats.beta(alpha, alpha).cdf).pvalue > 1e-3


def test_a_tiny_alpha_gives_numbers_not_nan() -> None:
    drawn = beta(1e-3, draws(200))
    assert ((drawn >= 0) & (drawn <= 1)).all()


def test_the_share_of_a_cut_is_the_ratio_of_pixels_kept() -> None:
    mixer = Mixer(0.0, 1.0, 1.0, 0.5, "pairs", 20, 32)
    mixes = mixer.sample(1, np.arange(50))
    whole = torch.ones(50, 2, 3, 20, 32)
    images = mix_images(whole, torch.zeros_like(whole), torch.ones(50), torch.from_numpy(mixes.boxes))
    assert images.mean((1, 2, 3, 4)).tolist() == pytest.approx(mixes.share.tolist())


def test_a_step_mixes_the_same_in_any_company() -> None:
    for mixer in (Mixer(0.8, 1.0, 0.5, 0.5, "pairs", 32, 32), Mixer(0.3, 0.0, 1.0, 0.5, "pairs", 32, 32)):
        many = mixer.sample(3, np.arange(40))
        for step in range(40):
            alone = mixer.sample(3, np.array([step]))
            assert alone.share[0] == many.share[step]
            assert alone.boxes[0].tolist() == many.boxes[step].tolist()


def test_mixup_blends_and_cutmix_pastes() -> None:
    a, b = torch.randn(2, 2, 1, 3, 8, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    out = mix_images(a, b, torch.tensor([0.3, 1.0]), torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]]))
    torch.testing.assert_close(out[0], 0.3 * a[0] + 0.7 * b[0])
    expected = a[1].clone()
    expected[..., 1:4, 2:6] = b[1][..., 1:4, 2:6]
    assert torch.equal(out[1], expected)


@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_partners_are_neighbours_and_somebody_else(size: int) -> None:
    other = partners(size, "pairs")
    assert other.min() >= 0
    assert other.max() < size
    assert size == 1 or (other != np.arange(size)).all()
    assert (other[other[: size // 2 * 2]] == np.arange(size // 2 * 2)).all()


@pytest.mark.parametrize("size", [3, 7, 8])
def test_no_two_images_of_a_ring_are_mixed_from_the_same_two(size: int) -> None:
    own, other = np.arange(size), partners(size, "ring")
    assert sorted(other) == list(own)
    assert len({frozenset(pair) for pair in zip(own.tolist(), other.tolist(), strict=True)}) == size


def test_targets_are_smoothed_and_mixed() -> None:
    targets = soft_targets(torch.tensor([0, 2]), torch.tensor([1, 2]), torch.tensor([0.75, 0.4]), 4, 0.1)
    expected = torch.tensor([[0.7, 0.25, 0.025, 0.025], [0.025, 0.025, 0.925, 0.025]])
    torch.testing.assert_close(targets, expected)
    torch.testing.assert_close(targets.sum(1), torch.ones(2))
