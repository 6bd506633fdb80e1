"""What polar_attention refuses, what it falls back to, and what importing it needs."""

import subprocess
import sys
import warnings

import pytest
import torch

from polarvit.geometry import PolarPoint
from polarvit.kernels import polar_attention
from polarvit.kernels.attention import function


def point(*shape, dtype=torch.float32):
    return PolarPoint(torch.ones(shape[:-1], dtype=dtype), torch.full(shape, shape[-1] ** -0.5, dtype=dtype))


GOOD = {"query": point(2, 3, 4, 8), "key": point(2, 3, 5, 8), "value": point(2, 3, 5, 6), "scale": 0.5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"implementation": "cuda"}, r"implementation 'cuda', expected one of \('auto', 'triton', 'reference'\)"),
        ({"key": torch.ones(2, 3, 5, 8)}, "key is a Tensor, expected a PolarPoint"),
        ({"query": point(3, 4, 8)}, r"query has radius \[3, 4\] .* expected \[B, H, N\]"),
        ({"key": point(2, 4, 5, 8)}, r"key has batch and heads \[2, 4\], expected \[2, 3\]"),
        ({"key": point(2, 3, 5, 7)}, "key has head dimension 7, expected 8"),
        ({"value": point(2, 3, 4, 6)}, r"value has points \[2, 3, 4\], expected \[2, 3, 5\]"),
        ({"scale": torch.ones(2)}, r"scale has shape \[2\], expected a number or \[3\]"),
        ({"mask": torch.ones(2, 4, dtype=torch.bool)}, r"mask is torch.bool \[2, 4\], expected torch.bool \[2, 5\]"),
        ({"mask": torch.ones(2, 5)}, "mask is torch.float32"),
        ({"key": point(2, 3, 0, 8), "value": point(2, 3, 0, 6)}, "must not be empty"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        polar_attention(**{**GOOD, **change})


def test_without_a_gpu_or_interpreter_the_kernel_says_why_it_cannot_run(monkeypatch, caplog):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(function, "_said", set())
    with pytest.raises(RuntimeError, match=r"'triton' cannot run here: .*expected cuda|not installed"):
        polar_attention(**GOOD, implementation="triton")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with caplog.at_level("INFO", logger="polarvit"):
            for _ in range(2):
                assert polar_attention(**GOOD).direction.shape == (2, 3, 4, 6)
    assert [record.getMessage() for record in caplog.records] == [
        f"polar_attention runs its plain PyTorch reference: {function.why_not_triton(*list(GOOD.values())[:3])}"
    ]


def test_auto_never_interprets_on_the_cpu(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(function, "fused_attention", None)
    assert polar_attention(**GOOD).direction.shape == (2, 3, 4, 6)


def test_float64_and_wide_heads_go_to_the_reference(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    wide = {**GOOD, "value": point(2, 3, 5, 200)}
    double = {**GOOD, **{n: p.map(torch.Tensor.double) for n, p in GOOD.items() if n != "scale"}}
    for arguments, reason in ((double, "dtype torch.float64"), (wide, "value head dimension 200, expected at most")):
        with pytest.raises(RuntimeError, match=f"{reason}|not installed"):
            polar_attention(**arguments, implementation="triton")
        assert polar_attention(**arguments).radius.shape == (2, 3, 4)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_fallback_is_announced_once(compiled):
    """Within a compiled function, too: models compile their blocks as one graph."""

    def attend(x):
        function.say_once(f"no reason, compiled: {compiled}", True)
        return x + 1

    attend = torch.compile(attend, backend="eager", fullgraph=True) if compiled else attend
    with pytest.warns(UserWarning, match="runs its plain PyTorch reference: no reason"):
        attend(torch.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attend(torch.ones(2))


def test_importing_the_kernels_needs_no_triton():
    code = "import sys; sys.modules['triton'] = None; import polarvit.kernels"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
