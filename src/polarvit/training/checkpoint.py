"""Checkpoints: flat folders of safetensors and JSON, written atomically, complete or not there at all.

    runs/cifar/checkpoints/step-00001000/
        state.json                  step, settings, metrics, and the size and SHA-256 of every file
        model-00000.safetensors     parameters and buffers, in shards no larger than asked
        optimizer-00000.safetensors moments and step counts by parameter name
        ema-00000.safetensors       if there is an average

The random state needs no file: every generator is seeded from (seed, step, rank) at every step, and the position in
the data is the step as well. A folder appears under its name only when everything in it is on the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

FORMAT = 1


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used; the message names the file."""


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as flat tensors named `<parameter>|<entry>`."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"{names[id(p)]}|{key}": value
        for p, entries in optimizer.state.items()
        for key, value in entries.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(model: nn.Module, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put flat tensors back; the optimizer's groups stay as they are."""
    parameters = dict(model.named_parameters())
    for full, value in tensors.items():
        name, _, key = full.partition("|")
        if name not in parameters:
            raise CheckpointError(f"optimizer state for '{name}', which this model does not have")
        p = parameters[name]
        on_host = key == "step" and not any(g["capturable"] or g["fused"] for g in optimizer.param_groups)
        device = torch.device("cpu") if on_host and not p.is_cuda else p.device
        optimizer.state[p][key] = value.to(device)


def save(folder: Path, parts: dict[str, dict[str, Tensor]], state: dict[str, Any], shard_bytes: int) -> None:
    """Write the tensors of `parts` and `state` into the new folder `folder`, all or nothing."""
    work = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
        files = {}
        for part, tensors in parts.items():
            for index, shard in enumerate(_shards(tensors, shard_bytes)):
                path = work / f"{part}-{index:05d}.safetensors"
                save_file({k: v.detach().cpu().contiguous() for k, v in shard.items()}, path)
                files[path.name] = {"bytes": path.stat().st_size, "sha256": _digest(path)}
        text = json.dumps({"format": FORMAT, **state, "files": files}, indent=1)
        (work / "state.json").write_text(text, encoding="utf-8")
        for path in work.iterdir():
            _flush(path)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(work, folder)
        _flush(folder.parent)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def load(folder: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Tensors by part and the state of a checkpoint; raises `CheckpointError` if anything is missing or damaged."""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        if state["format"] != FORMAT:
            raise CheckpointError(f"{folder.name}: format {state['format']}, this version reads {FORMAT}")
        parts: dict[str, dict[str, Tensor]] = {}
        for name, expected in state["files"].items():
            path = folder / Path(name).name
            if path.stat().st_size != expected["bytes"] or _digest(path) != expected["sha256"]:
                raise CheckpointError(f"{folder.name}/{name}: truncated or damaged")
            parts.setdefault(name.rsplit("-", 1)[0], {}).update(load_file(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder.name}: unreadable ({type(error).__name__}: {error})") from error
    return parts, state


def steps(root: Path) -> list[tuple[int, Path]]:
    """Checkpoints under `root`, newest first."""
    found = [(int(path.name.removeprefix("step-")), path) for path in root.glob("step-*") if path.is_dir()]
    return sorted(found, reverse=True)


def load_newest(root: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]] | None:
    """The newest checkpoint that is whole; a damaged one is passed over with a warning. None if there is none."""
    for step, folder in steps(root):
        try:
            return load(folder)
        except CheckpointError as error:
            warnings.warn(
                f"checkpoint of step {step} cannot be used, falling back to the one before: {error}", stacklevel=2
            )
    return None


def prune(root: Path, keep: int, best: int | None) -> None:
    """Delete all but the newest `keep` checkpoints and the best one."""
    for step, folder in steps(root)[keep:]:
        if step != best:
            shutil.rmtree(folder, ignore_errors=True)


def _shards(tensors: dict[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    shards: list[dict[str, Tensor]] = [{}]
    used = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if shards[-1] and used + size > limit:
            shards.append({})
            used = 0
        shards[-1][name] = tensor
        used += size
    return shards


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
