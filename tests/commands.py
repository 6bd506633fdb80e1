"""Running the command `polarvit` inside a test."""

from __future__ import annotations

from typing import Any

import yaml
from typer.testing import CliRunner, Result

from polarvit.cli import app

TINY: dict[str, Any] = {
    "title": "tiny",
    "model": {
        "name": "polar_vit_tiny",
        "options": {"img_size": 16, "patch_size": 8, "depth": 1, "dim": 16, "mlp_dim": 16, "heads": 2},
    },
    "data": {"path": "digits"},
    "train": {"steps": 4, "batch_size": 8, "precision": "fp32"},
    "watch": {"log_every": 1, "eval_every": 4, "checkpoint_every": 2},
}
"""A recipe of four steps of eight digits through one block."""


def call(*words: object) -> Result:
    """Run `polarvit` with these words; a defect raises here, an error that is told does not."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def done(*words: object) -> str:
    """The output of a command that must succeed."""
    result = call(*words)
    assert result.exit_code == 0, result.output + result.stderr
    return result.stdout


def flat(text: str) -> str:
    """Output without the frames and line breaks of the terminal."""
    return " ".join(text.replace("│", " ").split())


def tiny_yaml(**changes: Any) -> str:
    """The tiny recipe as YAML, with whole groups replaced."""
    return yaml.safe_dump({**TINY, **changes})
