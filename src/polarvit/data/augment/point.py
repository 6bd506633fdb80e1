"""Operations on the colours of a batch, equal to Pillow's bit for bit.

Images are uint8 [n, H, W, 4] (`pixels`); a parameter is [n], one for each image, in the type that the
arithmetic needs. Pillow's rounding is part of the definition: enhancements blend in float32 and truncate,
grey is an integer sum with ITU weights, autocontrast is float64, equalize is integer division.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the values that are not below the threshold int16 [n]; all of them at 0."""
    bright = images.to(torch.int16) >= _per_image(threshold)
    return images ^ (bright.to(torch.uint8) * 255)


def solarize_add(images: Tensor, amount: Tensor) -> Tensor:
    """Add an amount int16 [n] to the values below 128, no further than 255."""
    wide = images.to(torch.int16)
    return (wide + (wide < 128) * _per_image(amount)).clamp_(max=255).to(torch.uint8)


def posterize(images: Tensor, mask: Tensor) -> Tensor:
    """Keep the bits of each value that are set in mask uint8 [n]."""
    return images & _per_image(mask)


def enhance(images: Tensor, factor: Tensor, counts: Sequence[int]) -> Tensor:
    """Brightness, contrast, colour and sharpness of as many images as `counts` says, one after the other.

    Each is a blend from a degenerate image (factor 0) through the image (1) and beyond, truncated to 0..255;
    the degenerate image is black, the mean grey, the grey image or the smoothed image. factor is float32 [n].
    The product and the sum are two roundings in float32, as in Pillow: a fused multiply-add would differ.
    """
    degenerate = torch.zeros(images.shape, dtype=torch.float32, device=images.device)
    _, contrast, color, sharpness = degenerate.split(list(counts))
    of_contrast, of_color, of_sharpness = images.split(list(counts))[1:]
    if len(contrast):
        contrast.copy_(_per_image(_mean_grey(of_contrast)))
    if len(color):
        color.copy_(grey(of_color)[..., None])
    if len(sharpness):
        _smooth(of_sharpness, sharpness)
    change = (images.to(torch.float32) - degenerate) * _per_image(factor)
    return change.add_(degenerate).clamp_(0, 255).to(torch.uint8)


def grey(images: Tensor) -> Tensor:
    """Luminance with ITU-R 601 weights in 16-bit fixed point: int32 [n, H, W]."""
    red, green, blue, _ = images.to(torch.int32).unbind(-1)
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16


def _mean_grey(images: Tensor) -> Tensor:
    """Rounded half up: int64 [n]."""
    count = images.shape[1] * images.shape[2]
    return (2 * grey(images).sum((1, 2)) + count) // (2 * count)


def _smooth(images: Tensor, out: Tensor) -> None:
    """The image smoothed by (1 1 1; 1 5 1; 1 1 1) / 13 into float32 `out`; the border of one pixel stays."""
    wide = images.to(torch.int16)
    rows = wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]
    total = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:] + 4 * wide[:, 1:-1, 1:-1]
    out.copy_(images)
    # total / 13 rounded to nearest; 2 total + 13 is odd, so it is never half way.
    out[:, 1:-1, 1:-1] = torch.floor((2 * total + 13).to(torch.float32) / 26)


def _bins(images: Tensor) -> Tensor:
    """The entry of each value in tables [n, 4, 256] laid end to end: int64 [n * H * W * 4]."""
    n = images.shape[0]
    start = torch.arange(0, n * 1024, 256, device=images.device).view(n, 1, 4)
    return (images.view(n, -1, 4) + start).view(-1)


def _extrema(images: Tensor) -> tuple[Tensor, Tensor]:
    flat = images.view(images.shape[0], -1, 4)
    return flat.amin(1), flat.amax(1)


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel so that its darkest value becomes 0 and its brightest 255."""
    low, high = (end.to(torch.float64)[..., None] for end in _extrema(images))
    # A number divided by a tensor would be its reciprocal times the number: two roundings.
    scale = torch.full_like(low, 255.0) / (high - low).clamp(min=1.0)
    values = torch.arange(256, device=images.device, dtype=torch.float64)
    stretched = (values * scale + -low * scale).clamp_(0, 255)
    table = torch.where(high > low, stretched, values).to(torch.uint8)
    return table.view(-1)[_bins(images)].view_as(images)


def equalize(images: Tensor) -> Tensor:
    """Spread each channel's values so that its histogram is flat, with Pillow's integer steps."""
    bins = _bins(images)
    ones = torch.ones((), dtype=torch.int32, device=images.device).expand(bins.shape)
    counts = torch.zeros(images.shape[0] * 1024, dtype=torch.int32, device=images.device).scatter_add_(0, bins, ones)
    counts = counts.view(-1, 4, 256)
    brightest = counts.gather(-1, _extrema(images)[1].to(torch.int64)[..., None])
    step = (images.shape[1] * images.shape[2] - brightest) // 255
    below = counts.cumsum(-1, dtype=torch.int32) - counts
    values = torch.arange(256, device=images.device, dtype=torch.int32)
    table = torch.where(step > 0, ((step // 2 + below) // step.clamp(min=1)).clamp_(max=255), values)
    return table.to(torch.uint8).view(-1)[bins].view_as(images)
