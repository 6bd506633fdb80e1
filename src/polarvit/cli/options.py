"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Device = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, or one GPU as cuda:1. Default: the GPU if there is one.", metavar="NAME"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else, for scripts.")]
Weights = Annotated[
    str,
    typer.Argument(
        help="A run folder (runs/digits), a folder of saved weights, a packaged tag, or a Hugging Face id.",
        metavar="WEIGHTS",
        show_default=False,
    ),
]


def check_device(name: str | None) -> None:
    """Raise unless this machine has the device."""
    import torch

    if name is None:
        return
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise typer.BadParameter(f"'{name}' is not a device; use cpu, cuda or cuda:1", param_hint="--device") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise typer.BadParameter(f"'{name}': this machine has {count or 'no'} CUDA devices", param_hint="--device")
