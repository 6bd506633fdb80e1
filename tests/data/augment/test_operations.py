"""Every operation against Pillow: exactly, but for interpolation, which may differ by one grey level."""

import numpy as np
import pytest
import torch
from PIL import Image
from pillow_reference import apply, arrays, batch, pictures

from polarvit.data.augment.operations import Op, Rendering, Requests, group
from polarvit.data.augment.policies import CIFAR10, IMAGENET, level_value

BICUBIC = Rendering("bicubic", "bicubic", "bicubic", (124, 116, 104))
NEAREST = Rendering("nearest", "nearest", "nearest")
SIZES = [(32, 32), (17, 29)]

VALUES = {
    Op.INVERT: (0.0, 0.0),
    Op.SOLARIZE: (0.0, 256.0),
    Op.BRIGHTNESS: (0.0, 2.0),
    Op.CONTRAST: (0.0, 2.0),
    Op.COLOR: (0.0, 2.0),
    Op.SHARPNESS: (0.0, 2.0),
    Op.AUTOCONTRAST: (0.0, 0.0),
    Op.EQUALIZE: (0.0, 0.0),
    Op.SHEAR_X: (-0.3, 0.3),
    Op.SHEAR_Y: (-0.3, 0.3),
    Op.TRANSLATE_X: (-0.5, 0.5),
    Op.TRANSLATE_Y: (-0.5, 0.5),
    Op.ROTATE: (-30.0, 30.0),
}
WHOLE_VALUES = {Op.POSTERIZE: (1, 8), Op.SOLARIZE_ADD: (0, 110)}
GEOMETRY = (Op.SHEAR_X, Op.SHEAR_Y, Op.TRANSLATE_X, Op.TRANSLATE_Y, Op.ROTATE)
POINTS = [op for op in (*VALUES, *WHOLE_VALUES) if op not in GEOMETRY]


def carried_out(requests: Requests, images: np.ndarray, rendering: Rendering | None = None) -> np.ndarray:
    """What becomes of a batch."""
    done = batch(images)
    for part in group(requests, images.shape[1], images.shape[2], rendering or Rendering()):
        part.run(done, *(torch.from_numpy(a) for a in (part.rows, *part.parameters)))
    return arrays(done)


def ours_and_pillows(
    op: Op, values: np.ndarray, images: np.ndarray, rendering: Rendering
) -> tuple[np.ndarray, np.ndarray]:
    """The same operation on a whole batch, and image by image."""
    n = len(images)
    ours = carried_out(Requests(np.full(n, int(op)), values), images, rendering)
    theirs = [apply(op, Image.fromarray(i), v, rendering) for i, v in zip(images, values.tolist(), strict=True)]
    return ours, np.stack([np.asarray(i) for i in theirs])


def some_values(op: Op, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if op in WHOLE_VALUES:
        low, high = WHOLE_VALUES[op]
        return rng.integers(low, high + 1, count).astype(np.float64)
    return rng.uniform(*VALUES[op], count)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("op", POINTS, ids=lambda op: op.name.lower())
def test_point_operation_equals_pillow_exactly(op: Op, size: tuple[int, int]) -> None:
    seed = 100 * int(op) + size[0]
    print(f"seed {seed}")
    ours, theirs = ours_and_pillows(op, some_values(op, 30, seed), pictures(30, *size, seed), Rendering())
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("op", GEOMETRY, ids=lambda op: op.name.lower())
def test_nearest_neighbour_geometry_equals_pillow_exactly(op: Op, size: tuple[int, int]) -> None:
    seed = 100 * int(op) + size[0]
    print(f"seed {seed}")
    ours, theirs = ours_and_pillows(op, some_values(op, 30, seed), pictures(30, *size, seed), NEAREST)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("op", GEOMETRY, ids=lambda op: op.name.lower())
def test_bicubic_geometry_is_within_one_grey_level_of_pillow(op: Op, size: tuple[int, int]) -> None:
    seed = 100 * int(op) + size[0]
    print(f"seed {seed}")
    ours, theirs = ours_and_pillows(op, some_values(op, 30, seed), pictures(30, *size, seed), BICUBIC)
    difference = np.abs(ours.astype(int) - theirs)
    assert difference.max() <= 1
    assert (difference == 0).mean() >= 0.999


@pytest.mark.parametrize("policy", [CIFAR10, IMAGENET], ids=["cifar10", "imagenet"])
def test_every_step_of_a_policy_equals_pillow_at_both_signs(policy: tuple) -> None:
    steps = sorted({(op, level) for pair in policy for op, _, level in pair})
    images = pictures(6, 32, 32, 5)
    for op, level in steps:
        base, swing = level_value(op, level)
        for sign in (-1, 1):
            ours, theirs = ours_and_pillows(op, np.full(6, base + sign * swing), images, Rendering())
            difference = np.abs(ours.astype(int) - theirs).max()
            assert difference <= (1 if op in (Op.SHEAR_X, Op.SHEAR_Y) else 0), (op.name, level, sign)


def test_a_batch_of_mixed_requests_gives_each_image_its_own() -> None:
    rng = np.random.default_rng(8)
    images = pictures(60, 32, 32, 8)
    ops = rng.choice([int(op) for op in Op if op is not Op.CUTOUT], 60)
    values = np.array([0.0 if op == 0 else some_values(Op(op), 1, 8 + i)[0] for i, op in enumerate(ops)])
    ours = carried_out(Requests(ops, values), images)
    for i, (op, value) in enumerate(zip(ops, values.tolist(), strict=True)):
        theirs = np.asarray(apply(Op(op), Image.fromarray(images[i]), value))
        assert np.abs(ours[i].astype(int) - theirs).max() <= (1 if Op(op) in (Op.SHEAR_X, Op.SHEAR_Y) else 0)


def test_posterize_to_no_bits_is_black() -> None:
    assert not carried_out(Requests(np.full(2, int(Op.POSTERIZE)), np.zeros(2)), pictures(2, 8, 8, 0)).any()


def test_cutout_paints_a_square_about_its_centre_and_nothing_else() -> None:
    images = pictures(2, 32, 32, 0)
    place = np.array([[0.5, 0.25], [0.0, 0.99]])
    ours = carried_out(Requests(np.full(2, int(Op.CUTOUT)), np.full(2, 5 / 32), place), images)
    expected = images.copy()
    expected[0, 11:21, 3:13] = 128
    expected[1, 0:5, 26:32] = 128
    np.testing.assert_array_equal(ours, expected)


def test_nothing_runs_for_images_that_ask_for_nothing() -> None:
    assert group(Requests(np.zeros(5, np.int64), np.zeros(5)), 32, 32, Rendering()) == []
