"""Checkpoints: flat folders of safetensors and JSON, written atomically, complete or not there at all.

    runs/cifar/checkpoints/step-00001000/
        state.json                  step, recipe, config, best score; size and SHA-256 of every file, and its own
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
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
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
        name, _, key = full.rpartition("|")
        if name not in parameters:
            raise CheckpointError(f"optimizer state for '{name}', which this model does not have")
        optimizer.state[parameters[name]][key] = value.to(parameters[name].device)


def save(folder: Path, parts: dict[str, dict[str, Tensor]], state: dict[str, Any], shard_bytes: int) -> None:
    """Write the tensors of `parts` and `state` into the new folder `folder`, all or nothing."""
    for stale in folder.parent.glob(".step-*.partial"):
        shutil.rmtree(stale, ignore_errors=True)
    work = folder.with_name(f".{folder.name}.partial")
    try:
        work.mkdir(parents=True)
        files = {}
        for part, tensors in parts.items():
            for index, shard in enumerate(_shards(tensors, shard_bytes)):
                name = f"{part}-{index:05d}.safetensors"
                content = serialise({k: v.detach().cpu().contiguous() for k, v in shard.items()})
                _write(work / name, content)
                files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        state = {"format": FORMAT, **state, "files": files}
        _write(work / "state.json", json.dumps({**state, "sha256": _seal(state)}, indent=1).encode())
        _flush(work)
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
        if state.pop("sha256") != _seal(state):
            raise CheckpointError(f"{folder.name}/state.json: changed after it was written")
        if state["format"] != FORMAT:
            raise CheckpointError(f"{folder.name}: format {state['format']}, this version reads {FORMAT}")
        parts: dict[str, dict[str, Tensor]] = {}
        for name, expected in state["files"].items():
            content = (folder / Path(name).name).read_bytes()
            if len(content) != expected["bytes"] or hashlib.sha256(content).hexdigest() != expected["sha256"]:
                raise CheckpointError(f"{folder.name}/{name}: truncated or damaged")
            parts.setdefault(name.rsplit("-", 1)[0], {}).update(parse(content))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise CheckpointError(f"{folder.name}: unreadable ({type(error).__name__}: {error})") from error
    return parts, state


def steps(root: Path) -> list[tuple[int, Path]]:
    """Checkpoints under `root`, newest first."""
    found = [(int(path.name[5:]), path) for path in root.glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
    return sorted(found, reverse=True)


def load_newest(root: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]] | None:
    """The newest checkpoint that is whole; a damaged one is passed over with a warning. None if there are none at all.

    If none of them is whole the newest one's error is raised: a run does not begin anew for that.
    """
    found, errors = steps(root), []
    for step, folder in found:
        try:
            return load(folder)
        except CheckpointError as error:
            errors.append(error)
            if len(errors) < len(found):
                text = f"checkpoint of step {step} cannot be used, falling back to the one before: {error}"
                warnings.warn(text, stacklevel=2)
    if errors:
        which = f"none of the checkpoints of steps {', '.join(str(step) for step, _ in found)} can be used"
        raise CheckpointError(f"{which} ({errors[0]}); to begin anew use another folder") from errors[0]
    return None


def set_aside(root: Path, step: int) -> None:
    """Rename checkpoints later than `step`, where the run goes on: they are damaged, and not of its future."""
    for _, folder in (each for each in steps(root) if each[0] > step):
        other = folder.with_name(f"damaged-{folder.name}")
        shutil.rmtree(other, ignore_errors=True)
        folder.rename(other)


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


def _seal(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
