"""`polarvit reproduce NAME` and the short form `polarvit precision`."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

from polarvit.cli.options import Device, check_device
from polarvit.cli.train import Sets
from polarvit.experiments import EXPERIMENTS, Settings

Out = Annotated[
    Path, typer.Option("--out", "-o", file_okay=False, help="Folder for the JSON and the picture; created if missing.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Toy models on digits where models train, elsewhere fewer samples.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random draw.")]

OPTIONS = {
    "seeds": "--seeds", "seed_list": "--seeds", "steps": "--steps", "only": "--only", "runs": "--runs",
    "data": "--data", "device": "--device", "sets": "--set", "side_by_side": "--side-by-side", "minutes": "--minutes",
    "weights": "--weights", "images": "--images",
}  # fmt: skip
"""Settings that only some experiments look at, by the option that gives them."""


def register(app: typer.Typer) -> None:
    app.command("precision")(precision)
    app.command("reproduce")(reproduce)


def precision(out: Out = Path("results"), quick: Quick = False, seed: Seed = 0) -> None:
    """Measure float32 error against radius: polar, ambient, geoopt, hypll; beside the paper's table."""
    run_experiment("precision", Settings(out, quick, seed))


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Name of an experiment, see --list; of several, if all train models.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    listing: Annotated[
        bool,
        typer.Option(
            "--list",
            help="Every table and figure, or the named one: the paper's values, ours from --out, or what is due.",
        ),
    ] = False,
    out: Out = Path("results"),
    quick: Quick = False,
    seed: Seed = 0,
    seeds: Annotated[
        str, typer.Option("--seeds", help="Number of seeds, from --seed on; or which, with commas: 0,2,5.")
    ] = "1",
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Steps of every training run. Default: the recipe's.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this row of the table; may be repeated.", metavar="ROW")
    ] = None,
    runs: Annotated[
        Path, typer.Option("--runs", file_okay=False, help="Folder for training runs; what is finished there stays.")
    ] = Path("runs"),
    data: Annotated[
        str | None,
        typer.Option(
            "--data", help="The prepared data; of segmentation, the folder that holds its sets.", metavar="PATH"
        ),
    ] = None,
    device: Device = None,
    sets: Sets = None,
    side_by_side: Annotated[
        int, typer.Option("--side-by-side", min=1, help="Training runs at the same time on one GPU, under CUDA MPS.")
    ] = 1,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0, help="Save and stop after so long; the same command goes on.")
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option("--weights", help="Trained model to look at, for experiments that train none; may be repeated."),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(
            "--images", min=2, help="Test images to look at, for experiments that train no model. Default: all."
        ),
    ] = None,
) -> None:
    """Run experiments of the paper and print ours beside the paper's numbers.

    Tables of trained models take any number of steps and seeds, and go on where
    they were interrupted: a finished run is not run again. Several names are
    one queue of runs, and what their tables share is run once.

    \b
    polarvit reproduce --list
    polarvit reproduce ablation --list
    polarvit reproduce ablation --quick
    polarvit reproduce ablation --steps 11710 --seeds 3
    polarvit reproduce cifar100 --seeds 0,1,2 --side-by-side 3
    polarvit reproduce ablation position --steps 11710 --side-by-side 4
    """
    names = list(dict.fromkeys(names or ()))
    for name in names:
        check_name(name)
    if listing and only:
        raise typer.BadParameter("--list shows whole tables; leave one of the two out", param_hint="--only")
    if listing:
        list_experiments(out, names)
    elif not names:
        raise typer.BadParameter(f"missing; one of {', '.join(EXPERIMENTS)}", param_hint="NAME")
    else:
        check_device(device)
        count, listed = read_seeds(seeds)
        told = Settings(
            out=out,
            quick=quick,
            seed=seed,
            seeds=count,
            steps=steps,
            only=tuple(only or ()),
            runs=runs,
            data=data,
            device=device,
            sets=tuple(sets or ()),
            seed_list=listed,
            side_by_side=side_by_side,
            minutes=minutes,
            weights=tuple(weights or ()),
            images=images,
        )
        for name in names:
            check_told(name, told)
        if len(names) == 1:
            run_experiment(names[0], told)
        else:
            run_together(names, told)


def check_name(name: str) -> None:
    """Refuse what is no experiment, with the nearest that is."""
    if name not in EXPERIMENTS:
        close = difflib.get_close_matches(name, EXPERIMENTS, n=1, cutoff=0.6)
        hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(EXPERIMENTS)}"
        raise typer.BadParameter(f"no experiment '{name}'; {hint}", param_hint="NAME")


def check_told(name: str, told: Settings) -> None:
    """Refuse options that the experiment does not look at: nobody should believe they had an effect."""
    plain = Settings()
    for field, option in OPTIONS.items():
        if getattr(told, field) != getattr(plain, field) and field.replace("seed_list", "seeds") not in (
            EXPERIMENTS[name].takes
        ):
            taken = [each for key, each in OPTIONS.items() if key in EXPERIMENTS[name].takes]
            hint = f"it takes {', '.join(taken)}" if taken else "it takes --out, --quick and --seed"
            raise typer.BadParameter(f"'{name}' has no use for it; {hint}", param_hint=option)


def read_seeds(text: str) -> tuple[int, tuple[int, ...]]:
    """`3` is a number of seeds, `0,2,5` or `4,` are the seeds themselves."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if text.strip() == "0":
        raise typer.BadParameter(
            "0 is a number of seeds, and none; for seed 0 alone write '0,' with a comma", param_hint="--seeds"
        )
    if not parts or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(f"'{text}' is neither a number of seeds nor a list like 0,2,5", param_hint="--seeds")
    if "," not in text:
        return int(parts[0]), ()
    return 1, tuple(dict.fromkeys(map(int, parts)))


def list_experiments(results: Path, names: list[str] | None = None) -> None:
    """Every table and figure of the paper, or some: the command, the paper's values, ours, or what a run would take."""
    from rich.markup import escape

    from polarvit.experiments import listing
    from polarvit.tables import console, table

    out = console()
    for experiment in (EXPERIMENTS[name] for name in names or EXPERIMENTS):
        out.print(f"[bold]{experiment.name}[/bold]  {escape(experiment.reproduces)}", soft_wrap=True)
        for line in (experiment.title, *listing.head(experiment, results)):
            out.print(escape(f"  {line}"), soft_wrap=True)
        if experiment.rows:
            columns = ("row", "paper", "ours", "measured, or command")
            out.print(table("", columns, listing.lines(experiment, results), text=columns))
        out.print()
    if not names:
        rows = listing.overview(results)
        note = "What stands above, in lines; polarvit reproduce NAME --list shows one of them."
        headings = ("name", "what it reproduces", "rows measured")
        out.print(table("", headings, rows, caption=note, text=headings[:2]))
    shown = [EXPERIMENTS[name] for name in names or EXPERIMENTS]
    if not any(listing.finding(one, row, results).value for one in shown for row in one.rows):
        text = f"There are no such records in {results}. Those of the project lie in its repository: --out names them."
        out.print(escape(text), soft_wrap=True)


def run_experiment(name: str, settings: Settings) -> None:
    """Run an experiment; exit 1 if one of its own claims does not hold."""
    tell(EXPERIMENTS[name].run(settings))


def run_together(names: list[str], settings: Settings) -> None:
    """Run several tables of trained models as one queue; exit 1 if a claim of one does not hold."""
    from polarvit.experiments.together import together

    for name in names:
        if not {"runs", "side_by_side"} <= EXPERIMENTS[name].takes:
            trained = [each for each, one in EXPERIMENTS.items() if {"runs", "side_by_side"} <= one.takes]
            text = f"'{name}' is no table of training runs, run it alone; together go {', '.join(trained)}"
            raise typer.BadParameter(text, param_hint="NAME")
    tell(together(names, settings))


def tell(failures: list[str]) -> None:
    """Say which claims do not hold, and exit 1 if there are any."""
    for failure in failures:
        typer.secho(f"does not hold: {failure}", err=True, fg=typer.colors.RED)
    if failures:
        raise typer.Exit(1)
