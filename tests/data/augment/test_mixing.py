"""MixUp and CutMix: one decision for a step, the right lambda, the right targets."""

import numpy as np
import pytest
import torch
from scipy import stats

from polarvit.data.augment.mixing import Mix, Mixer, beta, mix_images, partners, soft_targets


def test_steps_mix_as_often_as_asked_and_switch_evenly() -> None:
    mixer = Mixer(1.0, 1.0, 0.5, 0.5, 32, 32)
    kinds = [_kind(mixer.sample(0, step)) for step in range(2000)]
    counts = [kinds.count(kind) for kind in ("none", "mixup", "cutmix")]
    # A cut of no pixels mixes nothing; at 32 x 32 that is lambda above 1 - (2/32)^2, or a box outside.
    assert stats.chisquare(counts, [1000 + 2, 500, 500 - 2]).pvalue > 1e-3


def _kind(mix: Mix) -> str:
    return "none" if not mix.active else "mixup" if mix.weight < 1 else "cutmix"


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 4.0])
def test_lambda_follows_the_beta_law(alpha: float) -> None:
    u = torch.rand(1500, 252, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    drawn = [beta(alpha, row) for row in u]
    assert stats.kstest(drawn, stats.beta(alpha, alpha).cdf).pvalue > 1e-3


def test_a_tiny_alpha_gives_numbers_not_nan() -> None:
    u = torch.rand(200, 252, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    assert all(0 <= beta(1e-3, row) <= 1 for row in u)


def test_the_share_of_a_cut_is_the_ratio_of_pixels_kept() -> None:
    mixer = Mixer(0.0, 1.0, 1.0, 0.5, 20, 32)
    for step in range(50):
        mix = mixer.sample(1, step)
        images = mix_images(torch.ones(1, 3, 20, 32), torch.zeros(1, 3, 20, 32), torch.ones(1), torch.tensor([mix.box]))
        assert images.mean().item() == pytest.approx(mix.share)


def test_mixup_blends_and_cutmix_pastes() -> None:
    a, b = torch.randn(2, 2, 3, 8, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    out = mix_images(a, b, torch.tensor([0.3, 1.0]), torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]]))
    torch.testing.assert_close(out[0], 0.3 * a[0] + 0.7 * b[0])
    expected = a[1].clone()
    expected[:, 1:4, 2:6] = b[1][:, 1:4, 2:6]
    assert torch.equal(out[1], expected)


@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_partners_are_neighbours_and_somebody_else(size: int) -> None:
    other = partners(size)
    assert other.min() >= 0
    assert other.max() < size
    assert size == 1 or (other != np.arange(size)).all()
    assert (other[other[: size // 2 * 2]] == np.arange(size // 2 * 2)).all()


def test_targets_are_smoothed_and_mixed() -> None:
    targets = soft_targets(torch.tensor([0, 2]), torch.tensor([1, 2]), torch.tensor([0.75, 0.4]), 4, 0.1)
    expected = torch.tensor([[0.7, 0.25, 0.025, 0.025], [0.025, 0.025, 0.925, 0.025]])
    torch.testing.assert_close(targets, expected)
    torch.testing.assert_close(targets.sum(1), torch.ones(2))
