"""Dice of the trained nets on test images that were made worse: polar against Euclidean, from the table's weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from polarvit.data.augment.masks import MaskAugmenter
from polarvit.experiments.catalogue.segmentation import PAPER, SETS
from polarvit.experiments.pictures import BLUE, GREY, VERMILION, NoPictures, figure, label
from polarvit.experiments.registry import Settings
from polarvit.experiments.segmentation.corruptions import CLEAN, CORRUPTIONS, CorruptingAugmenter
from polarvit.experiments.segmentation.rows import Trained, at, trained
from polarvit.provenance import provenance, write_json
from polarvit.tables import console, table
from polarvit.training import MaskScores, SettingsError
from polarvit.training.distributed import Place, place
from polarvit.training.sets import image_size, open_split
from polarvit.training.step import products, set_precision
from polarvit.training.task import by_image

NAME = "segmentation-robustness"
NETS = {"ambient": VERMILION, "euclidean": GREY, "polar": BLUE}
"""Nets that are compared, where their weights are there, and their colours; measured from the last on."""


@dataclass(frozen=True)
class Point:
    """One net on one set under one corruption."""

    net: str
    set: str
    corruption: str
    strength: float
    dice: float
    image_dice: float
    seed: int
    products: str
    """What its matrix products were in."""


def run(settings: Settings) -> list[str]:
    """Measure every net of the table that was trained, print, write JSON and a picture; claims nothing by itself."""
    found = [run for key in SETS for net in reversed(NETS) if (run := trained(net, key, settings))]
    if not found:
        raise SettingsError(f"no trained nets under {settings.runs}; run first: polarvit reproduce segmentation")
    points: list[Point] = []
    settings = at(settings)[1]
    with place(settings.device) as here:
        for one in found:
            points += measured(one, here)
            write(points, settings)
            undrawn = draw(points, settings)
    show(points, settings)
    if undrawn:
        console().print(undrawn)
    return []


def measured(one: Trained, here: Place) -> Iterator[Point]:
    """The clean score and that under every corruption of every strength."""
    recipe = one.recipe
    set_precision(recipe.train.precision)
    model = one.model().to(here.device)
    assert recipe.data.test is not None
    split = open_split(recipe, recipe.data.test, here.device, training=False)
    plain = MaskAugmenter(recipe.augment, model.num_classes, image_size(recipe))
    net, _, key = one.row.name.partition("_")
    used = products(recipe.train.precision, here.device)

    def point(corruption: str, strength: float, augmenter: MaskAugmenter) -> Point:
        scores = by_image(recipe, model, split, augmenter, here).scores()
        assert isinstance(scores, MaskScores)
        return Point(net, key, corruption, strength, scores.dice, scores.image_dice, one.seed, used)

    clean = point("", 0.0, plain)
    for name, (corrupt, _, strengths) in CORRUPTIONS.items():
        yield Point(net, key, name, CLEAN[name], clean.dice, clean.image_dice, one.seed, used)
        for strength in strengths:
            yield point(name, strength, CorruptingAugmenter(plain, corrupt, strength))


def write(points: Sequence[Point], settings: Settings) -> None:
    """The JSON as far as it is measured."""
    used = ",".join(sorted({point.products for point in points}))
    write_json(
        settings.file(NAME),
        {
            "experiment": NAME,
            "command": settings.command(NAME),
            "provenance": provenance(seed=settings.seed, quick=settings.quick, product_precision=used),
            "summary": {
                f"{key}_{corruption}": sentence(points, key, corruption)
                for key in SETS
                for corruption in CORRUPTIONS
                if any((p.set, p.corruption) == (key, corruption) for p in points)
            },
            "points": [asdict(point) for point in points],
        },
    )


def sentence(points: Sequence[Point], key: str, corruption: str) -> str:
    """Every net's mean Dice over the strengths of a corruption, after its clean one."""
    words = []
    for net in NETS:
        curve = line(points, net, key, corruption)
        clean = [p.dice for p in curve if p.strength == CLEAN[corruption]]
        worse = [p.dice for p in curve if p.strength != CLEAN[corruption]]
        if clean and worse:
            words.append(f"{net} {clean[0]:.3f} to {sum(worse) / len(worse):.3f}")
    return ", ".join(words)


def line(points: Sequence[Point], net: str, key: str, corruption: str) -> list[Point]:
    """The points of one curve, by strength."""
    own = [p for p in points if (p.net, p.set, p.corruption) == (net, key, corruption)]
    return sorted(own, key=lambda p: p.strength)


def show(points: Sequence[Point], settings: Settings) -> None:
    """Print a row for each set, corruption and net: Dice at every strength."""
    out = console()
    for name, (_, meaning, strengths) in CORRUPTIONS.items():
        marks = sorted([CLEAN[name], *strengths])
        rows: list[list[str] | None] = []
        for key, title in SETS.items():
            curves = {net: line(points, net, key, name) for net in NETS}
            curves = {net: curve for net, curve in curves.items() if curve}
            rows += [[title, PAPER[net][0], *(f"{p.dice:.3f}" for p in curve)] for net, curve in curves.items()]
            rows += [None] if curves else []
        heading = f"Test Dice under {name} ({meaning}; {CLEAN[name]:g} is the clean image)"
        toys = "TOY SIZE on discs" if settings.quick else ""
        out.print(table(heading, ["set", "net", *(f"{mark:g}" for mark in marks)], rows, caption=toys, text=("net",)))


def draw(points: Sequence[Point], settings: Settings) -> str:
    """The picture as far as it is measured; returns why there is none."""
    try:
        picture(points, settings.file(NAME, "png"))
    except NoPictures as error:
        return str(error)
    return ""


def picture(points: Sequence[Point], path: Path) -> None:
    """Dice against strength: corruptions across, sets down."""
    keys = [key for key in SETS if any(p.set == key for p in points)]
    with figure(path, 11, 2.9 * len(keys), len(CORRUPTIONS), rows=len(keys), squeeze=False) as axes:
        for row, key in zip(axes, keys, strict=True):
            for ax, (name, (_, meaning, _)) in zip(row, CORRUPTIONS.items(), strict=True):
                curves = {net: curve for net in NETS if (curve := line(points, net, key, name))}
                for net, curve in curves.items():
                    strengths, dice = [p.strength for p in curve], [p.dice for p in curve]
                    ax.plot(strengths, dice, "o-", color=NETS[net], markersize=3.5)
                low, high = ax.get_ylim()
                heights = apart({net: curve[-1].dice for net, curve in curves.items()}, 0.09 * (high - low))
                for net, height in heights.items():
                    label(ax, curves[net][-1].strength, height, f" {net}", NETS[net], va="center", clip_on=False)
                ax.set_title(f"{SETS[key]}: {name}")
                ax.set_xlabel(meaning)
                ax.margins(x=0.18)
            row[0].set_ylabel("test Dice")


def apart(heights: dict[str, float], gap: float) -> dict[str, float]:
    """Heights of labels, moved as little as it takes for none to be nearer than `gap` to the next."""
    stacks: list[list[str]] = []  # of labels that touch, from below

    def centre(stack: list[str]) -> float:
        return sum(heights[name] for name in stack) / len(stack)

    for name in sorted(heights, key=lambda name: heights[name]):
        stacks.append([name])
        while len(stacks) > 1 and centre(stacks[-1]) - centre(stacks[-2]) < gap * sum(map(len, stacks[-2:])) / 2:
            stacks[-2:] = [stacks[-2] + stacks[-1]]
    return {name: centre(stack) + gap * (i - (len(stack) - 1) / 2) for stack in stacks for i, name in enumerate(stack)}
