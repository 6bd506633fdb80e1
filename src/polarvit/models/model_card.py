"""The card that travels with saved weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from polarvit._version import __version__

if TYPE_CHECKING:
    from polarvit.models.base import VisionModel


MARK = "<!-- Written again whenever weights are saved here. Delete this line to keep your changes. -->"
NAMED = 20
"""So many classes are named on a card."""


def model_card(model: VisionModel, summary: str = "", results: str = "") -> str:
    """Markdown with the hub's YAML header: what the model is, how to load it, what it expects.

    `summary` says what it was trained on, `results` what was measured; both are plain Markdown.
    """
    cfg, config = model.default_cfg, model.config
    channels, height, width = cfg["input_size"]
    what, last = ("logits", config.num_classes) if config.num_classes else ("features", model.num_features)
    shape = [f"B, {last}"] + ([f"{height}, {width}"] if model.task == "segmentation" else [])
    lines = [
        "---",
        "library_name: polarvit",
        "license: apache-2.0",
        f"pipeline_tag: image-{model.task}",
        "tags:",
        f"- image-{model.task}",
        *(["- hyperbolic"] if model.hyperbolic else []),
        "- polarvit",
        "---",
        "",
        f"# {model.architecture}",
        "",
        summary or f"A {type(model).__name__} saved by polarvit {__version__}. Nothing was said about its training.",
        "",
        "## Use",
        "",
        "```python",
        "import polarvit",
        "",
        'model = polarvit.create_model("<this folder or repository>", pretrained=True)',
        "```",
        "",
        "## Input and output",
        "",
        f"Images [B, {channels}, {height}, {width}] scaled to [0, 1] and normalised with mean {list(cfg['mean'])} and "
        f"standard deviation {list(cfg['std'])}; {what} [{', '.join(shape)}].",
        f"{model.count():,} parameters, {model.count(classifier=False):,} without the classifier.",
        "",
    ]
    if names := model.class_names:
        shown = json.dumps(names[:NAMED], ensure_ascii=False)
        more = f" The first {NAMED} of {len(names)}; `config.json` has all." if len(names) > NAMED else ""
        lines += ["## Classes", "", f"In the order of the logits.{more}", "", "```json", shown, "```", ""]
    if results:
        lines += ["## Results", "", results, ""]
    lines += ["## Configuration", "", "```json", json.dumps(config.to_dict(), indent=2), "```", "", MARK, ""]
    return "\n".join(lines)
