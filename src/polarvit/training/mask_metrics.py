"""How well masks agree: the benchmark's soft Dice, and per image what clinicians use: Dice, IoU, Hausdorff distance."""

from __future__ import annotations

import torch
from torch import Tensor

from polarvit.kernels.images.sync import summed

EPS = 1e-7
"""Smallest denominator of the soft Dice."""
PERCENTILE = 0.95


def soft_dice(probabilities: Tensor, masks: Tensor) -> Tensor:
    """Soft Dice of a batch, that of all processes together, as the Hyperbolic U-Net benchmark computes it: a scalar.

    For each class c, over all pixels of all images together,

        dice_c = 2 sum p_c y_c / max(sum p_c + sum y_c, 1e-7),

    and the mean over classes, background too; a class without a true pixel in the batch counts as 1.
    probabilities [B, C, H, W], masks integer [B, H, W].
    """
    truth = one_hot(masks, probabilities)
    each = (probabilities * truth, probabilities + truth, truth)
    return dice_of(*summed(torch.stack([x.sum((0, 2, 3)) for x in each])))


def dice_of(overlap: Tensor, total: Tensor, true: Tensor) -> Tensor:
    """The soft Dice of pixels whose sums of p y, p + y and y by class [C] are these: a scalar."""
    dice = 2 * overlap / total.clamp_min(EPS)
    return torch.where(true > 0, dice, torch.ones_like(dice)).mean()


def pixel_sums(probabilities: Tensor, masks: Tensor) -> Tensor:
    """The sums of p y, p + y and y of each image by class: float64 [B, 3, C].

    Those of a batch are their sums, so `dice_of(*pixel_sums(p, y).sum(0))` is `soft_dice(p, y)`, whatever the batch.
    """
    truth = one_hot(masks, probabilities)
    each = (probabilities * truth, probabilities + truth, truth)
    return torch.stack([x.sum((2, 3), dtype=torch.float64) for x in each], 1)


def one_hot(masks: Tensor, like: Tensor) -> Tensor:
    """Masks [B, H, W] as [B, C, H, W] of 0 and 1 in the dtype of `like` [B, C, H, W]; never waits for a device."""
    classes = torch.arange(like.shape[1], device=masks.device).view(-1, 1, 1)
    return (masks.unsqueeze(1) == classes).to(like.dtype)


def dice_and_iou(predicted: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    """Dice 2|A B|/(|A| + |B|) and IoU |A B|/|A or B| of the foreground, image by image: float64 [B] each.

    predicted and masks bool [B, H, W]. Two empty masks agree: 1.
    """
    overlap = (predicted & masks).sum((1, 2)).double()
    union = (predicted | masks).sum((1, 2)).double()
    empty = union == 0
    dice = torch.where(empty, 1.0, 2 * overlap / (overlap + union).clamp_min(1))
    return dice, torch.where(empty, 1.0, overlap / union.clamp_min(1))


def hausdorff95(predicted: Tensor, masks: Tensor) -> Tensor:
    """95th-percentile Hausdorff distance of the foreground in pixels, image by image: float64 [B].

    The larger of two numbers: the 95th percentile (linear) of the distances from the edge of A to the nearest edge of
    B, and the same from B to A. An edge pixel has a neighbour (of four) outside; beyond the image all is outside.
    Two empty masks: 0. If one alone is empty there is no distance; the diagonal of the image stands for it.
    """
    first, second = edges(predicted), edges(masks)
    to_first, to_second = distance_to(first), distance_to(second)
    height, width = masks.shape[1:]
    diagonal = float((height**2 + width**2) ** 0.5)
    found = []
    for a, b, near_a, near_b in zip(first, second, to_first, to_second, strict=True):
        if a.any() and b.any():
            ends = [near[edge].double().quantile(PERCENTILE) for near, edge in ((near_b, a), (near_a, b))]
            found.append(torch.maximum(*ends))
        else:
            found.append(near_a.new_tensor(diagonal if a.any() or b.any() else 0.0, dtype=torch.float64))
    return torch.stack(found)


def edges(masks: Tensor) -> Tensor:
    """Pixels of bool [B, H, W] with one of their four neighbours outside."""
    ringed = torch.nn.functional.pad(masks, (1, 1, 1, 1))
    inner = ringed[:, :-2, 1:-1] & ringed[:, 2:, 1:-1] & ringed[:, 1:-1, :-2] & ringed[:, 1:-1, 2:]
    return masks & ~inner


def distance_to(points: Tensor) -> Tensor:
    """Distance of every pixel to the nearest point of bool [B, H, W]: float32 [B, H, W], exact; far if there is none.

    Squared distances are the min-plus product with a parabola along one axis and then along the other,
    d2(y, x) = min over (v, u) of (y - v)^2 + (x - u)^2: whole numbers all the way.
    """
    far = 2 * (points.shape[1] + points.shape[2]) ** 2
    squared = torch.where(points, 0, far).to(torch.int32)
    for axis in (1, 2):
        squared = _parabolas(squared.movedim(axis, -1)).movedim(-1, axis)
    return squared.float().sqrt()


def _parabolas(values: Tensor) -> Tensor:
    """min over j of values[..., j] + (i - j)^2."""
    places = torch.arange(values.shape[-1], device=values.device, dtype=torch.int32)
    lowest = values.clone()
    for j in range(values.shape[-1]):
        torch.minimum(lowest, values[..., j : j + 1] + (places - j).square(), out=lowest)
    return lowest
