"""`polarvit train` and `polarvit finetune`."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polarvit.cli.errors import INTERRUPTED
from polarvit.cli.options import Device, Weights, check_device

if TYPE_CHECKING:
    from polarvit.training.recipe import Recipe

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one setting of the recipe; may be repeated.", metavar="KEY=VALUE"),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", file_okay=False, help="Folder of the run. Default: runs/ and the recipe's name."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in --out from its newest checkpoint.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of everything that is drawn (train.seed).")]
DataPath = Annotated[
    str | None,
    typer.Option("--data", help="Prepared folder, folder of class folders, or digits (data.path).", metavar="PATH"),
]


def register(app: typer.Typer) -> None:
    app.command("train")(train)
    app.command("finetune")(finetune)


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A shipped recipe (see polarvit recipes list) or a YAML file. Not needed with --resume.",
            metavar="RECIPE",
            show_default=False,
        ),
    ] = None,
    sets: Sets = None,
    out: Out = None,
    resume: Resume = False,
    device: Device = None,
    seed: Seed = None,
    data: DataPath = None,
) -> None:
    """Train a model from a recipe, evaluate it and save it.

    The run's folder holds the recipe, the log, checkpoints, final metrics and,
    in model/, the weights. Ctrl-C saves a checkpoint and says how to go on.

    \b
    polarvit train digits
    polarvit train own_images --data data/photos --out runs/photos
    polarvit train digits --set optim.lr=1e-3 --set train.steps=600
    polarvit train --resume --out runs/digits
    torchrun --nproc-per-node 2 -m polarvit train imagenet_vit_tiny
    """
    from polarvit.training.recipe import load

    source, out = located(recipe, out, resume)
    run(load(source, [*(sets or []), *_flags(seed, data)]), out, resume=resume, device=device)


def finetune(
    weights: Weights,
    recipe: Annotated[
        str, typer.Argument(help="A shipped recipe or a YAML file.", metavar="RECIPE", show_default=False)
    ],
    sets: Sets = None,
    out: Out = None,
    resume: Resume = False,
    device: Device = None,
    seed: Seed = None,
    data: DataPath = None,
) -> None:
    """Train weights you have on other data, as a recipe says.

    The weights decide the architecture; of the recipe's model options only the
    image size, dropout, stochastic depth and implementation apply. The classifier starts fresh
    if the number of classes differs.

    \b
    polarvit finetune runs/imagenet_polar_vit_tiny cub_polar_vit_tiny
    polarvit finetune runs/photos own_images --data data/other --out runs/other
    """
    from polarvit.training.recipe import load

    loaded = load(recipe, [*(sets or []), *_flags(seed, data)])
    run(
        starting_from(weights, loaded, Path(recipe).stem, sets or []),
        out or Path("runs") / f"{Path(recipe).stem}-finetuned",
        resume=resume,
        device=device,
    )


def located(recipe: str | None, out: Path | None, resume: bool) -> tuple[str | Path, Path]:
    """The recipe and the folder of a run; a run that is resumed knows its recipe."""
    if recipe is not None:
        if not out and Path(recipe).stem in ("", ".", ".."):
            raise typer.BadParameter(f"'{recipe}' names no folder for the run; say one", param_hint="--out")
        return recipe, out or Path("runs") / Path(recipe).stem
    if not resume:
        raise typer.BadParameter("missing; `polarvit recipes list` names the shipped ones", param_hint="RECIPE")
    if out is None:
        raise typer.BadParameter("missing; which run is to be resumed?", param_hint="--out")
    if not (out / "recipe.yaml").is_file():
        raise typer.BadParameter(f"{out} holds no run to resume", param_hint="--out")
    return out / "recipe.yaml", out


def starting_from(weights: str, recipe: Recipe, called: str, sets: list[str]) -> Recipe:
    """The recipe (`called` so) with these weights to start from, and their architecture.

    The recipe's own words on the model give way to the weights; what a person set (`sets`) must not contradict them.
    """
    from polarvit.cli.trained import registered, weights_folder
    from polarvit.models.registry import entry
    from polarvit.models.weights import ADAPTABLE, CONFIG, DRAWN, find, read_config
    from polarvit.provenance import without_paths
    from polarvit.training.recipe import apply

    folder = weights_folder(weights)
    stored = read_config(find(folder) / CONFIG)
    name = registered(stored["architecture"])
    config = entry(name).model.config_class.from_saved(stored["config"]).to_dict()
    asked: dict[str, Any] = {}
    for each in sets:
        apply(asked, each)
    wanted = asked.get("model", {})
    given = {"name": name, "pretrained": folder}
    wrong = [key for key in given if wanted.get(key, given[key]) != given[key]]
    wrong += [
        f"options.{key}"
        for key, value in wanted.get("options", {}).items()
        if key not in (*ADAPTABLE, *DRAWN) and value != config.get(key)
    ]
    if wrong:
        free = ", ".join(key for key in ADAPTABLE if key in config and key != "num_classes")
        raise typer.BadParameter(
            f"model.{wrong[0]} is decided by the weights; of the model's options only {free} can be set",
            param_hint="--set",
        )
    kept = {key: value for key, value in recipe.model.options.items() if key in ADAPTABLE and key != "num_classes"}
    options = {"img_size": config["img_size"], **{key: value for key, value in kept.items() if key in config}}
    model = replace(recipe.model, name=name, options=options, pretrained=folder)
    return replace(recipe, title=f"{name} from {without_paths(weights)}, fine-tuned by {called}", model=model)


def run(recipe: Recipe, out: Path, *, resume: bool, device: str | None) -> None:
    """Run a recipe and say where, how it went, and how to continue it."""
    from polarvit.training import checkpoint
    from polarvit.training import train as train_recipe
    from polarvit.training.loop import Interrupted

    check_device(device)
    say(f"{recipe.title}: {recipe.train.steps:,} steps of {recipe.train.batch_size} images -> {out}")
    if recipe.optim.warmup >= recipe.train.steps:
        say(f"the run ends within its warm-up of {recipe.optim.warmup:,} steps, so its rate never reaches optim.lr")
    again = f"continue with: {resume_command(out, device)}"
    try:
        scores = train_recipe(recipe, out, resume=resume, device=device)
    except Interrupted as stopped:
        say(f"saved at step {stopped.step}; {again}")
        raise typer.Exit(INTERRUPTED) from stopped
    except KeyboardInterrupt:
        if checkpoint.steps(out / "checkpoints"):
            say(f"stopped; the last checkpoint is whole, {again}")
        raise
    if scores is not None:
        say(f"{scores.line()} on {scores.count:,} images")
    say(f"weights in {out / 'model'}; try: polarvit predict IMAGE --weights {shlex.quote(str(out))}")


def resume_command(out: Path, device: str | None) -> str:
    """The command that continues a run, with as many processes as now."""
    words = ["train", "--resume", "--out", shlex.quote(str(out))]
    words += ["--device", device] if device else []
    world, local = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if world == 1:
        return " ".join(["polarvit", *words])
    nodes = ["--nnodes", str(world // local), "..."] if world > local else []
    return " ".join(["torchrun", *nodes, "--nproc-per-node", str(local), "-m", "polarvit", *words])


def say(text: str) -> None:
    """A line for people, once even when several processes run."""
    if os.environ.get("RANK", "0") == "0":
        typer.echo(text)


def _flags(seed: int | None, data: str | None) -> list[str]:
    """The short options as settings; a path is quoted, so that YAML reads it as text."""
    quoted = "" if data is None else "'" + data.replace("'", "''") + "'"
    return [*([f"train.seed={seed}"] if seed is not None else []), *([f"data.path={quoted}"] if data else [])]
