"""A contestant up to its first training step, here or in a process of its own whose compiler caches are empty.

`python -m polarvit.experiments.bench.start JSON` is that process; `cold_start` runs it and takes the time.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor.exc import InductorError

from polarvit.experiments.bench.contestants import CONTESTANTS, Case, Contestant, Setting, build
from polarvit.optim import RiemannianAdamW, param_groups
from polarvit.processes import own_process
from polarvit.training.distributed import Place
from polarvit.training.step import TrainingStep, set_precision

LR = 1e-6
"""So small that the model stays what it was: kernels choose their way by the radii they meet."""
PATIENCE = 600
"""Seconds after which a cold start is given up."""


@dataclass(frozen=True)
class Started:
    """A model whose first training step is done."""

    model: nn.Module
    step: TrainingStep
    images: Tensor
    targets: Tensor
    facts: dict[str, Any]

    def __call__(self) -> Tensor:
        """One more step."""
        return self.step(self.images, self.targets, LR)


def start(one: Contestant, case: Case) -> Started:
    """Build, compile and take the first step; on a GPU the later ones are a CUDA graph. Enter `one.kernels()` first.

    Where the compiler fails, the contestant's next way to compile is tried.
    """
    set_precision(case.precision)
    for largest in one.largest[:-1]:
        try:
            return _start(one, case, largest)
        except InductorError as error:
            text = " ".join(str(error).split())
            warnings.warn(f"{one.label}: {largest} loops in a kernel do not compile ({text[:200]})", stacklevel=2)
        torch._dynamo.reset()
        gc.collect()  # or what the failed try holds would count as the next one's
    return _start(one, case, one.largest[-1])


def _start(one: Contestant, case: Case, largest: int | None) -> Started:
    setting, cuda = case.setting, case.cuda
    images = torch.randn(case.batch, 3, setting.image, setting.image, device=case.device)
    targets = torch.randn(case.batch, setting.classes, device=case.device).softmax(-1)
    model, facts = build(one, setting, images, compiled=case.compiled, precision=case.precision, largest=largest)
    groups = param_groups(model, LR, 0.05)
    optimizer = RiemannianAdamW(groups, capturable=cuda, compile=None if case.compiled else False)
    step = TrainingStep(model, optimizer, Place(0, 1, case.device), precision=case.precision, graph=cuda)
    facts["parameters"] = sum(p.numel() for p in model.parameters())
    started = Started(model, step, images, targets, facts)
    started().item()
    return started


def cold_start(key: str, case: Case) -> float:
    """Seconds from the start of a fresh Python process to the end of its first training step, caches empty."""
    words = {"key": key, "case": asdict(case) | {"device": str(case.device)}}
    started, known = own_process(__name__, json.dumps(words))
    with tempfile.TemporaryDirectory(prefix="polarvit-cold-", ignore_cleanup_errors=True) as folder:
        environment = {
            **known,
            "TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "inductor")),
            "TRITON_CACHE_DIR": str(Path(folder, "triton")),
        }
        began = time.time()
        done = subprocess.run(
            started, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"cold start of '{key}' ended with code {done.returncode}: {last}")
    return float(json.loads(done.stdout.splitlines()[-1])["ended"]) - began


def main() -> None:
    """The process of a cold start: one step, then the time."""
    words = json.loads(sys.argv[1])
    one = next(each for each in CONTESTANTS if each.key == words["key"])
    told = words["case"]
    case = Case(**told | {"setting": Setting(**told["setting"]), "device": torch.device(told["device"])})
    with one.kernels():
        start(one, case)
    print(json.dumps({"ended": time.time()}))


if __name__ == "__main__":
    main()
