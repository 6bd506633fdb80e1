"""The HexFormer recipe as a Pillow loader: what the augmentation is compared with."""

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor
from torch.nn.functional import one_hot
from torch.utils.data import DataLoader, Dataset

from polarvit.data import Augmentation
from polarvit.data.augment.operations import Op
from polarvit.data.augment.policies import CIFAR10, level_value

BATCH, SIZE, CLASSES, WORKERS = 128, 32, 100, 4
RECIPE = Augmentation(
    mean=(0.5070, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    flip=0.5,
    crop_padding=4,
    auto_augment="cifar10",
    erase_probability=0.25,
    erase_area=(0.02, 0.4),
    erase_mode="mean",
    mixup_alpha=1.0,
    cutmix_alpha=1.0,
    mix_probability=0.5,
    label_smoothing=0.1,
)
GREY = (128, 128, 128)
MEAN, STD = (torch.tensor(x).view(3, 1, 1) for x in (RECIPE.mean, RECIPE.std))


def affine(*matrix: float, resample: int = Image.Resampling.NEAREST) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix, resample, fillcolor=GREY)


def rotate(image: Image.Image, degrees: float) -> Image.Image:
    turned = image.convert("RGBA").rotate(degrees)
    return Image.composite(turned, Image.new("RGBA", turned.size, (128,) * 4), turned).convert(image.mode)


PILLOW: dict[Op, Callable[[Image.Image, float], Image.Image]] = {
    Op.SHEAR_Y: lambda i, v: affine(1, 0, 0, v, 1, 0, resample=Image.Resampling.BICUBIC)(i),
    Op.TRANSLATE_X: lambda i, v: affine(1, 0, v * SIZE, 0, 1, 0)(i),
    Op.TRANSLATE_Y: lambda i, v: affine(1, 0, 0, 0, 1, v * SIZE)(i),
    Op.ROTATE: rotate,
    Op.INVERT: lambda i, v: ImageOps.invert(i),
    Op.SOLARIZE: ImageOps.solarize,
    Op.POSTERIZE: lambda i, v: ImageOps.posterize(i, int(v)),
    Op.BRIGHTNESS: lambda i, v: ImageEnhance.Brightness(i).enhance(v),
    Op.CONTRAST: lambda i, v: ImageEnhance.Contrast(i).enhance(v),
    Op.COLOR: lambda i, v: ImageEnhance.Color(i).enhance(v),
    Op.SHARPNESS: lambda i, v: ImageEnhance.Sharpness(i).enhance(v),
    Op.AUTOCONTRAST: lambda i, v: ImageOps.autocontrast(i),
    Op.EQUALIZE: lambda i, v: ImageOps.equalize(i),
}


class PillowDataset(Dataset[tuple[Tensor, int]]):
    """The recipe one image at a time."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[index])
        if random.random() < RECIPE.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        left, top = random.randint(0, 8), random.randint(0, 8)
        image = ImageOps.expand(image, RECIPE.crop_padding).crop((left, top, left + SIZE, top + SIZE))
        for op, probability, level in random.choice(CIFAR10):
            if random.random() < probability:
                base, swing = level_value(op, level)
                image = PILLOW[op](image, base + random.choice((-1, 1)) * swing)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        pixels = pixels.to(torch.float32).div_(255).sub_(MEAN).div_(STD)
        if random.random() < RECIPE.erase_probability:
            erase(pixels)
        return pixels, int(self.labels[index])


def erase(image: Tensor) -> None:
    for _ in range(100):
        area, aspect = SIZE * SIZE * random.uniform(*RECIPE.erase_area), random.uniform(*RECIPE.erase_aspect)
        height, width = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        if height < SIZE and width < SIZE:
            top, left = random.randint(0, SIZE - height), random.randint(0, SIZE - width)
            image[:, top : top + height, left : left + width] = MEAN
            return


def box(share: float) -> tuple[slice, slice]:
    """A cut of about 1 - share of the area, its centre anywhere, clipped."""
    half = int(SIZE * (1 - share) ** 0.5) // 2
    y, x = random.randrange(SIZE), random.randrange(SIZE)
    return slice(max(y - half, 0), min(y + half, SIZE)), slice(max(x - half, 0), min(x + half, SIZE))


def mix(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """MixUp or CutMix of a batch, as often as the recipe says."""
    if random.random() >= RECIPE.mix_probability:
        return images, targets
    other = torch.randperm(len(images), device=images.device)
    if random.random() < RECIPE.mix_switch:
        rows, columns = box(random.betavariate(RECIPE.cutmix_alpha, RECIPE.cutmix_alpha))
        images[..., rows, columns] = images[other][..., rows, columns]
        share = 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / SIZE**2
    else:
        share = random.betavariate(RECIPE.mixup_alpha, RECIPE.mixup_alpha)
        images = images * share + images[other] * (1 - share)
    return images, targets * share + targets[other] * (1 - share)


def pillow_batches(images: np.ndarray, labels: np.ndarray, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the loader with soft targets, mixed on the device, without end."""
    loader = DataLoader(
        PillowDataset(images, labels),
        BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=WORKERS,
        persistent_workers=True,
        pin_memory=device.type == "cuda",
    )
    smooth = RECIPE.label_smoothing
    while True:
        for batch, names in loader:
            batch, names = batch.to(device, non_blocking=True), names.to(device, non_blocking=True)
            yield mix(batch, one_hot(names, CLASSES) * (1 - smooth) + smooth / CLASSES)
