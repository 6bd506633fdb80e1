"""A table of the paper as training runs: rows x seeds of recipes, each in a folder of its own, resumed where it stands.

An experiment lists its rows and calls `study`:

    ROWS = (Row("horoshift", "+ horospherical positions", "cifar100_polar_vit_tiny", paper=Stated(80.15, 0.26)),)

    def run(settings: Settings) -> list[str]:
        return study("ablation", "Component ablation on CIFAR-100", ROWS, settings)

`study` trains what is missing under `runs/<name>/<steps>-steps/<row>/seed-<n>`, one seed of every row before the second
seed of any, prints ours beside the paper's and writes `results/<name>.json` after every run, with every finished run it
finds in the folders. The table of another length than the rows' own lies in a folder `<steps>-steps`, with the records
of its rows if they name no other. A run is finished when its folder holds metrics.json; one whose loss stopped being a
number is finished too, and says so in diverged.json. Rows of several tables that are one run name one folder
(`Row.run`, `Row.folder`, `folder`) and train once. With `records` every finished run is kept there too, compact
(`polarvit.experiments.run_records`), and what is kept there need not be run again.

Runs follow each other in this process, or go side by side in processes of their own, those of several tables in one
queue (`polarvit.experiments.together`).
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from polarvit.experiments.registry import Settings
from polarvit.experiments.same_run import RECIPE, same_if_begun, same_recipe
from polarvit.experiments.side_by_side import Job, Unfinished, side_by_side
from polarvit.files import put_text
from polarvit.provenance import provenance, write_json
from polarvit.training import Recipe, SettingsError, load, train
from polarvit.training.loop import best_of
from polarvit.training.recipe import dump
from polarvit.training.trial import OUTCOMES

METRICS, DIVERGED = "metrics.json", "diverged.json"
ORIGIN = ("date", "machine", "product_precision")

TOY: dict[str, Any] = {"img_size": 16, "patch_size": 8, "depth": 2, "dim": 24, "mlp_dim": 48, "heads": 2}
"""Options that make any vision model small enough for the digits on a CPU."""
TOY_MASKS: dict[str, Any] = {"img_size": 32, "width": 4, "levels": 2}
"""The same for the U-Nets and the discs."""
TOY_STEPS = 20


@dataclass(frozen=True)
class Stated:
    """What the paper says: top-1 in percent, or Dice, with its spread over seeds, or a word (`diverged`)."""

    mean: float | None = None
    std: float | None = None
    word: str = ""

    def __str__(self) -> str:
        return self.word if self.mean is None else spelled(self.mean, self.std)


@dataclass(frozen=True)
class Row:
    """One row of a table: a recipe with `key.path=value` overrides, and the paper's value if it has one."""

    name: str
    """Its key in the table, and the name of its folder unless `run` is."""
    label: str
    recipe: str
    overrides: tuple[str, ...] = ()
    paper: Stated | None = None
    run: str = ""
    """Name of its folder and record, if other tables have the same run under other names."""
    folder: str = ""
    """Where its runs and records go, if not where those of its table do."""

    @property
    def home(self) -> str:
        return self.run or self.name

    def under(self, folder: Path) -> Path:
        """A folder of its table's runs or records, or the one beside it that the row names."""
        return folder.parent / self.folder if self.folder else folder


@dataclass(frozen=True)
class Result:
    """One finished run."""

    row: Row
    seed: int
    metrics: dict[str, Any] | None
    """What metrics.json holds; None if it diverged."""
    diverged: str = ""
    origin: dict[str, Any] = field(default_factory=dict)
    """When, on what machine and with what products it ran."""
    before: dict[str, Any] | None = None
    """If it diverged: the test scores of its best weights from before, where it kept them."""

    @classmethod
    def read(cls, row: Row, seed: int, content: dict[str, Any]) -> Result:
        """From what metrics.json holds, or diverged.json."""
        origin: dict[str, Any] = {key: content[key] for key in ORIGIN if key in content}
        why = content.get("diverged", "")
        return cls(row, seed, None if why else content, why, origin, content.get("test_scores") if why else None)

    @property
    def scores(self) -> dict[str, Any] | None:
        """The final scores: of the test split if the recipe names one."""
        return (self.metrics.get("test_scores") or self.metrics["scores"]) if self.metrics else None

    @property
    def top1(self) -> float | None:
        return self.scores["top1"] if self.scores else None

    @property
    def value(self) -> float | None:
        """What the table is about: Dice of a segmentation, else top-1."""
        return self.scores["dice"] if self.scores and "dice" in self.scores else self.top1

    @property
    def reached(self) -> float | None:
        """The same of the best weights from before it diverged, where they were measured."""
        return self.before.get("dice", self.before.get("top1")) if self.before else None

    def record(self) -> dict[str, Any]:
        """The run in the JSON of the study."""
        if self.metrics is None:
            before = {"before": self.before} if self.before else {}
            return {"seed": self.seed, "diverged": self.diverged, **before, **self.origin}
        found = {key: self.metrics.get(key) for key in ("parameters", "seconds", "commit", "product_precision")}
        found |= {key: self.metrics[key] for key in ("best_lost",) if key in self.metrics}
        for part in self.metrics.get("parts", ()):
            found |= {key: part[key] for key in OUTCOMES if key in part}
        return {"seed": self.seed, **(self.scores or {}), **found, **self.origin}


def study(
    name: str,
    title: str,
    rows: Sequence[Row],
    settings: Settings,
    *,
    say: Callable[[str], None] = print,
    note: str = "",
    records: Path | None = None,
    folder: str = "",
    show: Callable[[str, Sequence[Row], Sequence[Result], Settings, str], None] | None = None,
) -> list[str]:
    """Run what is missing, print the table (with `show` in its own way), write the JSON.

    `folder` is where runs go if it is not called like the study. Returns rows that diverged where the paper's did not.
    """
    from polarvit.experiments.run_records import all_finished
    from polarvit.experiments.run_table import picture, write
    from polarvit.experiments.run_table import show as show_rows

    settings = at_length(name, rows, settings, records)
    home = folder or name
    results = all_finished(home, rows, settings, records)
    known = {(result.row.name, result.seed) for result in results}
    todo = [
        (seed, row)
        for seed in settings.all_seeds
        for row in chosen(rows, settings.only)
        if (row.name, seed) not in known
    ]

    def keep() -> bool:
        return write(name, title, rows, all_finished(home, rows, settings, records), settings)

    jobs: list[Job] = []
    if settings.queue is not None:
        settings.queue.take(lambda: jobs_of(home, todo, settings, keep))  # goes no further until they were made
    else:
        asked = len(settings.all_seeds) * len(chosen(rows, settings.only))
        if asked > len(todo):
            where = f"{settings.file(name).parent} or {settings.runs}"
            say(
                f"{asked - len(todo)} of {asked} runs are finished ({where}) and are not run again; "
                "--out and --runs with new folders begin anew"
            )
        if settings.side_by_side > 1 or settings.minutes is not None:
            jobs = make([job for _, job in jobs_of(home, todo, settings, keep)], settings, say)
        else:
            for count, (seed, row) in enumerate(todo, 1):
                recipe, place_of = resolved(row, seed, settings), place(home, row, settings) / f"seed-{seed}"
                say(f"[{count}/{len(todo)}] {row.label}, seed {seed}: {recipe.train.steps:,} steps -> {place_of}")
                run_one(row, seed, recipe, place_of, settings.device)
                keep()
    results = all_finished(home, rows, settings, records)
    changed = write(name, title, rows, results, settings) or bool(todo) or settings.queue is not None
    (show or show_rows)(title, rows, results, settings, note)
    if changed:
        say(f"wrote {settings.file(name)}")
    if show is None and (changed or not settings.file(name, "png").is_file()):
        picture(name, title, rows, results, settings)
    if left := Unfinished.of(jobs):
        raise left
    return [f"{job.name}: {job.why()}" for job in jobs if job.state == "dead"] + [
        f"{result.row.label}: seed {result.seed} diverged ({result.diverged})"
        for result in results
        if result.metrics is None and not (result.row.paper and result.row.paper.word == "diverged")
    ]


def at_length(name: str, rows: Sequence[Row], settings: Settings, records: Path | None) -> Settings:
    """Settings whose table replaces none of another length: other lengths than the rows' own lie with their records."""
    lengths = [resolved(row, 0, settings).train.steps for row in rows]
    if settings.quick or lengths == [load(row.recipe, list(row.overrides)).train.steps for row in rows]:
        return settings
    return replace(settings, out=(records or settings.out / name) / f"{lengths[0]}-steps")


def jobs_of(
    name: str, todo: Sequence[tuple[int, Row]], settings: Settings, keep: Callable[[], object]
) -> list[tuple[int, Job]]:
    """Seed and job of each of these runs, its recipe in its folder; `keep` writes down what is finished."""
    jobs = []
    for seed, row in todo:
        recipe, folder = resolved(row, seed, settings), place(name, row, settings) / f"seed-{seed}"
        same_if_begun(recipe, folder)
        folder.mkdir(parents=True, exist_ok=True)
        put_text(folder / RECIPE, dump(recipe))
        jobs.append((seed, Job(f"{row.name}, seed {seed}", folder, recipe.train.steps, keep=keep)))
    return jobs


def make(jobs: Sequence[Job], settings: Settings, say: Callable[[str], None] = print) -> list[Job]:
    """Run these in workers, several at a time; each says how it stands."""
    side_by_side(jobs, settings.side_by_side, device=settings.device, minutes=settings.minutes, say=say)
    for job in jobs:
        if job.state == "stopped" and (job.folder / METRICS).is_file():
            job.state = "finished"  # the signal came after its last file
    return list(jobs)


def chosen(rows: Sequence[Row], only: Sequence[str]) -> list[Row]:
    """The rows asked for by name; all if none is named."""
    names = [row.name for row in rows]
    for name in only:
        if name not in names:
            raise SettingsError(f"--only: no row '{name}'; there are {', '.join(names)}")
    return [row for row in rows if not only or row.name in only]


def resolved(row: Row, seed: int, settings: Settings) -> Recipe:
    """The row's recipe for one seed: so many steps, with warm-up and intervals in proportion; on digits if `quick`.

    Seeds count from the recipe's own: one that goes on from trained weights has to see other draws than they did.
    """
    recipe = load(row.recipe, [*row.overrides, *settings.sets])
    if settings.quick and settings.data is not None:
        raise SettingsError("--data: with --quick narrow models train on toy data; leave one of the two out")
    if settings.quick:
        recipe = toy(recipe, settings.sets)
    elif settings.data is not None:
        recipe = replace(recipe, data=replace(recipe.data, path=settings.data))
    if settings.steps is not None or settings.quick:
        recipe = shortened(recipe, settings.steps or TOY_STEPS)
    return replace(recipe, train=replace(recipe.train, seed=recipe.train.seed + seed))


def shortened(recipe: Recipe, steps: int) -> Recipe:
    """The recipe at another length: the share of warm-up stays, intervals are cut to the length."""
    warmup = round(recipe.optim.warmup * steps / recipe.train.steps)
    watch = recipe.watch
    return replace(
        recipe,
        optim=replace(recipe.optim, warmup=warmup),
        train=replace(recipe.train, steps=steps),
        watch=replace(
            watch,
            log_every=min(watch.log_every, steps),
            eval_every=min(watch.eval_every, steps),
            checkpoint_every=min(watch.checkpoint_every, steps),
        ),
    )


def toy(recipe: Recipe, sets: Sequence[str] = ()) -> Recipe:
    """The recipe's model, narrow, with data, optimizer and loop of the recipe `digits` (or `discs`): shows it runs.

    What was set by hand (`sets`) holds there too; `recipe` already has what was set of the model. No weights to start
    from would fit.
    """
    base, options = ("discs_unet", TOY_MASKS) if recipe.task == "segmentation" else ("digits", TOY)
    if any(each.startswith("model.pretrained=") for each in sets):
        raise SettingsError("--set model.pretrained: with --quick narrow models train; leave one of the two out")
    model = replace(recipe.model, options={**recipe.model.options, **options}, pretrained=None)
    own = [each for each in sets if not each.startswith("model.")]
    return replace(load(base, own), title=f"{recipe.title} (toy size)", model=model)


def place(name: str, row: Row, settings: Settings) -> Path:
    """Folder of a row's runs."""
    steps = resolved(row, 0, settings).train.steps
    return row.under(settings.runs / name) / f"{steps}-steps{'-toy' if settings.quick else ''}" / row.home


def finished(name: str, rows: Sequence[Row], settings: Settings) -> list[Result]:
    """Runs of any seed that came to their end, read from their folders."""
    found = []
    for row in rows:
        folders = {int(path.name[5:]): path for path in place(name, row, settings).glob("seed-*")}
        for seed, folder in sorted(folders.items()):
            result = read_run(row, seed, resolved(row, seed, settings), folder)
            found += [result] if result is not None else []
    return found


def read_run(row: Row, seed: int, recipe: Recipe, folder: Path) -> Result | None:
    """The result in a folder, None if it holds no finished run; a run of another recipe there is an error."""
    found = next((folder / file for file in (METRICS, DIVERGED) if (folder / file).is_file()), None)
    if found is None:
        return None
    same_recipe(recipe, folder)
    return Result.read(row, seed, json.loads(found.read_text(encoding="utf-8")))


def run_one(row: Row, seed: int, recipe: Recipe, folder: Path, device: str | None) -> Result:
    """Train one row with one seed, from its newest checkpoint if it has one."""
    same_if_begun(recipe, folder)
    attempt(recipe, folder, device)
    result = read_run(row, seed, recipe, folder)
    if result is None:
        raise RuntimeError(f"{folder}: the run ended without {METRICS}")
    return result


def attempt(recipe: Recipe, folder: Path, device: str | None, *, quiet: bool = False) -> None:
    """Train to the end; a loss that stops being a number ends the run too, and the folder says so.

    If the run kept its best weights, what they reach on the test split is said too.
    """
    try:
        train(recipe, folder, resume=True, device=device, quiet=quiet)
        return
    except FloatingPointError as error:
        why = str(error).partition(";")[0]
    put_text(folder / RECIPE, dump(recipe))
    used = json.loads((folder / "environment.json").read_text(encoding="utf-8"))["product_precision"]
    facts = {**provenance(seed=recipe.train.seed, product_precision=used), "diverged": why}
    gc.collect()  # out of the except, and a compiled model holds itself: what diverged is let go first
    try:
        best = best_of(recipe, folder, device=device)
    except Exception:
        write_json(folder / DIVERGED, facts)
        raise
    if best is not None:
        facts |= {"kept_step": best[0], "test_scores": best[1].to_dict()}
    write_json(folder / DIVERGED, facts)  # last: who is stopped while the best weights are measured measures them again


def spelled(mean: float, std: float | None, digits: int = 2) -> str:
    """80.15 ± 0.26, or 80.15 alone."""
    return f"{mean:.{digits}f}" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f}"
