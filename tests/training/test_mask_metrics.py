"""Scores of masks against their definitions, spelled out slowly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from masked_images import disc

from polarvit.training.mask_metrics import (
    dice_and_iou,
    dice_of,
    distance_to,
    edges,
    hausdorff95,
    pixel_sums,
    soft_dice,
)
from polarvit.training.segmentation import dice_cross_entropy


def test_soft_dice_is_the_benchmarks() -> None:
    """Per class over the whole batch, background too."""
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(3, 2, 5, 4, generator=generator, dtype=torch.float64).softmax(1)
    masks = torch.randint(0, 2, (3, 5, 4), generator=generator).byte()
    scores = []
    for c in (0, 1):
        y = (masks == c).double()
        scores.append(2 * (p[:, c] * y).sum() / (p[:, c].sum() + y.sum()))
    torch.testing.assert_close(soft_dice(p, masks), (scores[0] + scores[1]) / 2)


def test_a_class_without_true_pixels_in_the_batch_counts_as_one() -> None:
    p = torch.tensor([0.7, 0.3], dtype=torch.float64).view(1, 2, 1, 1).expand(2, 2, 4, 4)
    masks = torch.zeros(2, 4, 4, dtype=torch.uint8)
    expected = (1 + 2 * 0.7 / 1.7) / 2
    assert soft_dice(p, masks).item() == pytest.approx(expected)


def test_sums_of_images_give_the_soft_dice_of_any_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(6, 2, 5, 4, generator=generator, dtype=torch.float64).softmax(1)
    masks = torch.randint(0, 2, (6, 5, 4), generator=generator).byte()
    masks[[1, 4]] = 0  # a batch of these two has no foreground
    sums = pixel_sums(p, masks)
    for batch in ([0, 1, 2], [4, 1], [5], range(6)):
        rows = list(batch)
        assert dice_of(*sums[rows].sum(0)).item() == pytest.approx(soft_dice(p[rows], masks[rows]).item(), rel=1e-14)


def test_the_loss_is_dice_plus_cross_entropy() -> None:
    logits = torch.randn(2, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    masks = (logits[:, 0] > 0.3).byte()
    expected = 1 - soft_dice(logits.softmax(1), masks) + torch.nn.functional.cross_entropy(logits, masks.long())
    torch.testing.assert_close(dice_cross_entropy(logits, masks), expected)
    assert torch.autograd.gradcheck(lambda x: dice_cross_entropy(x, masks), logits.requires_grad_())


def test_the_loss_of_a_perfect_answer_is_zero() -> None:
    masks = torch.from_numpy(disc(8, 8, (4, 4), 2))[None].byte()
    logits = 40 * torch.stack([1 - masks.float(), masks.float()], 1)
    assert dice_cross_entropy(logits, masks).item() == pytest.approx(0, abs=1e-6)


def test_dice_and_iou_of_each_image() -> None:
    a, b = torch.zeros(4, 4, 4, dtype=torch.bool), torch.zeros(4, 4, 4, dtype=torch.bool)
    a[0, :2], b[0, 1:3] = True, True  # half of each
    a[1], b[1] = True, True  # all
    b[2, 0, 0] = True  # missed
    dice, iou = dice_and_iou(a, b)  # the last is empty in both
    assert dice.tolist() == pytest.approx([0.5, 1, 0, 1])
    assert iou.tolist() == pytest.approx([1 / 3, 1, 0, 1])


def brute_edges(mask: np.ndarray) -> list[tuple[int, int]]:
    height, width = mask.shape
    inside = {(y, x) for y in range(height) for x in range(width) if mask[y, x]}
    around = ((0, 1), (1, 0), (0, -1), (-1, 0))
    return [(y, x) for y, x in sorted(inside) if any((y + j, x + i) not in inside for j, i in around)]


def brute_hausdorff95(a: np.ndarray, b: np.ndarray) -> float:
    first, second = brute_edges(a), brute_edges(b)

    def one_way(here: list[tuple[int, int]], there: list[tuple[int, int]]) -> float:
        nearest = [min(((y - v) ** 2 + (x - u) ** 2) ** 0.5 for v, u in there) for y, x in here]
        return float(np.percentile(nearest, 95))

    return max(one_way(first, second), one_way(second, first))


@pytest.mark.parametrize("seed", range(6))
def test_hausdorff95_is_that_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = rng.integers(9, 24, 2)
    pairs = []
    for _ in range(3):
        masks = [
            disc(height, width, (rng.uniform(0, height), rng.uniform(0, width)), rng.uniform(2, 8))
            | (rng.random((height, width)) > 0.97)
            for _ in range(2)
        ]
        pairs.append([mask if mask.any() else np.eye(height, width, dtype=bool) for mask in masks])
    a, b = (torch.from_numpy(np.stack(side)) for side in zip(*pairs, strict=True))
    expected = [brute_hausdorff95(*pair) for pair in pairs]
    assert hausdorff95(a, b).tolist() == pytest.approx(expected, abs=1e-5)


def test_hausdorff95_of_empty_masks() -> None:
    empty, full = torch.zeros(1, 3, 4, dtype=torch.bool), torch.ones(1, 3, 4, dtype=torch.bool)
    assert hausdorff95(empty, empty).item() == 0
    assert hausdorff95(empty, full).item() == 5
    assert hausdorff95(full, full).item() == 0


def test_edges_and_distances_of_a_square() -> None:
    mask = torch.zeros(1, 7, 9, dtype=torch.bool)
    mask[0, 2:5, 3:6] = True
    assert edges(mask).sum() == 8
    far = distance_to(mask)
    assert far[0, 3, 4] == 0
    assert far[0, 0, 0].item() == pytest.approx(13**0.5)
    assert far[0, 3, 8] == 3
