"""From a recipe to the model and the optimizer it names."""

from __future__ import annotations

from polarvit.data.augment.pipeline import Augmenter
from polarvit.data.errors import DataError
from polarvit.data.sampler import BatchPlan
from polarvit.models import VisionModel, calibrate, create_model
from polarvit.optim import AmbientRiemannianAdamW, RiemannianAdamW, param_groups
from polarvit.training.ahead import compile_kernels_ahead
from polarvit.training.distributed import Place
from polarvit.training.recipe import Recipe
from polarvit.training.sets import Sets
from polarvit.training.step import seed_step

CALIBRATION_IMAGES = 128


def build_model(recipe: Recipe, data: Sets, plan: BatchPlan, here: Place, *, calibrated: bool) -> VisionModel:
    """The recipe's model on its device, drawn from the seed; calibrated on the first batch if asked for."""
    seed_step(recipe.train.seed, -1)
    options = {"num_classes": len(data.classes), **recipe.model.options}
    if recipe.model.pretrained:
        model = create_model(recipe.model.pretrained, pretrained=True, **options)
    else:
        model = create_model(recipe.model.name, **options)
    size, augment = data.augmenter.image_size, recipe.augment
    model.default_cfg.update(  # what the saved weights will ask of their images
        mean=augment.mean,
        std=augment.std,
        interpolation=augment.interpolation,
        crop_pct=size / (recipe.data.resize or size),
    )
    if data.padding is not None:
        model.default_cfg["padding"] = data.padding
    try:
        model.class_names = data.classes
    except ValueError as error:
        raise DataError(f"{data.train.name}: {error}; rename it") from error
    if recipe.train.precision == "fp64":
        model = model.double()
    model = model.to(here.device)
    model.set_grad_checkpointing(recipe.train.grad_checkpointing)
    calibrated = recipe.model.calibrate and calibrated and not recipe.model.pretrained and model.calibrated
    ahead = recipe.train.compile and here.device.type == "cuda"
    if calibrated or ahead:
        # An augmenter of its own: every process calibrates on the head of the same global batch.
        augmenter = Augmenter(data.augmenter.config, len(data.classes), data.augmenter.image_size)
        images, _ = augmenter(data.train, plan, 0, device=here.device)
        images = images.to(next(model.parameters()).dtype)
        if ahead:
            at_once = recipe.train.batch_size // recipe.train.accumulate
            compile_kernels_ahead(model, images[:at_once], recipe.train.precision)
        if calibrated:
            calibrate(model, images[:CALIBRATION_IMAGES])
    return model


def build_optimizer(recipe: Recipe, model: VisionModel, *, capturable: bool) -> RiemannianAdamW:
    """Riemannian AdamW over the model's parameters, grouped by role, in the arithmetic asked for."""
    optim = recipe.optim
    told = {"decay_tables": optim.decay_tables, "decay_gains": optim.decay_gains}
    groups = param_groups(model, optim.lr, optim.weight_decay, **told)
    compile = None if recipe.train.compile else False
    kind = AmbientRiemannianAdamW if optim.arithmetic == "ambient" else RiemannianAdamW
    return kind(groups, betas=optim.betas, eps=optim.eps, capturable=capturable, compile=compile)
