"""Kernels compiled ahead are those that a step then asks for."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

triton = pytest.importorskip("triton")

SCRIPT = """
import json, torch, triton
from triton import knobs
from triton.runtime.jit import KernelInterface
from polarvit.kernels.ahead import Elsewhere, compile_ahead
from polarvit.kernels.linear import linear_epilogue
from polarvit.kernels.pick import kernels

triton.runtime.driver.set_active(Elsewhere("cuda", 90, 32))

def step():
    y, a = torch.randn(16, 24, requires_grad=True), torch.rand(16, requires_grad=True)
    time, scalar = torch.randn(16, requires_grad=True), torch.zeros((), requires_grad=True)
    with kernels("interpreted"):
        radius, direction = linear_epilogue(y, a, time, scalar, scalar, scalar, out_features=16)
        torch.autograd.grad(radius.sum() + direction.sum(), [y, a])

found = []
knobs.compilation.listener = lambda *, src, cache_hit, **others: found.append((src.name, cache_hit))
assert [process.wait() for process in compile_ahead(step, processes=2)] == [0, 0]
assert not found  # nothing is compiled in this process

KernelInterface.__getitem__ = lambda self, grid: lambda *a, **b: self.run(*a, grid=grid, warmup=True, **b)  # no launch
step()
print(json.dumps(found))
"""


def test_other_processes_fill_the_cache_with_what_this_one_asks_for(tmp_path) -> None:
    """Without a GPU: for one that is not here. Under Triton's name for each kernel, or the step would compile again."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert {"linear_forward_kernel", "linear_backward_kernel"} <= {name for name, _ in found}
    assert all(hit for _, hit in found), found


def test_nothing_starts_where_kernels_are_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    from polarvit.kernels.ahead import compile_ahead

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert compile_ahead(lambda: pytest.fail("the step is not for running"), processes=2) == []


def no_door() -> None:
    raise AttributeError("module 'triton.knobs' has no attribute 'runtime'")


def no_memory() -> None:
    raise torch.OutOfMemoryError("out of memory")


@pytest.mark.parametrize(("settle", "step"), [(no_door, lambda: None), (lambda: None, no_memory)])
def test_trouble_ends_in_a_warning_and_not_the_run(settle, step, monkeypatch: pytest.MonkeyPatch) -> None:
    from polarvit.kernels import ahead

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(ahead, "settle", settle)
    monkeypatch.setattr(triton.runtime.driver, "_active", ahead.Elsewhere("cuda", 90, 32))
    with pytest.warns(UserWarning, match=r"not compiled ahead, .*(AttributeError|OutOfMemoryError)"):
        assert ahead.compile_ahead(step, processes=2) == []


@pytest.mark.parametrize("program", ["/bin/true", "/bin/sleep"])
def test_nobody_waits_for_a_process_that_does_not_read(program, monkeypatch: pytest.MonkeyPatch) -> None:
    """More is said to it than a pipe holds. `sleep` does not know its arguments and ends at once, too."""
    from polarvit.kernels import ahead

    monkeypatch.setattr(sys, "executable", program)
    process = ahead._process([ahead.Job("module", "kernel", "x" * 2**20)], ("cuda", 90, 32))
    assert process.wait(timeout=60) is not None


def test_processes_end_with_the_one_that_started_them(tmp_path) -> None:
    slow, mark = tmp_path / "slow", tmp_path / "mark"
    slow.write_text(f"#!/bin/sh\nsleep 1\ntouch {mark}\n")
    slow.chmod(0o755)
    code = f"import sys; from polarvit.kernels import ahead; sys.executable = {str(slow)!r}; ahead._process([], ())"
    subprocess.run([sys.executable, "-c", code], check=True)
    time.sleep(1.5)
    assert not mark.exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_processes_compile_for_a_model_on_a_gpu(precision) -> None:
    from polarvit.models import create_model
    from polarvit.training.ahead import compile_kernels_ahead

    model = create_model("polar_vit_tiny", depth=1, img_size=32, patch_size=4, num_classes=10).cuda()
    processes = compile_kernels_ahead(model, torch.randn(16, 3, 32, 32, device="cuda"), precision)
    assert len(processes) > 0
    assert [process.wait() for process in processes] == [0] * len(processes)
