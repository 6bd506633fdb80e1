"""`polarvit train` and `polarvit finetune`: start, stop, go on, in one process or two."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from commands import call, done, flat, tiny_yaml

from polarvit.training import loop
from polarvit.training.interrupt import Interrupted
from polarvit.training.recipe import load

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_a_run_folder_holds_everything(run: Path) -> None:
    assert {"recipe.yaml", "environment.json", "log.jsonl", "metrics.json", "checkpoints", "model"} <= {
        path.name for path in run.iterdir()
    }
    assert load(run / "recipe.yaml").title == "tiny"


def test_settings_flags_and_data_reach_the_recipe(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr("polarvit.training.train", lambda *args, **options: seen.append((*args, options)))
    words = ["--set", "optim.lr=1e-4", "--set", "train.seed=1", "--seed", 7, "--data", "it's/here", "--resume"]
    done("train", recipe, *words, "--out", tmp_path / "r", "--device", "cpu")
    settings, folder, options = seen[0]
    assert (settings.optim.lr, settings.train.seed, settings.data.path) == (1e-4, 7, "it's/here")
    assert folder == tmp_path / "r"
    assert options == {"resume": True, "device": "cpu"}


def test_the_folder_is_named_after_the_recipe(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("polarvit.training.train", lambda settings, folder, **_: seen.append(folder))
    assert "runs/tiny" in done("train", recipe)
    assert seen == [Path("runs/tiny")]


def test_a_folder_with_a_run_is_not_overwritten(recipe: Path, run: Path) -> None:
    result = call("train", recipe, "--out", run)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "--resume" in result.stderr


def test_a_finished_run_stays_as_it_is(run: Path) -> None:
    before = (run / "metrics.json").read_bytes()
    assert "top-1" in done("train", "--resume", "--out", run, "--device", "cpu")
    assert (run / "metrics.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "recipes list"),
        (["train", "digitz"], "did you mean 'digits'?"),
        (["train", "--resume"], "which run"),
        (["train", "--resume", "--out", "nowhere"], "nowhere holds no run"),
        (["train", "digits", "--set", "optim.lrr=1"], "unknown setting 'optim.lrr'; did you mean 'optim.lr'?"),
        (["train", "digits", "--set", "optim.lr=fast"], "optim.lr: must be a number, got 'fast'"),
        (["train", "digits", "--set", "optim.lr"], "key.path=value"),
        (["train", "digits", "--set", "model.options.dept=3"], "did you mean 'model.options.depth'?"),
        (["train", "digits", "--set", "model.name=polar_vit_tny"], "did you mean 'polar_vit_tiny'?"),
        (["train", "digits", "--device", "gpu"], "'gpu' is not a device"),
        (["train", "digits", "--device", "cuda:99"], "CUDA devices"),
        (["train", "digits", "--seed", "-1"], "0"),
    ],
)
def test_a_wrong_command_line_exits_with_2_and_says_why(words: list[str], message: str) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert message in flat(result.stderr)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.path=nowhere", "nowhere: no such folder"),
        ("train.batch_size=5000", "batch size 5000"),
        ("data.validation=holdout", "has no split 'holdout'"),
        ("model.options.num_classes=3", "10 classes"),
        ("model.pretrained=nothing", "'nothing' is not a packaged tag"),
    ],
)
def test_data_or_weights_that_do_not_fit_are_one_line(recipe: Path, tmp_path: Path, change: str, message: str) -> None:
    result = call("train", recipe, "--set", change, "--out", tmp_path / "r", "--device", "cpu")
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "r").exists()


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch, recipe: Path, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    result = call("train", recipe, "--set", "watch.tensorboard=true", "--out", tmp_path / "r", "--device", "cpu")
    assert result.exit_code == 1
    assert "polarvit[tensorboard]" in result.stderr


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, recipe: Path, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("polarvit.training.train", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        call("train", recipe, "--out", tmp_path / "r")


@pytest.mark.parametrize(
    ("world", "command"),
    [
        ({}, "polarvit train --resume --out 'r u n' --device cpu"),
        (
            {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
            "torchrun --nproc-per-node 2 -m polarvit train --resume --out 'r u n' --device cpu",
        ),
        (
            {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"},
            "torchrun --nnodes 2 ... --nproc-per-node 4 -m polarvit train --resume --out 'r u n' --device cpu",
        ),
    ],
    ids=["one", "two", "two nodes"],
)
def test_an_interruption_says_exactly_how_to_go_on(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, world: dict[str, str], command: str
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise Interrupted(7)

    for name, value in world.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("polarvit.training.train", stopped)
    result = call("train", recipe, "--out", "r u n", "--device", "cpu")
    assert result.exit_code == 130
    assert f"saved at step 7; continue with: {command}\n" in result.stdout


@pytest.mark.slow
def test_ctrl_c_saves_and_the_command_it_prints_goes_on(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(tiny_yaml(train={"steps": 100000, "batch_size": 8, "precision": "fp32"}))
    words = [sys.executable, "-m", "polarvit", "train", "long.yaml", "--device", "cpu"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=ONE_THREAD, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        log, patience = tmp_path / "runs" / "long" / "log.jsonl", time.monotonic() + 60
        while not (log.exists() and log.read_text()) and time.monotonic() < patience:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    step = int(output.split("saved at step ")[1].split(";")[0])
    assert (tmp_path / "runs" / "long" / "checkpoints" / f"step-{step:08d}").is_dir()
    printed = shlex.split(output.split("continue with: ")[1])
    assert printed == ["polarvit", "train", "--resume", "--out", "runs/long", "--device", "cpu"]
    folder = tmp_path / "runs" / "long"
    done("train", "--resume", "--out", folder, "--device", "cpu", "--set", f"train.steps={step + 2}")
    assert [json.loads(line)["step"] for line in log.read_text().splitlines() if "loss" in line][-1] == step + 2


@pytest.mark.slow
def test_torchrun_starts_it_in_two_processes(recipe: Path, tmp_path: Path) -> None:
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "polarvit", "train", str(recipe)]
    finished = subprocess.run(
        [sys.executable, *words, "--out", "two", "--device", "cpu"],
        cwd=tmp_path,
        env=ONE_THREAD,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("-> two") == 1
    assert json.loads((tmp_path / "two" / "metrics.json").read_text())["processes"] == 2


def test_finetuning_keeps_the_architecture_of_the_weights(run: Path, photos: Path, tmp_path: Path) -> None:
    done("data", "prepare", photos, tmp_path / "data", "--image-size", 32, "--validation", 0.3)
    (tmp_path / "fine.yaml").write_text(
        tiny_yaml(
            model={"name": "vit_tiny", "options": {"img_size": 32, "drop_path": 0.0}},
            data={"path": str(tmp_path / "data"), "validation": "validation"},
            train={"steps": 1, "batch_size": 4, "precision": "fp32"},
        )
    )
    result = call("finetune", run, tmp_path / "fine.yaml", "--out", tmp_path / "fine", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert "its classifier of 10 classes was left out" in result.stderr
    stored = json.loads((tmp_path / "fine" / "model" / "config.json").read_text())
    assert stored["architecture"] == "polar_vit_tiny"
    assert (stored["config"]["dim"], stored["config"]["img_size"], stored["config"]["num_classes"]) == (16, 32, 3)
    written = yaml.safe_load((tmp_path / "fine" / "recipe.yaml").read_text())
    assert written["model"]["pretrained"] == str(run / "model")
    assert written["title"] == f"polar_vit_tiny from {run.name}, fine-tuned by fine"


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("model.options.heads=4", "options.heads"),
        ("model.name=vit_tiny", "name"),
        ("model.pretrained=a/b", "pretrained"),
    ],
)
def test_finetuning_refuses_what_the_weights_decide(run: Path, recipe: Path, setting: str, key: str) -> None:
    result = call("finetune", run, recipe, "--set", setting)
    assert result.exit_code == 2
    assert f"model.{key} is decided by the weights" in flat(result.stderr)


def test_finetuning_takes_a_recipe_without_data_and_what_the_weights_say_themselves(run: Path, tmp_path: Path) -> None:
    values = yaml.safe_load(tiny_yaml(train={"steps": 1, "batch_size": 4, "precision": "fp32"}))
    del values["data"]
    (tmp_path / "no-data.yaml").write_text(yaml.safe_dump(values))
    words = ["--data", "digits", "--set", "model.options.heads=2", "--set", "model.options.rate=4.0"]
    done("finetune", run, tmp_path / "no-data.yaml", *words, "--out", tmp_path / "fine", "--device", "cpu")
    assert json.loads((tmp_path / "fine" / "model" / "config.json").read_text())["config"]["heads"] == 2


def test_finetuning_from_nothing_is_one_line(recipe: Path, tmp_path: Path) -> None:
    result = call("finetune", tmp_path / "nothing", recipe)
    assert result.exit_code == 1
    assert "nothing: no such folder" in result.stderr


def test_running_out_of_gpu_memory_says_what_to_change(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")

    monkeypatch.setattr(loop, "build_model", full)
    result = call("train", recipe, "--out", tmp_path / "r", "--device", "cpu")
    assert result.exit_code == 1
    assert "train.accumulate" in result.stderr
