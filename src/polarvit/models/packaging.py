"""Putting weights into the package: a folder named by tag with weights, config, card and what was measured.

    pretrained/index.json                          tag -> sha256 of its model.safetensors
    pretrained/polar_vit_tiny.cifar100/            model.safetensors, config.json, README.md, evaluation.json

Weights are stored in float32. The index is written last, so a tag that is listed is whole.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from polarvit.files import put_text
from polarvit.models.model_card import MARK
from polarvit.models.weights import CARD, PACKAGED, WEIGHTS, WeightsError

if TYPE_CHECKING:
    from polarvit.models.base import VisionModel

EVALUATION, INDEX = "evaluation.json", "index.json"
_TAG = re.compile(r"[a-z0-9][a-z0-9_-]*")


def wrong_tag(tag: str) -> str:
    """What is wrong with a tag, if anything is."""
    return "" if _TAG.fullmatch(tag) else f"tag '{tag}': use small letters, digits, - and _, e.g. cifar100"


def full_tag(model: VisionModel, tag: str) -> str:
    """`polar_vit_tiny.cifar100` for the tag `cifar100`."""
    from polarvit.models.registry import list_models

    if wrong := wrong_tag(tag):
        raise WeightsError(wrong)
    if model.architecture not in list_models():
        raise WeightsError(f"'{model.architecture}' is not a registered model, so nobody could ask for it by tag")
    return f"{model.architecture}.{tag}"


def free_tag(model: VisionModel, tag: str, *, replace: bool = False, root: Path = PACKAGED) -> str:
    """The full tag, if weights may be put there: one that exists must be given up with `replace`."""
    name = full_tag(model, tag)
    if name in _index(root) and not replace:
        raise WeightsError(f"{name}: is packaged already; replace it with --replace")
    return name


def _index(root: Path) -> dict[str, str]:
    return json.loads((root / INDEX).read_text(encoding="utf-8")) if (root / INDEX).exists() else {}


def package(
    model: VisionModel, tag: str, card: str, evaluation: dict[str, Any], *, replace: bool = False, root: Path = PACKAGED
) -> Path:
    """Write the folder of a tag and list it; returns the folder. A tag that exists is only replaced if told to."""
    name = free_tag(model, tag, replace=replace, root=root)
    strange = [key for key, tensor in model.state_dict().items() if not tensor.isfinite().all()]
    if strange:
        raise WeightsError(f"{name}: {strange[0]} holds values that are not finite")
    folder, work = root / name, root / f".{name}.partial"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        model.to(torch.float32).save_pretrained(work)
        measured = card.replace(f"{MARK}\n", "")  # what was measured is not written again
        (work / CARD).write_text(measured, encoding="utf-8")
        (work / EVALUATION).write_text(json.dumps(evaluation, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    index = {**_index(root), name: hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()}
    text = json.dumps(dict(sorted(index.items())), indent=1) + "\n"
    put_text(root / INDEX, text)
    return folder
