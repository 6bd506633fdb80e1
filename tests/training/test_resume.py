"""A run can be killed at any moment and resumed to the same weights."""

from __future__ import annotations

import errno
import json
import random
import shutil
import signal
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import die_at_call, die_while_saving, differing, started, tiny_recipe, weights

from polarvit.cli.trained import find_model
from polarvit.training import Interrupted, Trainer, checkpoint, continuity, loop, recipe, run_folder, train
from polarvit.training.checkpoint import CheckpointError
from polarvit.training.distributed import Place
from polarvit.training.settings import plain


def changed(*overrides: str) -> recipe.Recipe:
    """The recipe of most runs here, with something else in it."""
    return tiny_recipe("train.ema=0.99", "optim.clip=1.0", "watch.keep=4", *overrides)


RECIPE = changed()


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(RECIPE, folder, device="cpu", quiet=True)
    return folder


def log_of(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "images_per_second"} for line in lines]


def final_weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def test_two_runs_with_one_seed_are_identical(whole: Path, tmp_path: Path) -> None:
    train(RECIPE, tmp_path / "again", device="cpu", quiet=True)
    assert differing(weights(whole), weights(tmp_path / "again")) == []
    assert differing(final_weights(whole), final_weights(tmp_path / "again")) == []
    assert log_of(whole) == log_of(tmp_path / "again")


def test_another_seed_gives_other_weights(whole: Path, tmp_path: Path) -> None:
    train(tiny_recipe("train.ema=0.99", "train.seed=1"), tmp_path / "run", device="cpu", quiet=True)
    assert differing(weights(whole), weights(tmp_path / "run"))


@pytest.mark.slow
def test_killed_at_random_moments_it_resumes_to_the_same_weights(whole: Path, tmp_path: Path) -> None:
    """A moment is a number of calls, not a time: how fast the machine is does not decide whether anything is killed."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    draw, folder, killed = random.Random(seed), tmp_path / "run", []
    with started(die_at_call, RECIPE, tmp_path / "counted", 0) as process:
        process.join(120)
    calls = int((tmp_path / "counted" / "calls").read_text())
    for _ in range(3):
        with started(die_at_call, RECIPE, folder, draw.randrange(calls * 13 // 20, calls)) as process:
            process.join(120)
            killed.append(process.exitcode)
    assert killed[0] == -signal.SIGKILL
    assert set(killed) <= {-signal.SIGKILL, 0}
    train(RECIPE, folder, resume=True, device="cpu", quiet=True)
    assert differing(weights(whole), weights(folder)) == []
    assert differing(final_weights(whole), final_weights(folder)) == []
    assert log_of(whole) == log_of(folder)


@pytest.mark.slow
@pytest.mark.parametrize("writes", [0, 2, 6], ids=["before-the-name", "first-checkpoint", "second-checkpoint"])
def test_killed_while_saving_it_resumes_to_the_same_weights(whole: Path, tmp_path: Path, writes: int) -> None:
    folder = tmp_path / "run"
    with started(die_while_saving, RECIPE, folder, writes) as process:
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    assert all((path / "state.json").exists() for _, path in checkpoint.steps(folder / "checkpoints"))
    train(RECIPE, folder, resume=True, device="cpu", quiet=True)
    assert differing(weights(whole), weights(folder)) == []
    assert log_of(whole) == log_of(folder)
    assert not list((folder / "checkpoints").glob(".*"))


def test_stopped_on_purpose_it_resumes_between_log_lines(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for expected in (5, 10):
        with pytest.raises(Interrupted) as stopped:
            train(RECIPE, folder, resume=True, device="cpu", quiet=True, stop_after=5)
        assert stopped.value.step == expected
        assert checkpoint.steps(folder / "checkpoints")[0][0] == expected
    train(RECIPE, folder, resume=True, device="cpu", quiet=True)
    assert differing(weights(whole), weights(folder)) == []
    for mine, theirs in zip(log_of(folder), log_of(whole), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12)


def test_recipe_log_and_newest_checkpoint_are_enough_to_go_on_elsewhere(whole: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    with pytest.raises(Interrupted):
        train(RECIPE, here, device="cpu", quiet=True, stop_after=8)
    _, newest = checkpoint.steps(here / "checkpoints")[0]
    shutil.copytree(newest, there / "checkpoints" / newest.name)
    for file in ("recipe.yaml", "log.jsonl"):
        shutil.copy(here / file, there)
    train(recipe.load(there / "recipe.yaml"), there, resume=True, device="cpu", quiet=True)
    assert differing(weights(whole), weights(there)) == []
    assert log_of(whole) == log_of(there)


def test_the_seconds_of_a_run_are_those_of_all_its_parts_with_what_comes_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, real = [0.0], loop.open_sets

    def slowly(*told: object) -> object:
        clock[0] += 100.0
        return real(*told)

    monkeypatch.setattr(loop, "open_sets", slowly)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    with pytest.raises(Interrupted):
        train(RECIPE, tmp_path, resume=True, device="cpu", quiet=True, stop_after=5)
    clock[0] += 5000.0
    train(RECIPE, tmp_path, resume=True, device="cpu", quiet=True)
    assert json.loads((tmp_path / "metrics.json").read_text())["seconds"] == 200.0


def test_a_run_in_parts_says_with_which_commit_each_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = iter(["aaa", "bbb", "changed on the disk meanwhile"])
    real = run_folder.provenance
    monkeypatch.setattr(run_folder, "provenance", lambda **told: {**real(**told), "commit": next(commits)})
    with pytest.raises(Interrupted):
        train(RECIPE, tmp_path, resume=True, device="cpu", quiet=True, stop_after=5)
    train(RECIPE, tmp_path, resume=True, device="cpu", quiet=True)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert [(part["from_step"], part["commit"]) for part in metrics["parts"]] == [(0, "aaa"), (5, "bbb")]
    assert metrics["parts"][0]["machine"] == metrics["machine"]
    assert metrics["commit"] == "bbb"


def test_ctrl_c_saves_and_says_where(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real = tmp_path / "run", Trainer._one

    def press(self: Trainer, step: int) -> torch.Tensor:
        if step == 4:
            signal.raise_signal(signal.SIGINT)
        return real(self, step)

    monkeypatch.setattr(Trainer, "_one", press)
    with pytest.raises(Interrupted) as stopped:
        train(RECIPE, folder, device="cpu", quiet=True)
    assert stopped.value.step == 5
    monkeypatch.undo()
    train(RECIPE, folder, resume=True, device="cpu", quiet=True)
    assert differing(weights(whole), weights(folder)) == []


def test_resuming_a_finished_run_changes_nothing(whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    scores = train(RECIPE, whole, resume=True, device="cpu", quiet=True)
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before
    written = json.loads((whole / "metrics.json").read_text())
    assert scores is not None
    assert scores.to_dict() == written["scores"]
    assert written["ema_scores"]["count"] == 359


def test_killed_after_the_last_step_it_only_finishes(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "metrics.json").unlink()
    shutil.rmtree(folder / "model")
    scores = train(RECIPE, folder, resume=True, device="cpu", quiet=True)
    assert scores is not None
    assert scores.top1 == pytest.approx(json.loads((whole / "metrics.json").read_text())["scores"]["top1"], rel=1e-4)
    assert differing(final_weights(whole), final_weights(folder)) == []


def unfinished_copy(whole: Path, folder: Path) -> Path:
    """The run as it was after step 9; returns the checkpoint of that step."""
    shutil.copytree(whole, folder)
    (folder / "metrics.json").unlink()
    shutil.rmtree(folder / "model")
    shutil.rmtree(folder / "checkpoints" / "step-00000012")
    return folder / "checkpoints" / "step-00000009"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace('"step": 9', '"step": 10'))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("optimizer-00000.safetensors", truncate),
        ("model-00000.safetensors", flip),
        ("ema-00000.safetensors", Path.unlink),
        ("state.json", truncate),
        ("state.json", edit),
    ],
    ids=["truncated", "bit-flipped", "missing", "state-truncated", "state-edited"],
)
def test_a_damaged_newest_checkpoint_is_passed_over(whole: Path, tmp_path: Path, name: str, damage) -> None:
    damage(unfinished_copy(whole, tmp_path / "run") / name)
    with pytest.warns(UserWarning, match="step 9 cannot be used, falling back"):
        found = checkpoint.load_newest(tmp_path / "run" / "checkpoints")
    assert found is not None
    assert found[1]["step"] == 6


def test_a_run_resumes_from_the_checkpoint_before_the_damaged_one(whole: Path, tmp_path: Path) -> None:
    truncate(unfinished_copy(whole, tmp_path / "run") / "model-00000.safetensors")
    with pytest.warns(UserWarning, match="step 9 cannot be used, falling back"):
        train(RECIPE, tmp_path / "run", resume=True, device="cpu", quiet=True)
    assert differing(weights(whole), weights(tmp_path / "run")) == []
    assert log_of(whole) == log_of(tmp_path / "run")


def test_a_full_disk_costs_one_checkpoint_and_not_the_run(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checkpoint._write

    def write(path: Path, content: bytes) -> None:
        if "step-00000006" in str(path) and path.name.startswith("optimizer"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    monkeypatch.setattr(checkpoint, "_write", write)
    with pytest.warns(UserWarning, match="checkpoint at step 6 was not written .*No space left"):
        train(RECIPE, tmp_path / "run", device="cpu", quiet=True)
    assert [step for step, _ in checkpoint.steps(tmp_path / "run" / "checkpoints")] == [12, 9, 3]
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))
    assert differing(weights(whole), weights(tmp_path / "run")) == []


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.seed=3", "train.seed was 0 and is 3 now"),
        ("model.options.depth=2", "model.options.depth was 1 and is 2 now"),
        ("model.name=vit_tiny", "model.name was 'polar_vit_tiny' and is 'vit_tiny' now"),
    ],
)
def test_another_seed_or_model_in_the_folder_is_an_error(whole: Path, override: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        train(tiny_recipe("train.ema=0.99", override), whole, resume=True, device="cpu", quiet=True)


def older(folder: Path) -> None:
    """Make the checkpoints of a run those of a version that did not keep the config."""
    for _, path in checkpoint.steps(folder / "checkpoints"):
        state = json.loads((path / "state.json").read_text())
        del state["sha256"], state["config"]
        (path / "state.json").write_text(json.dumps({**state, "sha256": checkpoint._seal(state)}))


@pytest.mark.parametrize(
    ("old", "began", "now", "found"),
    [
        (True, (), (), "offset"),  # nobody says: the default of its time
        (True, (), ("offset",), "offset"),
        (True, (), ("weights",), "another run"),
        (True, ("weights",), (), "weights"),
        (False, (), (), "weights"),
        (False, (), ("weights",), "weights"),
        (False, (), ("offset",), "another run"),
        (False, ("offset",), (), "offset"),  # a recipe that does not say changes nothing
    ],
)
def test_a_run_goes_on_with_the_calibration_it_began_with(
    tmp_path: Path, old: bool, began: tuple[str, ...], now: tuple[str, ...], found: str
) -> None:
    first, then = (
        tiny_recipe("train.steps=3", *(f"model.options.calibration={each}" for each in named)) for named in (began, now)
    )
    with pytest.raises(Interrupted):
        train(first, tmp_path, device="cpu", quiet=True, stop_after=1)
    if old:
        older(tmp_path)
    if found == "another run":
        with pytest.raises(CheckpointError, match=r"model\.options\.calibration was '\w+' and is '\w+' now"):
            train(then, tmp_path, resume=True, device="cpu", quiet=True)
        return
    with pytest.raises(Interrupted):
        train(then, tmp_path, resume=True, device="cpu", quiet=True, stop_after=1)
    train(then, tmp_path, resume=True, device="cpu", quiet=True)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["config"]["calibration"] == found


def test_other_weights_to_start_from_are_one_difference() -> None:
    scratch, tuned = tiny_recipe(), tiny_recipe("model.pretrained=elsewhere")
    for before, now in ((scratch, tuned), (tuned, scratch)):
        with pytest.warns(UserWarning, match=r"than it began with: model\.pretrained was [^;]* now$"):
            continuity.check(plain(before), now, {"calibration": "offset"})


def test_a_run_is_not_made_shorter_than_it_is(whole: Path) -> None:
    before = (whole / "recipe.yaml").read_bytes()
    with pytest.raises(CheckpointError, match=r"has done 12 steps already, train\.steps is 5"):
        train(tiny_recipe("train.ema=0.99", "train.steps=5"), whole, resume=True, device="cpu", quiet=True)
    assert (whole / "recipe.yaml").read_bytes() == before


def test_other_settings_go_on_with_a_warning(whole: Path, tmp_path: Path) -> None:
    unfinished_copy(whole, tmp_path / "run")
    changed = tiny_recipe("train.ema=0.99", "optim.clip=1.0", "optim.lr=1e-3", "watch.log_every=5")
    with (
        pytest.warns(UserWarning, match=r"optim\.lr was 0\.002 and is 0\.001 now") as caught,
        pytest.raises(Interrupted),
    ):
        train(changed, tmp_path / "run", resume=True, device="cpu", quiet=True, stop_after=1)
    assert not [warning for warning in caught if "log_every" in str(warning.message)]
    assert [warning for warning in caught if "the run goes on with other settings" in str(warning.message)]


def test_a_finished_run_does_not_go_on_with_other_settings(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    before = weights(tmp_path / "run")
    with pytest.warns(UserWarning, match="finished and stays as it is, though settings differ: optim.lr"):
        train(
            tiny_recipe("train.ema=0.99", "optim.clip=1.0", "optim.lr=1e-3"),
            tmp_path / "run",
            resume=True,
            device="cpu",
        )
    assert differing(before, weights(tmp_path / "run")) == []


def test_a_folder_with_a_run_is_not_overwritten(whole: Path) -> None:
    with pytest.raises(FileExistsError, match="--resume"):
        train(RECIPE, whole, device="cpu", quiet=True)


def test_a_finished_run_without_checkpoints_stays_as_it_is(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "checkpoints")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(FileExistsError, match="--resume"):
        train(changed("train.seed=1"), folder, device="cpu", quiet=True)
    with pytest.raises(CheckpointError, match=r"another run is in this folder: train\.seed was 0 and is 1 now"):
        train(changed("train.seed=1"), folder, resume=True, device="cpu", quiet=True)
    with pytest.raises(CheckpointError, match="of another length is finished here and its checkpoints are gone"):
        train(changed("train.steps=14"), folder, resume=True, device="cpu", quiet=True)
    scores = train(RECIPE, folder, resume=True, device="cpu", quiet=True)
    assert scores is not None
    assert scores.to_dict() == json.loads((folder / "metrics.json").read_text())["scores"]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_does_not_begin_anew_because_its_checkpoints_are_damaged(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    unfinished_copy(whole, folder)
    for _, path in checkpoint.steps(folder / "checkpoints"):
        truncate(path / "model-00000.safetensors")
    before = (folder / "log.jsonl").read_bytes()
    with (
        pytest.warns(UserWarning, match="falling back"),
        pytest.raises(CheckpointError, match=r"none of the checkpoints of steps 9, 6.* can be used \(step-00000009"),
    ):
        train(RECIPE, folder, resume=True, device="cpu", quiet=True)
    assert (folder / "log.jsonl").read_bytes() == before


def test_damaged_checkpoints_are_set_aside_and_do_not_count_as_kept(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    truncate(unfinished_copy(whole, folder) / "model-00000.safetensors")
    once = changed("watch.keep=1")
    with pytest.warns(UserWarning, match="step 9 cannot be used"), pytest.raises(Interrupted):
        train(once, folder, resume=True, device="cpu", quiet=True, stop_after=1)
    assert checkpoint.steps(folder / "checkpoints")[0][0] == 7
    assert (folder / "checkpoints" / "damaged-step-00000009").is_dir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(once, folder, resume=True, device="cpu", quiet=True)
    assert differing(weights(whole), weights(folder)) == []


def test_a_longer_run_is_not_judged_by_the_weights_of_the_shorter(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    with pytest.warns(UserWarning, match=r"train\.steps was 12 and is 15 now"), pytest.raises(Interrupted):
        train(changed("train.steps=15"), folder, resume=True, device="cpu", stop_after=1)
    assert not (folder / "metrics.json").exists()
    assert find_model(str(folder)).weights.endswith("at step 13")


def test_the_average_of_the_best_weights_is_kept_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.Best, "see", lambda self, step, score: self.__init__(6, score))  # never the last
    told = ("watch.keep_best=true", "watch.keep=3", "data.test=test")
    train(changed("train.ema=0.9", *told), tmp_path / "run", device="cpu", quiet=True)
    best, _ = checkpoint.load(tmp_path / "run" / "checkpoints" / "step-00000006")
    for part, name in (("model", "model"), ("ema", "model-ema")):
        found = load_file(tmp_path / "run" / name / "model.safetensors")
        assert all(torch.equal(found[key], best[part][key]) for key in found), name
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["kept_step"] == 6
    assert metrics["ema_test_scores"] == metrics["ema_scores"]
    assert metrics["test_scores"] == metrics["scores"]


def test_two_processes_do_not_train_in_one_folder(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished_copy(whole, tmp_path / "run")
    monkeypatch.setattr(run_folder, "PATIENCE", 1)
    here = Place(0, 1, torch.device("cpu"))
    with (
        run_folder.RunFolder(tmp_path / "run", here, resume=True).alone(),
        pytest.raises(CheckpointError, match="another process trains here"),
    ):
        train(RECIPE, tmp_path / "run", resume=True, device="cpu", quiet=True)
    train(RECIPE, tmp_path / "run", resume=True, device="cpu", quiet=True)
    assert differing(weights(whole), weights(tmp_path / "run")) == []


def test_a_folder_is_held_from_before_it_is_read(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process brings the run to its end while this one gets ready: its work must not be undone."""
    folder = tmp_path / "run"
    unfinished_copy(whole, folder)
    held: list[str] = []
    built = loop.build_model

    def asked(*told: Any, **options: Any) -> Any:
        try:
            with run_folder.RunFolder(folder, Place(0, 1, torch.device("cpu")), resume=True).alone():
                held.append("nobody")
        except CheckpointError as error:
            held.append(str(error))
        return built(*told, **options)

    monkeypatch.setattr(run_folder, "PATIENCE", 1)
    monkeypatch.setattr(loop, "build_model", asked)
    train(RECIPE, folder, resume=True, device="cpu", quiet=True)
    assert [text.partition(": ")[2] for text in held] == ["another process trains here; use another folder"]


def test_a_run_that_began_meanwhile_is_not_begun_anew(whole: Path, tmp_path: Path) -> None:
    here = Place(0, 1, torch.device("cpu"))
    late = run_folder.RunFolder(tmp_path / "run", here, resume=False)
    shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(FileExistsError, match="already holds a run"), late.alone():
        raise AssertionError


@pytest.mark.parametrize("lost", ["damaged", "deleted", "all damaged"])
def test_a_finished_run_stays_whatever_became_of_its_checkpoints(whole: Path, tmp_path: Path, lost: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    found = [path for _, path in checkpoint.steps(folder / "checkpoints")]
    for path in found if lost == "all damaged" else found[:1]:
        if lost == "deleted":
            shutil.rmtree(path)
        else:
            truncate(path / "model-00000.safetensors")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    scores = train(RECIPE, folder, resume=True, device="cpu", quiet=True)
    assert scores is not None
    assert scores.to_dict()["top1"] == json.loads((whole / "metrics.json").read_text())["scores"]["top1"]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_that_cannot_start_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="heads"):
        train(changed("model.options.heads=7"), tmp_path / "run", device="cpu", quiet=True)
    assert not (tmp_path / "run").exists()


def test_the_best_weights_from_before_there_was_an_average_stand_in_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop.Best, "see", lambda self, step, score: self.__init__(3, score) if step == 3 else None)
    told = ("watch.keep_best=true", "watch.keep=4", "watch.eval_every=3", "watch.checkpoint_every=3")
    with pytest.raises(Interrupted):
        train(tiny_recipe(*told), tmp_path / "run", device="cpu", quiet=True, stop_after=6)
    with pytest.warns(UserWarning, match="ema"):
        train(tiny_recipe("train.ema=0.9", *told), tmp_path / "run", resume=True, device="cpu", quiet=True)
    one, two = (load_file(tmp_path / "run" / name / "model.safetensors") for name in ("model", "model-ema"))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["kept_step"] == 3


def test_a_best_checkpoint_that_cannot_be_written_does_not_cost_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = iter([1.0, 5.0, 9.0, 2.0])
    see, save = loop.Best.see, checkpoint.save
    monkeypatch.setattr(loop.Best, "see", lambda self, step, score: see(self, step, next(order)))

    def full(folder: Path, *told: Any) -> None:
        if folder.name == "step-00000009":
            raise OSError(errno.ENOSPC, "No space left on device")
        save(folder, *told)

    monkeypatch.setattr(checkpoint, "save", full)
    told = ("watch.keep_best=true", "watch.keep=1", "watch.eval_every=3", "watch.checkpoint_every=3")
    with pytest.warns(UserWarning, match="step 9 was not written"):
        train(tiny_recipe(*told), tmp_path / "run", device="cpu", quiet=True)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["kept_step"] == 6
    assert "best_lost" not in metrics
