"""Models by what a person calls them: a run folder, a folder of weights, a packaged tag, a hub id."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from polarvit.data.augment.config import Augmentation
from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.sources.source import SIDE
from polarvit.models import VisionModel, list_models
from polarvit.models.registry import entry
from polarvit.models.weights import CONFIG, WeightsError, check_fit, load_pretrained
from polarvit.training import checkpoint
from polarvit.training.recipe import Data, Model, Recipe, Train, Watch, load
from polarvit.training.sets import image_size
from polarvit.training.task import make_augmenter

RECIPE, FINAL = "recipe.yaml", ("model", "model-ema")
"""What a run folder holds."""


@dataclass(frozen=True)
class Trained:
    """A model with its weights, and the recipe that says how its images are prepared."""

    model: VisionModel
    recipe: Recipe
    """Of its run; for weights alone, one made of their config, with an empty `data.path`."""
    weights: str
    """Which weights these are, for messages."""

    def augmenter(self) -> Augmenter:
        """Prepares images for evaluation as the model was evaluated in training."""
        return make_augmenter(self.recipe, self.model.num_classes, image_size(self.recipe))

    def on(self, data: str | None) -> Trained:
        """The same model on other data (None: its own)."""
        return replace(self, recipe=replace(self.recipe, data=replace(self.recipe.data, path=data))) if data else self


def find_model(name: str) -> Trained:
    """The model that `name` means, on the CPU, in evaluation mode."""
    folder = weights_folder(name)
    run = Path(folder).parent
    if Path(folder).name not in FINAL or not (run / RECIPE).is_file():
        model = load_pretrained(folder)
        return Trained(model, recipe_of(model), folder)
    recipe = load(run / RECIPE)
    if (Path(folder) / CONFIG).is_file():
        return Trained(load_pretrained(folder), recipe, folder)
    return unfinished(run, recipe)


def weights_folder(name: str) -> str:
    """Where the weights that `name` means are: inside a run folder, else `name` itself."""
    path = Path(name)
    if (path / RECIPE).is_file():
        return str(path / FINAL[0])
    if not path.exists() and path.parent != Path() and path.parent.is_dir():
        raise WeightsError(f"{name}: no such folder")  # before it is taken for a hub id
    return name


def registered(architecture: str) -> str:
    """The registered name of an architecture, which saved weights may also call by its class."""
    for name in list_models():
        if architecture in (name, entry(name).model.__name__):
            return name
    raise WeightsError(f"unknown architecture '{architecture}'; known: {', '.join(list_models())}")


def unfinished(run: Path, recipe: Recipe) -> Trained:
    """The model of a run that is still going or was interrupted: its newest whole checkpoint."""
    saved = checkpoint.load_newest(run / "checkpoints")
    if saved is None:
        raise WeightsError(f"{run}: the run has not saved anything yet")
    parts, state = saved
    try:
        described = json.loads((run / "environment.json").read_text(encoding="utf-8"))
        network = entry(recipe.model.name.partition(".")[0]).model
        check_fit(parts["model"], lambda: network.from_config(described["config"]), "its checkpoint")
        model = network.from_config(described["config"])
        model.class_names = described.get("class_names")
        if "padding" in described:
            model.default_cfg["padding"] = described["padding"]
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(f"{run / 'environment.json'}: does not describe the model ({error})") from error
    dtype = next(tensor.dtype for tensor in parts["model"].values() if tensor.is_floating_point())  # not a counter's
    model.to(dtype).load_state_dict(parts["model"])
    return Trained(model.eval(), recipe, f"{run} at step {state['step']}")


def recipe_of(model: VisionModel) -> Recipe:
    """How images are prepared for weights that come without a run: as their config says."""
    cfg = model.default_cfg
    height, width = model.config.image
    if height != width:
        raise WeightsError(f"{model.architecture}: takes images of {height} x {width}; only squares are prepared here")
    resize = max(height, round(height / cfg["crop_pct"]))
    if resize > SIDE:
        raise WeightsError(
            f"{model.architecture}: crop_pct {cfg['crop_pct']} would make images of {resize} pixels a side"
        )
    return Recipe(
        title=model.architecture,
        model=Model(registered(model.architecture), {"img_size": height}),
        data=Data("", resize=resize),
        augment=Augmentation(mean=cfg["mean"], std=cfg["std"], interpolation=cfg["interpolation"]),
        train=Train(precision="fp32"),
        watch=Watch(eval_batch=8) if model.task == "segmentation" else Watch(),  # one soft Dice for each, as published
    )
