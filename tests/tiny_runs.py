"""Training runs small enough for tests, in this process or in others that can be killed or joined."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from polarvit.training import Trainer, checkpoint, distributed, recipe, train
from polarvit.training.distributed import place
from polarvit.training.evaluate import score_images
from polarvit.training.recipe import Recipe
from polarvit.training.run_folder import RunFolder
from polarvit.training.settings import build

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["polarvit.training", "sklearn.datasets"])


def tiny_recipe(*overrides: str, name: str = "polar_vit_tiny") -> Recipe:
    """12 steps of 8 digits through one block of width 16; `overrides` as on the command line."""
    values: dict[str, Any] = {
        "title": "tiny",
        "model": {
            "name": name,
            "options": {
                "img_size": 16,
                "patch_size": 8,
                "depth": 1,
                "dim": 16,
                "mlp_dim": 16,
                "heads": 2,
                "drop_path": 0.1,
            },
        },
        "data": {"path": "digits"},
        "augment": {"crop_padding": 1, "mixup_alpha": 1.0, "label_smoothing": 0.1},
        "optim": {"lr": 2e-3, "weight_decay": 0.05, "warmup": 3},
        "train": {"steps": 12, "batch_size": 8, "precision": "fp32"},
        "watch": {"log_every": 2, "eval_every": 6, "checkpoint_every": 3},
    }
    for override in overrides:
        recipe.apply(values, override)
    return build(Recipe, values)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the newest checkpoint of a run, by `part/name`."""
    found = checkpoint.load_newest(folder / "checkpoints")
    assert found is not None
    return {f"{part}/{name}": tensor for part, tensors in found[0].items() for name, tensor in tensors.items()}


def differing(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> list[str]:
    """Names of tensors that are not the same to the last bit."""
    assert first.keys() == second.keys()
    return [name for name in first if not torch.equal(first[name], second[name])]


def run_quietly(settings: Recipe, folder: Path, **options: Any) -> None:
    """Train or resume in a process of its own; one thread, so that sums have one order."""
    torch.set_num_threads(1)
    train(settings, folder, resume=True, device="cpu", quiet=True, **options)


def die_at_call(settings: Recipe, folder: Path, last: int) -> None:
    """Train or resume, and be killed when this thread enters or leaves its n-th function.

    A run that gets to its end writes how many there were to `calls`.
    """
    count = 0

    def one_more(*_: object) -> None:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(one_more)
    run_quietly(settings, folder)
    sys.setprofile(None)
    (folder / "calls").write_text(str(count))


def die_while_saving(settings: Recipe, folder: Path, writes: int) -> None:
    """Train, and be killed in the middle of a checkpoint: in its n-th file, or (0) before it gets its name."""
    real, count = checkpoint._write, 0

    def write(path: Path, content: bytes) -> None:
        nonlocal count
        count += 1
        if count == writes:
            path.write_bytes(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        real(path, content)

    checkpoint._write = write
    if not writes:
        os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    run_quietly(settings, folder)


def first_gradients(settings: Recipe, folder: Path, name: str) -> None:
    """Write the gradients of the first step and the scores of the untrained model."""
    torch.set_num_threads(1)
    with place("cpu") as here:
        trainer = Trainer(settings, RunFolder(folder, here, resume=False), here, quiet=True)
        found: dict[str, Any] = {}
        trainer.optimizer.step = lambda: found.update(  # type: ignore[method-assign]
            {key: p.grad.clone() for key, p in trainer.model.named_parameters() if p.grad is not None}
        )
        trainer._one(0)
        assert trainer.data.validation is not None
        scores = score_images(
            trainer.model, trainer.data.validation, trainer.data.augmenter, here, batch_size=100
        ).scores()
        if here.leads:
            torch.save({"gradients": found, "scores": scores.to_dict()}, folder / name)


@contextmanager
def started(target: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    """A process that runs `target(*arguments)`; killed at the end if it still runs."""
    process = SERVER.Process(target=target, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def join_group(rank: int, world: int, port: int) -> None:
    """The environment `torchrun` would give."""
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )


def as_rank(rank: int, world: int, port: int, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    join_group(rank, world, port)
    target(*arguments)


def leave_a_group(folder: Path) -> None:
    """Join a group and leave it, then say how many threads there are while it is kept and once it is let go."""
    threads = lambda: len(os.listdir("/proc/self/task"))  # noqa: E731
    with distributed.place("cpu") as here:
        here.sum(torch.ones(3))
    kept = threads()
    distributed._let_go()
    (folder / f"{here.rank}.json").write_text(json.dumps([kept, threads()]))


def together(world: int, target: Callable[..., Any], *arguments: Any, timeout: float = 120) -> None:
    """Run `target(*arguments)` in `world` gloo processes on this machine; raises unless all succeed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [SERVER.Process(target=as_rank, args=(rank, world, port, target, arguments)) for rank in range(world)]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(timeout)
        codes = [process.exitcode for process in processes]
        if codes != [0] * world:
            raise RuntimeError(f"processes ended with {codes}")
    finally:
        for process in processes:
            process.kill()
            process.join()
