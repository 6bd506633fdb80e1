"""Images per second of the augmentation, beside a Pillow loader with four workers, for the HexFormer recipe.

    python benchmarks/augment_throughput.py --device cuda --seconds 10 --out results/augment_throughput.json

Both make batches of 128 synthetic images of 32 x 32: flip, padded crop, AutoAugment (CIFAR-10), normalise,
random erasing, MixUp or CutMix. The loader does all but the mixing in its workers, as that recipe does; on a
GPU its batches are copied there. Timed in turns, so that a busy machine slows both.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import PIL
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from polarvit.data import Augmentation, Augmenter, BatchPlan, ResidentDataset
from polarvit.data.augment.operations import Op
from polarvit.data.augment.policies import CIFAR10, level_value

BATCH, SIZE, CLASSES, LENGTH, WORKERS = 128, 32, 100, 10_000, 4
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


def pillow_batches(images: np.ndarray, labels: np.ndarray, device: torch.device) -> Iterator[None]:
    """Batches of the loader, mixed where the recipe mixes, without end."""
    loader = DataLoader(
        PillowDataset(images, labels),
        BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=WORKERS,
        persistent_workers=True,
        pin_memory=device.type == "cuda",
    )
    while True:
        for batch, _ in loader:
            batch = batch.to(device, non_blocking=True)
            if random.random() < RECIPE.mix_probability:
                share = random.random()
                batch = batch * share + batch[torch.randperm(BATCH, device=device)] * (1 - share)
            yield


def our_batches(images: np.ndarray, labels: np.ndarray, device: torch.device) -> Iterator[None]:
    """Batches of the augmentation, without end."""
    data = ResidentDataset("synthetic", images, labels, tuple(map(str, range(CLASSES))), device)
    plan, augmenter, step = BatchPlan(LENGTH, BATCH), Augmenter(RECIPE, CLASSES, SIZE), 0
    while True:
        augmenter(data, plan, step, device=device)
        step += 1
        yield


def rate(batches: Iterator[None], seconds: float, device: torch.device) -> float:
    """Images per second over about the given time."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(16):
            next(batches)
        if device.type == "cuda":
            torch.cuda.synchronize()
        count += 16
    return count * BATCH / (time.perf_counter() - start)


def machine(device: torch.device) -> dict[str, object]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pillow": PIL.__version__,
        "commit": commit or None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each of the two, in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")

    random.seed(arguments.seed)
    rng = np.random.default_rng(arguments.seed)
    images = rng.integers(0, 256, (LENGTH, SIZE, SIZE, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, LENGTH)
    device = torch.device(arguments.device)

    ours, pillow = our_batches(images, labels, device), pillow_batches(images, labels, device)
    rate(ours, 1.0, device)
    turns = 4
    ours_rates, pillow_rates = [], []
    for _ in range(turns):
        # Idle workers fill their queues: let them finish before we are timed, and drain those before they are.
        time.sleep(1.0)
        ours_rates.append(rate(ours, arguments.seconds / turns, device))
        for _ in range(2 * WORKERS + 1):
            next(pillow)
        pillow_rates.append(rate(pillow, arguments.seconds / turns, device))
    result = {
        "benchmark": "augment_throughput",
        "recipe": "HexFormer, CIFAR, 32 x 32, batch 128",
        "ours_images_per_second": round(float(np.median(ours_rates))),
        "pillow_images_per_second": round(float(np.median(pillow_rates))),
        "pillow_workers": WORKERS,
        "ratio": round(float(np.median(ours_rates) / np.median(pillow_rates)), 2),
        "turns": {"ours": [round(r) for r in ours_rates], "pillow": [round(r) for r in pillow_rates]},
        "seed": arguments.seed,
        "machine": machine(device),
    }
    print(f"ours            {result['ours_images_per_second']:>10,} images/s on {result['machine']['device']}")
    print(f"Pillow, {WORKERS} workers {result['pillow_images_per_second']:>9,} images/s")
    print(f"ratio           {result['ratio']:>10.2f}")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
