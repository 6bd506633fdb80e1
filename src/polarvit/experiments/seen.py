"""What trained models make of the test images: every image once, or some of them with noise.

Evaluation runs in batches of one size. A polar model on a CPU is compiled first when there is enough to do: that takes
a minute or two and makes every image about three times as fast. Where there is no C++ compiler it runs as it is.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from polarvit.data.augment.config import Augmentation
from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.sampler import SequentialPlan
from polarvit.experiments.report.collect import Seen
from polarvit.geometry import PolarPoint
from polarvit.models import PolarViT, VisionModel
from polarvit.tables import with_bar
from polarvit.training.evaluate import outputs
from polarvit.training.recipe import Data, Model, Recipe
from polarvit.training.sets import open_split

BATCH = {"cpu": 64, "cuda": 500}
WORTH_COMPILING = 3000
"""Images from which on compiling pays on a CPU."""


@dataclass(frozen=True)
class Images:
    """Test images as they are: pixels [n, 3, H, W] in [0, 1]."""

    pixels: Tensor
    labels: np.ndarray
    classes: tuple[str, ...]
    of: int
    """Images in the split."""

    def __len__(self) -> int:
        return len(self.labels)

    def some(self, count: int) -> Images:
        """At most `count` of them, evenly spaced."""
        rows = np.linspace(0, len(self) - 1, min(count, len(self))).round().astype(int)
        return Images(self.pixels[rows], self.labels[rows], self.classes, self.of)


def open_images(path: str, model: VisionModel, split: str = "test") -> Images:
    """The images of a split, cut to the size `model` takes."""
    size = model.config.image[0]
    plain = Augmentation(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), interpolation=model.default_cfg["interpolation"])
    resize = max(size, round(size / model.default_cfg["crop_pct"]))
    recipe = Recipe("images", Model("vit_tiny", {"img_size": size}), Data(path, resize=resize), plain)
    cpu = torch.device("cpu")
    data = open_split(recipe, split, cpu, training=False)
    augmenter = Augmenter(plain, len(data.classes), size, resize=resize)
    plan = SequentialPlan(len(data), 1000)
    pixels = torch.cat([augmenter.evaluation_batch(data, plan, step, device=cpu)[0] for step in range(plan.steps)])
    return Images(pixels, np.asarray(data.labels), data.classes, len(data))


@torch.no_grad()
def see(model: VisionModel, images: Images, device: torch.device, *, noise: float = 0.0, seed: int = 0) -> Seen:
    """Probabilities and pooled features of every image; `noise` is the standard deviation added to pixels in [0, 1].

    The noise of an image depends on the seed and its place alone: every model and level sees the same, scaled.
    """
    batch, count = BATCH[device.type], len(images)
    dtype = next(model.parameters()).dtype
    mean, std = (torch.tensor(model.default_cfg[key]).view(3, 1, 1) for key in ("mean", "std"))
    probabilities, features, polar = [], [], False
    for start in with_bar(range(0, count, batch)):
        x = images.pixels[start : start + batch]
        if noise:
            x = (x + noise * grain(range(start, start + len(x)), x.shape[1:], seed)).clamp(0, 1)
        x = (x - mean) / std
        filled = torch.cat([x, x.new_zeros(batch - len(x), *x.shape[1:])])  # one shape: one compilation
        tokens, logits = outputs(model, filled.to(device=device, dtype=dtype), device)
        polar = isinstance(tokens, PolarPoint)
        probabilities.append(torch.softmax(logits[: len(x)].double(), -1).cpu().numpy())
        features.append(model.forward_head(tokens, pre_logits=True)[: len(x)].double().cpu().numpy())
    return Seen(
        images.classes,
        images.labels,
        np.concatenate(probabilities),
        np.concatenate(features),
        (images.pixels * 255).round().byte().permute(0, 2, 3, 1).numpy(),
        float(model.k) if polar else None,  # type: ignore[arg-type]
        images.of,
    )


def grain(places: range, shape: torch.Size, seed: int) -> Tensor:
    """Standard normal noise for the images at these places [n, 3, H, W]."""
    generator = torch.Generator()
    return torch.stack([torch.randn(shape, generator=generator.manual_seed(seed * 10**6 + place)) for place in places])


def ready(model: VisionModel, device: torch.device, count: int) -> bool:
    """Bring a model to its device, compiled where that pays for `count` images; returns whether it is compiled."""
    model.to(device)
    if device.type != "cpu" or count < WORTH_COMPILING or not isinstance(model, PolarViT):
        return False
    channels, height, width = model.default_cfg["input_size"]
    model.compile_blocks(evaluation=True)
    try:
        with torch.no_grad():
            model(torch.zeros(BATCH["cpu"], channels, height, width, dtype=next(model.parameters()).dtype))
    except Exception as error:  # a compiler that is missing or broken raises nearly anything
        warnings.warn(f"the model runs slowly, it could not be compiled ({type(error).__name__})", stacklevel=2)
        model.forget_compiled()
        return False
    return True


def weights_of(name: str) -> str:
    """The weights in a run folder, else `name` itself: a packaged tag, a folder or a hub id."""
    return str(Path(name) / "model") if (Path(name) / "recipe.yaml").is_file() else name
