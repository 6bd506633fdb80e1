"""`polarvit recipes list`, `show`, `copy` and `keys`."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(help="A shipped recipe or a YAML file.", show_default=False)]
Full = Annotated[bool, typer.Option("--full", help="Every setting written out, bases merged, instead of the file.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Recipes: everything that decides a training run, in one file.")
    group.command("list")(list_recipes)
    group.command("show")(show)
    group.command("copy")(copy)
    group.command("keys")(list_keys)
    app.add_typer(group, name="recipes")


def list_recipes(
    pattern: Annotated[str, typer.Option("--pattern", help="Only names that match, e.g. 'cifar100*'.")] = "*",
) -> None:
    """List the recipes that come with the package.

    \b
    polarvit recipes list
    polarvit recipes list --pattern 'cub*'
    """
    from polarvit.tables import console, table
    from polarvit.training.recipe import load, shipped

    rows = [(name, load(name)) for name in fnmatch.filter(shipped(), pattern)]
    if not rows:
        raise typer.BadParameter(f"no recipe matches '{pattern}'", param_hint="--pattern")
    cells = [[name, f"{r.train.steps:,}", f"{r.train.batch_size:,}", r.data.path, r.title] for name, r in rows]
    listed = table("", ["recipe", "steps", "batch", "data", "what"], cells, text=["data", "what"])
    listed.columns[0].no_wrap = True  # names are for copying
    console().print(listed)


def show(name: Name, full: Full = False) -> None:
    """Print a recipe.

    \b
    polarvit recipes show digits
    polarvit recipes show cifar100_vit_tiny --full
    """
    typer.echo(text(name, full), nl=False)


def copy(
    name: Name,
    to: Annotated[
        Path | None, typer.Argument(help="The new file. Default: its name here.", dir_okay=False, show_default=False)
    ] = None,
    full: Full = False,
) -> None:
    """Copy a recipe to a file of your own, to change it.

    \b
    polarvit recipes copy digits mine.yaml
    polarvit train mine.yaml
    """
    target = to or Path(f"{Path(name).stem}.yaml")
    if target.exists():
        raise FileExistsError(f"{target}: already exists; choose another name")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text(name, full), encoding="utf-8")
    typer.echo(f"{target}: change it, then: polarvit train {target}")


def text(name: str, full: bool) -> str:
    """A recipe's file, or all of its settings; a recipe that cannot be used is an error either way."""
    from polarvit.training.recipe import dump, find, load

    recipe = load(name)
    return dump(recipe) if full else find(name).read_text(encoding="utf-8")


def list_keys(
    pattern: Annotated[str, typer.Argument(help="Only keys that match, e.g. 'optim.*'.")] = "*",
) -> None:
    """List every key of a recipe with its type, its default and what it means.

    \b
    polarvit recipes keys
    polarvit recipes keys 'augment.mix*'
    """
    from polarvit.tables import console, prose
    from polarvit.training.recipe_keys import keys

    rows = [(k.path, k.kind, k.default or "required", k.meaning) for k in keys() if fnmatch.fnmatch(k.path, pattern)]
    if not rows:
        groups = ", ".join(dict.fromkeys(k.path.split(".")[0] for k in keys()))
        raise typer.BadParameter(f"no key matches '{pattern}'; keys begin with {groups}", param_hint="PATTERN")
    console().print(prose("", ["key", "type", "default", "meaning"], rows))
