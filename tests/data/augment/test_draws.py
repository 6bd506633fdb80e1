"""Random numbers: independent of company, uniform, and known by heart."""

import numpy as np
import pytest
import torch
from scipy import stats

from polarvit.data.augment.draws import Draws, Stream, device_bits, gaussian, integer, mix64


def draws(seed: int = 0, step: int = 0, count: int = 1000) -> Draws:
    return Draws(seed, np.full(count, step), np.arange(count))


def test_the_hash_is_splitmix64() -> None:
    def reference(x: int) -> int:
        mask = 2**64 - 1
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    words = [0, 1, 2**63, 2**64 - 1, 0x123456789ABCDEF0]
    assert mix64(np.array(words, np.uint64)).tolist() == [reference(w) for w in words]


def test_a_number_does_not_depend_on_its_company() -> None:
    whole = draws(3, 7).uniform(Stream.CROP, 8)
    alone = Draws(3, np.array([7]), np.array([421]))
    assert whole[421, :3].tolist() == alone.uniform(Stream.CROP, 3)[0].tolist()
    assert whole[421, 5:].tolist() == alone.uniform(Stream.CROP, 3, first=5)[0].tolist()
    assert whole[[4, 2]].tolist() == draws(3, 7).of(np.array([4, 2])).uniform(Stream.CROP, 8).tolist()


@pytest.mark.parametrize("other", [{"seed": 1}, {"step": 1}])
def test_seed_and_step_change_every_number(other: dict[str, int]) -> None:
    assert (draws().uniform(Stream.CROP, 1) != draws(**other).uniform(Stream.CROP, 1)).all()


def test_numbers_never_change_between_versions() -> None:
    values = Draws(2026, np.array([5, 5]), np.array([0, 1])).uniform(Stream.POLICY, 2)
    assert values.tolist() == [[0.8862487230974302, 0.893161478859142], [0.20337326355064, 0.9076211244587651]]


@pytest.mark.parametrize("stream", [Stream.CROP, Stream.NOISE])
def test_numbers_are_uniform_and_uncorrelated(stream: Stream) -> None:
    values = draws(count=20000).uniform(stream, 4)
    assert stats.kstest(values.ravel(), "uniform").pvalue > 1e-3
    assert np.abs(np.corrcoef(values.T) - np.eye(4)).max() < 0.03
    assert abs(np.corrcoef(values[:-1, 0], values[1:, 0])[0, 1]) < 0.03


def test_normal_numbers_are_normal() -> None:
    u = torch.from_numpy(draws(count=20000).uniform(Stream.POLICY, 2))
    assert stats.kstest(gaussian(u[:, 0], u[:, 1]).numpy(), "norm").pvalue > 1e-3


def test_integers_cover_their_range_evenly() -> None:
    values = integer(draws(count=25000).uniform(Stream.POLICY, 1)[:, 0], 25)
    assert stats.chisquare(np.bincount(values, minlength=25)).pvalue > 1e-3


DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_are_the_same_on_every_device(device: str) -> None:
    key = torch.from_numpy(draws().key.view(np.int64)).to(device)
    np.testing.assert_array_equal(device_bits(key, Stream.NOISE, 64).cpu().numpy(), draws().bits(Stream.NOISE, 64))


@pytest.mark.parametrize("seed", [-1, 0, 2**64 + 3, -(2**70)])
def test_a_seed_may_be_any_integer(seed: int) -> None:
    assert draws(seed).key.tolist() == draws(seed % 2**64).key.tolist()
