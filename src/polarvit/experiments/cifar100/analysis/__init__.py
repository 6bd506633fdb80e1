"""What the CIFAR-100 weights tell beyond accuracy, Polar-ViT beside its Euclidean twin.

Radius (is a far-out embedding more certain?), noise in the input, the coarse structure of the classes, calibration, and
how far the heads of Polar-ViT look: each in `analysis.json` and in a picture of its own. Nothing is trained and nothing
is chosen by what comes out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polarvit.data.cifar100 import CLASSES
from polarvit.experiments.cifar100.analysis import draw
from polarvit.experiments.cifar100.analysis.noise import under_noise
from polarvit.experiments.cifar100.analysis.radius import by_radius
from polarvit.experiments.cifar100.analysis.rates import learned_rates
from polarvit.experiments.cifar100.analysis.superclasses import class_points, flattened, structure
from polarvit.experiments.cifar100.table import FOLDER, NAME, PAPER_STEPS
from polarvit.experiments.pictures import NoPictures
from polarvit.experiments.registry import Settings
from polarvit.experiments.reliability import reliability
from polarvit.experiments.seen import open_images, ready, see, weights_of
from polarvit.models.weights import WeightsError, list_pretrained, load_pretrained
from polarvit.provenance import provenance, write_json
from polarvit.tables import console, table

MODELS = {"polar_vit_tiny": "Polar-ViT-Tiny", "vit_tiny": "Euclidean ViT-Tiny"}
QUICK, NOISY_ON_CPU = 500, 1000
"""Images of a quick look, and images that get noise on a CPU (on a GPU all do)."""
WHERE = "neither packaged, nor from `polarvit reproduce cifar100` in --runs; name some with --weights"
"""Where weights were looked for that are not there."""


def run(settings: Settings) -> list[str]:
    """Look at the weights, print the table, write JSON and pictures; it makes no claims."""
    started = time.perf_counter()
    device = torch.device(settings.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    found: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    chosen = chosen_weights(settings)
    out = console()
    for title in () if settings.weights else MODELS.values():
        if title not in chosen:
            out.print(f"no weights of {title}: it is left out ({WHERE})", style="yellow", soft_wrap=True)
    for name, weights in chosen.items():
        found[name], shapes[name] = examine(weights, settings, device)
    result = {
        "experiment": "cifar100-analysis",
        "command": command(settings),
        "provenance": provenance(seed=settings.seed, quick=settings.quick),
        "seconds": time.perf_counter() - started,
        "models": found,
        "summary": summary(found),
    }
    folder = settings.out / FOLDER
    stem = stem_of(settings)
    write_json(folder / f"{stem}.json", result)
    out.print(shown(found))
    out.print(f"wrote {folder / stem}.json", soft_wrap=True)
    try:
        for picture in pictures(folder / stem, found, shapes):
            out.print(f"wrote {picture}", soft_wrap=True)
    except NoPictures as reason:
        out.print(str(reason), style="yellow", markup=False)
    return []


def stem_of(settings: Settings) -> str:
    """Of the files: a look at some images, or at other weights, leaves those of all and of the packaged ones alone."""
    some = "" if settings.images is None else f"-{settings.images}-images"
    named = "-and-".join(re.sub(r"[^\w.-]", "-", spot(name, 3)) for name in settings.weights)
    of = f"-of-{named}" if named else ""
    return f"analysis{of}-quick" if settings.quick else f"analysis{of}{some}"


def command(settings: Settings) -> str:
    """The command line that looks at the same images of the same weights."""
    words = ["polarvit reproduce cifar100-analysis"]
    words += ["--quick"] if settings.quick else []
    words += [f"--images {settings.images}"] if settings.images is not None else []
    return " ".join([*words, *(f"--weights {spot(name)}" for name in settings.weights)])


def chosen_weights(settings: Settings) -> dict[str, str]:
    """The weights to look at, by title: those asked for, else packaged ones, else seed 0 of the long runs."""
    if settings.weights:
        titles = [title_of(name) for name in settings.weights]
        if len(set(titles)) < len(titles):
            titles = [f"{title}, {spot(name)}" for title, name in zip(titles, settings.weights, strict=True)]
        return dict(zip(titles, settings.weights, strict=True))
    found = {}
    for model, title in MODELS.items():
        tag, folder = f"{model}.cifar100", settings.runs / NAME / f"{PAPER_STEPS}-steps" / model / "seed-0"
        if tag in list_pretrained():
            found[title] = tag
        elif (folder / "model").is_dir():
            found[title] = str(folder)
    if not found:
        raise WeightsError(f"there are no CIFAR-100 weights: {WHERE}")
    return found


def spot(name: str, parts: int = 2) -> str:
    """Weights by the end of their path, or by tag."""
    return "/".join(Path(name).parts[-parts:]) if Path(name).exists() else name


def title_of(name: str) -> str:
    """What a model is called in tables and pictures."""
    architecture = load_pretrained(weights_of(name)).architecture
    return MODELS.get(architecture, architecture)


def examine(name: str, settings: Settings, device: torch.device) -> tuple[dict[str, Any], Any]:
    """Everything about one model, and its classes in the plane."""
    model = load_pretrained(weights_of(name))
    images = open_images(settings.data or "data/cifar100", model)
    wanted = settings.images or (QUICK if settings.quick else len(images))
    images = images.some(wanted)
    noisy = images.some(len(images) if device.type == "cuda" else max(1, min(NOISY_ON_CPU, len(images) // 2)))
    compiled = ready(model, device, len(images))
    seen = see(model, images, device)
    shape, facts = None, None
    if set(seen.classes) == set(CLASSES):
        classes = class_points(seen)
        facts = structure(seen, classes)
        shape = (classes, flattened(classes), facts)
    return {
        "weights": spot(name),
        "architecture": model.architecture,
        "images": len(images),
        "of": images.of,
        "noisy_images": len(noisy),
        "device": device.type,
        "compiled": compiled,
        "top1": 100 * float((seen.predicted == seen.labels).mean()),
        "mean_radius": float(np.mean(seen.radius)),
        "calibration": reliability(seen.probabilities, seen.labels).record(),
        "radius": by_radius(seen),
        "rates": learned_rates(model),
        "superclasses": facts,
        "noise": under_noise(model, noisy, device, seed=settings.seed),
    }, shape


def summary(found: dict[str, Any]) -> dict[str, str]:
    """The values of the list of experiments; where not every test image was seen, with their number."""

    def beside(text: Callable[[dict[str, Any]], str], count: str = "images") -> str:
        seen, of = (next(iter(found.values()))[key] for key in (count, "of"))
        some = "" if seen == of else f" ({seen:,} of {of:,} images)"
        return "; ".join(f"{name} {text(one)}" for name, one in found.items()) + some

    values = {
        "calibration": beside(lambda one: f"ECE {100 * one['calibration']['ece']:.1f} %"),
        "radius": beside(lambda one: f"Spearman {one['radius']['spearman_with_confidence']:+.2f}"),
        "noise": beside(lambda one: f"{100 * one['noise'][-2]['accuracy']:.1f} %", "noisy_images"),
    }
    if all(one["superclasses"] for one in found.values()):
        values["superclasses"] = beside(lambda one: f"{100 * one['superclasses']['siblings_near']:.0f} %")
    return values


def shown(found: dict[str, Any]) -> Any:
    """The table of the terminal: one column for each model."""

    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f} %"

    lines: dict[str, Callable[[dict[str, Any]], str]] = {
        "top-1": lambda one: f"{one['top1']:.2f} % of {one['images']:,}",
        "expected calibration error": lambda one: percent(one["calibration"]["ece"]),
        "confidence less accuracy": lambda one: percent(one["calibration"]["gap"]),
        "radius and confidence, Spearman": lambda one: f"{one['radius']['spearman_with_confidence']:+.2f}",
        "accuracy, nearest tenth": lambda one: percent(one["radius"]["groups"][0]["accuracy"]),
        "accuracy, farthest tenth": lambda one: percent(one["radius"]["groups"][-1]["accuracy"]),
        "AUROC of radius": lambda one: percent(one["radius"]["auroc"]),
        "AUROC of confidence": lambda one: percent(one["radius"]["auroc_of_confidence"]),
        "siblings among four nearest classes": lambda one: percent((one["superclasses"] or {}).get("siblings_near")),
        "right superclass": lambda one: percent((one["superclasses"] or {}).get("coarse_accuracy")),
        "errors inside the superclass": lambda one: percent((one["superclasses"] or {}).get("errors_within")),
        "heads blind to rows and columns": lambda one: percent((one["rates"] or {}).get("blind_to_both")),
        "heads blind to one of them": lambda one: percent((one["rates"] or {}).get("blind_to_one")),
    }
    rows: list[list[str] | None] = [[text, *(cell(one) for one in found.values())] for text, cell in lines.items()]
    rows.append(None)
    for index, level in enumerate(next(iter(found.values()))["noise"]):
        cells = [
            f"{percent(one['noise'][index]['accuracy'])} at r {one['noise'][index]['radius']:.2f}"
            for one in found.values()
        ]
        rows.append([f"top-1 and mean radius, noise {level['noise']:g}", *cells])
    noisy = next(iter(found.values()))["noisy_images"]
    note = f"Noise on {noisy:,} images. By chance 4 % of the four nearest classes are siblings."
    return table("CIFAR-100 weights, test images", ["", *found], rows, caption=note)


def pictures(stem: Path, found: dict[str, Any], shapes: dict[str, Any]) -> list[Path]:
    """Draw everything; returns the files."""

    def at(subject: str) -> Path:
        return stem.with_name(f"{stem.name}-{subject}.png")

    draw.draw_radius(at("radius"), {name: one["radius"] for name, one in found.items()})
    draw.draw_noise(at("noise"), {name: one["noise"] for name, one in found.items()})
    draw.draw_calibration(at("calibration"), {name: one["calibration"] for name, one in found.items()})
    drawn = [at("radius"), at("noise"), at("calibration")]
    if all(shape is not None for shape in shapes.values()):
        draw.draw_superclasses(at("superclasses"), shapes)
        drawn.append(at("superclasses"))
    rates = {name: one["rates"] for name, one in found.items() if one["rates"]}
    if rates:
        draw.draw_rates(at("rates"), rates)
        drawn.append(at("rates"))
    return drawn
