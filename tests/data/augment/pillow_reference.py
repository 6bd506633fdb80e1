"""The operations as Pillow does them, one image at a time: what the batched ones are compared with."""

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

from polarvit.data.augment.operations import Op, Rendering
from polarvit.data.augment.pixels import pad_pixels

_RESAMPLING = {"nearest": Image.Resampling.NEAREST, "bicubic": Image.Resampling.BICUBIC}
_ENHANCERS = {
    Op.BRIGHTNESS: ImageEnhance.Brightness,
    Op.CONTRAST: ImageEnhance.Contrast,
    Op.COLOR: ImageEnhance.Color,
    Op.SHARPNESS: ImageEnhance.Sharpness,
}


def apply(op: Op, image: Image.Image, value: float, rendering: Rendering | None = None) -> Image.Image:
    """One operation on one RGB image."""
    rendering = rendering or Rendering()
    if op in _ENHANCERS:
        return _ENHANCERS[op](image).enhance(value)
    if op is Op.ROTATE and rendering.rotate == "nearest":
        turned = image.convert("RGBA").rotate(value)
        ground = Image.new("RGBA", turned.size, (*rendering.fill, 128))
        return Image.composite(turned, ground, turned).convert("RGB")
    if op is Op.ROTATE:
        return image.rotate(value, resample=_RESAMPLING[rendering.rotate], fillcolor=rendering.fill)
    if op in (Op.SHEAR_X, Op.SHEAR_Y, Op.TRANSLATE_X, Op.TRANSLATE_Y):
        matrix, resampling = {
            Op.SHEAR_X: ((1, value, 0, 0, 1, 0), rendering.shear),
            Op.SHEAR_Y: ((1, 0, 0, value, 1, 0), rendering.shear),
            Op.TRANSLATE_X: ((1, 0, value * image.width, 0, 1, 0), rendering.translate),
            Op.TRANSLATE_Y: ((1, 0, 0, 0, 1, value * image.height), rendering.translate),
        }[op]
        return image.transform(
            image.size, Image.Transform.AFFINE, matrix, _RESAMPLING[resampling], fillcolor=rendering.fill
        )
    if op is Op.SOLARIZE_ADD:
        return image.point([min(255, i + int(value)) if i < 128 else i for i in range(256)] * 3)
    return {
        Op.IDENTITY: lambda: image,
        Op.INVERT: lambda: ImageOps.invert(image),
        Op.SOLARIZE: lambda: ImageOps.solarize(image, value),
        Op.POSTERIZE: lambda: ImageOps.posterize(image, int(value)),
        Op.AUTOCONTRAST: lambda: ImageOps.autocontrast(image),
        Op.EQUALIZE: lambda: ImageOps.equalize(image),
    }[op]()


def pictures(count: int, height: int, width: int, seed: int) -> np.ndarray:
    """Images uint8 [count, H, W, 3] of many characters: noise, smooth, dark, flat, few colours, flat channels."""
    rng = np.random.default_rng(seed)
    out = rng.integers(0, 256, (count, height, width, 3), dtype=np.uint8)
    for i in range(count):
        if i % 6 == 1:
            out[i] = _natural(rng, height, width)
        elif i % 6 == 2:
            out[i] = _natural(rng, height, width) // 3 + 20
        elif i % 6 == 3:
            out[i] = rng.integers(0, 256, 3)
        elif i % 6 == 4:
            out[i] = rng.choice([0, 3, 250, 255], (height, width, 3))
        elif i % 6 == 5:
            out[i, ..., 1] = 77
    return out


def _natural(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Smooth shapes with edges and a little grain, as photographs have."""
    coarse = rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).filter(ImageFilter.SMOOTH)
    image = np.asarray(smooth).astype(np.int64) + rng.integers(-4, 5, (height, width, 3))
    image[height // 3 : height // 2, width // 4 :] += 60
    return image.clip(0, 255).astype(np.uint8)


def batch(images: np.ndarray) -> Tensor:
    """uint8 [n, H, W, 3] -> the layout of the augmentation."""
    return pad_pixels(torch.from_numpy(images.copy()))


def arrays(images: Tensor) -> np.ndarray:
    """The layout of the augmentation -> uint8 [n, H, W, 3]."""
    return images[..., :3].numpy()
