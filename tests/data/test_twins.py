"""Near twins between splits."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from polarvit.data.twins import find_twins, thumbnails


def scene(seed: int, size: int = 48) -> np.ndarray:
    """Smooth blobs of colour, uint8 [size, size, 3]."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((size, size), Image.Resampling.BICUBIC))


def noisy(image: np.ndarray, deviation: float, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, deviation, image.shape)
    return (image + noise).clip(0, 255).astype(np.uint8)


def test_a_twin_is_found_through_noise_another_size_and_in_the_mirror() -> None:
    known = np.stack([scene(seed) for seed in range(20)])
    changed = np.stack([noisy(known[7], 12), known[3][:, ::-1], (0.6 * known[11] + 40).astype(np.uint8), scene(99)])
    found = find_twins(changed, known)
    assert found.place[:3].tolist() == [7, 3, 11]
    assert found.near(0.98).tolist() == [True, True, True, False]
    assert found.correlation[1] == pytest.approx(1, abs=1e-5)
    again = find_twins(np.stack([scene(7, 64)]), known)
    assert again.place[0] == 7
    assert again.near(0.98)[0]


def test_the_number_is_the_correlation_of_the_thumbnails() -> None:
    ours, others = (np.stack([scene(seed, 24) for seed in seeds]) for seeds in (range(5), range(5, 12)))
    found = find_twins(ours, others)
    for i, image in enumerate(ours):
        each = [
            np.corrcoef(side.ravel().astype(float), other.ravel().astype(float))[0, 1]
            for other in others
            for side in (image, image[:, ::-1])
        ]
        assert found.correlation[i] == pytest.approx(max(each), abs=1e-5)
        assert found.place[i] == int(np.argmax(each)) // 2


def test_an_image_of_one_colour_resembles_none() -> None:
    flat = np.full((2, 32, 32, 3), 90, np.uint8)
    assert (thumbnails(flat) == 0).all()
    assert not find_twins(flat, flat).near(0.0).any()


def test_every_exact_duplicate_is_found_at_one() -> None:
    images = np.random.default_rng(0).integers(0, 256, (200, 40, 40, 3), dtype=np.uint8)
    found = find_twins(images, images)
    assert found.near(1.0).all()
    assert found.correlation.max() <= 1
    assert found.place.tolist() == list(range(200))


def test_no_images_have_no_twins() -> None:
    some, none = np.stack([scene(1)]), np.zeros((0, 48, 48, 3), np.uint8)
    assert len(find_twins(none, some).place) == 0
    assert not find_twins(some, none).near(0.1).any()


def test_order_and_number_of_images_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, others = (np.stack([scene(seed) for seed in seeds]) for seeds in (range(9), range(4, 17)))
    whole = find_twins(ours, others)
    monkeypatch.setattr("polarvit.data.twins.AT_ONCE", 4)
    monkeypatch.setattr("polarvit.data.twins.BYTES_AT_ONCE", 3 * 48 * 48 * 3)
    parts = find_twins(ours, others)
    np.testing.assert_array_equal(whole.place, parts.place)
    np.testing.assert_allclose(whole.correlation, parts.correlation, atol=1e-6)
    assert whole.place[4:].tolist() == [0, 1, 2, 3, 4]
