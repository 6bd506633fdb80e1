"""The benchmark of training steps runs everywhere, names its models clearly and says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from commands import call, done, flat
from torch import Tensor, nn
from torch._inductor.exc import InductorError

from polarvit.experiments.bench import contestants, step
from polarvit.experiments.bench import start as bench_start
from polarvit.experiments.bench.contestants import BASE, CONTESTANTS, DEFAULT, Case, Setting, build, chosen
from polarvit.experiments.bench.start import cold_start
from polarvit.models import AmbientTwin, PolarViT, create_model, list_models
from polarvit.training.settings import SettingsError

SMALL: dict[str, Any] = {"image": 8, "patch": 4, "classes": 4, "batches": [2], "device": "cpu", "seconds": 0.0}
NARROW = Setting(image=8, patch=4, classes=4, narrow=True)
CASE = Case(NARROW, torch.device("cpu"), 2, "fp32", compiled=False)


def test_it_runs_small_on_a_cpu_and_labels_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step.run(**SMALL, out=tmp_path)
    said = flat(capsys.readouterr().out)
    assert "says nothing about speed" in said
    assert "not a result" in said
    record = json.loads((tmp_path / "step-tiny-cpu.json").read_text())
    assert (tmp_path / "step-tiny-cpu.png").stat().st_size > 1000
    assert record["setting"]["narrow"] is True
    assert {"machine", "packages", "commit", "device"} <= set(record)
    assert {"torch", "triton", "timm"} <= set(record["packages"])
    expected = [one for one in CONTESTANTS if one.key in DEFAULT and one.key != "timm"]
    rows = [row for row in record["rows"] if row["key"] != "timm"]
    assert [row["label"] for row in rows] == [one.label for one in expected]
    for row in rows:
        assert row["step"]["ms"] > 0
        assert row["forward_backward"]["ms"] > 0
        assert row["step"]["ratio"] > 0
        assert row["step"]["ratio_to_class_token"] > 0
    assert (rows[0]["key"], rows[0]["step"]["ratio"]) == (BASE, 1)
    assert record["bars"] == []


def test_every_precision_and_batch_is_timed(tmp_path: Path) -> None:
    settings = {**SMALL, "batches": [3, 2, 2], "precisions": ["fp32", "bf16"]}
    rows = step.run(**settings, only=[BASE], out=tmp_path)["rows"]
    assert [(row["precision"], row["batch"]) for row in rows] == [("fp32", 2), ("fp32", 3), ("bf16", 2), ("bf16", 3)]


def test_what_is_measured_outlives_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = step.measure

    def interrupted(*arguments: Any) -> list[step.Row]:
        if arguments[1].precision == "bf16":
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(step, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step.run(**SMALL, precisions=["fp32", "bf16"], only=[BASE], out=tmp_path)
    record = json.loads((tmp_path / "step-tiny-cpu.json").read_text())
    assert [row["precision"] for row in record["rows"]] == ["fp32"]


def test_one_that_cannot_run_does_not_end_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = step.prepare

    def short_of_memory(one: contestants.Contestant, *rest: Any) -> Any:
        if one.key == "class-token":
            raise torch.OutOfMemoryError("too large")
        return prepare(one, *rest)

    monkeypatch.setattr(step, "prepare", short_of_memory)
    rows = step.run(**SMALL, only=["class-token"], out=None)["rows"]
    assert rows[1]["failed"] == "out of memory"
    assert "ratio" in rows[0]["step"]
    assert "ratio_to_class_token" not in rows[0]["step"]


def test_a_compilers_message_is_told_by_its_end() -> None:
    error = RuntimeError(
        "An exception occurred in a subprocess:\n\nName=triton_per_fused\nTraceback (most recent call last):\n"
        "  ...\nValueError: too many registers\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace\n"
    )
    assert step.in_short(error) == "RuntimeError: ValueError: too many registers"
    assert step.in_short(RuntimeError("")) == "RuntimeError: "


def test_where_the_compiler_fails_smaller_kernels_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int | None] = []

    def choosy(*arguments: Any, largest: int | None, **options: Any) -> Any:
        tried.append(largest)
        if largest == 8:
            raise InductorError(RuntimeError("PassManager::run failed"), None)
        return build(*arguments, largest=largest, **options)

    monkeypatch.setattr(bench_start, "build", choosy)
    plain = next(one for one in CONTESTANTS if one.key == "plain")
    with pytest.warns(UserWarning, match="plain code: 8 loops in a kernel do not compile"):
        started = bench_start.start(plain, CASE)
    assert tried == [8, 2]
    assert started.facts["largest_kernel"] is None  # not compiled


def test_the_contestants_are_who_their_labels_say() -> None:
    images = torch.randn(2, 3, 8, 8)
    made = {one.key: build(one, NARROW, images, compiled=False) for one in chosen(["class-token", "polar", "lorentz"])}
    twin, _ = made[BASE]
    assert twin.token is None
    assert made["class-token"][0].token is not None
    assert isinstance(made["polar"][0], PolarViT)
    if "lorentz_vit_tiny" not in list_models():
        assert isinstance(made["lorentz"][0], AmbientTwin)
        assert made["lorentz"][1]["name"] == "AmbientTwin(polar_vit_tiny)"
    assert all(model.training and model(images).shape == (2, 4) for model, _ in made.values())


def test_a_registered_lorentz_vit_takes_the_place_of_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "list_models", lambda: ["lorentz_vit_tiny"])
    asked: list[str] = []

    def create(name: str, **options: Any) -> Any:
        asked.append(name)
        return create_model("vit_tiny", **options)

    monkeypatch.setattr(contestants, "create_model", create)
    one = next(each for each in CONTESTANTS if each.key == "lorentz")
    assert build(one, NARROW, torch.randn(2, 3, 8, 8), compiled=False)[1]["name"] == "lorentz_vit_tiny"
    assert asked == ["lorentz_vit_tiny"]


def test_plain_code_runs_without_kernels() -> None:
    from polarvit.kernels import pick

    for one in CONTESTANTS:
        with one.kernels():
            assert pick._choice == ("auto" if one.key in ("polar", "joint") else "plain")


class StandIn(nn.Module):
    """Takes what timm's VisionTransformer takes, and keeps it."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.blocks = nn.Sequential(nn.Linear(48, options["num_classes"]))

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images.flatten(2).mean(-1).repeat(1, 16))


def test_the_vit_of_timm_gets_the_sizes_of_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("timm.models.vision_transformer")
    module.VisionTransformer = StandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", ModuleType("timm"))
    monkeypatch.setitem(sys.modules, "timm.models", ModuleType("timm.models"))
    monkeypatch.setitem(sys.modules, "timm.models.vision_transformer", module)
    monkeypatch.setattr(contestants, "timm_installed", lambda: True)
    assert "timm" in [one.key for one in chosen(None)]
    one = next(each for each in CONTESTANTS if each.key == "timm")
    model, _ = build(one, NARROW, torch.randn(2, 3, 8, 8), compiled=False)
    assert isinstance(model, StandIn)
    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 2, "mlp_ratio": 2.0, "img_size": 8, "patch_size": 4}
    assert sizes.items() <= model.options.items()
    assert model.options["class_token"] is False
    rows = step.run(**SMALL, only=["timm"], out=None)["rows"]
    assert rows[1]["step"]["ratio"] > 0


def test_the_real_vit_of_timm_has_as_many_parameters_as_the_twin_but_biases() -> None:
    pytest.importorskip("timm")
    one = next(each for each in CONTESTANTS if each.key == "timm")
    model, _ = build(one, NARROW, torch.randn(2, 3, 8, 8), compiled=False)
    twin = create_model("vit_tiny", **NARROW.options, readout="mean")
    extra = 2 * (3 * 24) - 2  # biases of q, k, v; the twin has a temperature in each block
    assert sum(p.numel() for p in model.parameters()) == twin.count() + extra


def test_an_unknown_contestant_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="unknown contestant 'vgg'"):
        chosen(["vgg"])
    monkeypatch.setattr(contestants, "timm_installed", lambda: False)
    with pytest.raises(ImportError, match="pip install"):
        chosen(["timm"])
    assert "timm" not in [one.key for one in chosen(None)]
    result = call("bench", "step", "--only", "vgg", "--device", "cpu")
    assert result.exit_code == 2
    assert "error: unknown contestant 'vgg'" in result.stderr


@pytest.mark.slow
def test_a_cold_start_is_a_process_of_its_own(tmp_path: Path) -> None:
    words = ("--device", "cpu", "--img-size", 8, "--batch", 2, "--seconds", 0, "--cold-start", "--only", "euclidean")
    done("bench", "step", *words, "--out", tmp_path)
    record = json.loads((tmp_path / "step-tiny-cpu.json").read_text())
    assert record["cold_start_seconds"]["euclidean"] > 0.5  # importing torch takes longer


def test_a_cold_start_has_empty_caches_and_tells_why_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(words: list[str], env: dict[str, str], **_: Any) -> Any:
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            assert not Path(env[name]).exists()
            assert Path(env[name]).parent.is_dir()
        return subprocess.CompletedProcess(words, 1, "", "Traceback\nValueError: no such model\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(RuntimeError, match="cold start of 'polar' ended with code 1: ValueError: no such model"):
        cold_start("polar", CASE)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_steps_are_graphs_and_memory_is_counted(tmp_path: Path) -> None:
    settings = {**SMALL, "device": "cuda", "batches": [4]}
    rows = step.run(**settings, only=["class-token", "polar"], compiled=False, cold=False, out=tmp_path)["rows"]
    for row in rows:
        assert "failed" not in row
        assert row["peak_mib"] > 1
        assert row["step"]["ms"] > row["forward_backward"]["ms"] > 0
