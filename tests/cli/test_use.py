"""Using what was trained: `polarvit eval`, `predict`, `export`, `models`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import call, done, flat
from PIL import Image

from polarvit.cli.predict import bar
from polarvit.models import create_model
from polarvit.training.evaluate import outputs


def digit(path: Path) -> Path:
    Image.new("L", (40, 30), 90).save(path)
    return path


def test_eval_measures_what_training_measured(run: Path) -> None:
    scores = json.loads(done("eval", run, "--json", "--device", "cpu"))
    final = json.loads((run / "metrics.json").read_text())["scores"]
    assert scores["split"] == "test"
    assert scores["count"] == final["count"] == 359
    for name in ("top1", "top5", "loss"):
        assert scores[name] == pytest.approx(final[name], rel=1e-4)


def test_eval_takes_few_images_at_once_on_a_cpu(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = set()

    def counted(model: torch.nn.Module, images: torch.Tensor, *more: Any) -> Any:
        sizes.add(len(images))
        return outputs(model, images, *more)

    monkeypatch.setattr(sys.modules["polarvit.training.evaluate"], "outputs", counted)
    done("eval", run, "--device", "cpu")
    assert sizes
    assert max(sizes) <= 32


def test_eval_prints_a_table(run: Path) -> None:
    output = done("eval", run, "--split", "train", "--batch", 100)
    assert "digits (train)" in output
    assert "1,438" in output
    assert "top-5" in output


def test_eval_shows_a_bar_on_a_terminal_and_leaves_the_output_alone(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "evaluating" not in call("eval", run, "--json").stderr
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    result = call("eval", run, "--json")
    assert "evaluating" in result.stderr
    assert json.loads(result.stdout)["count"] == 359


def test_eval_takes_the_newest_checkpoint_of_a_run_that_has_not_ended(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    scores = json.loads(done("eval", tmp_path / "run", "--json"))
    assert scores["weights"].endswith("at step 4")
    assert scores["loss"] == pytest.approx(json.loads(done("eval", run, "--json"))["loss"], rel=1e-6)


def test_eval_of_weights_alone_needs_data(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "model", tmp_path / "weights")
    result = call("eval", tmp_path / "weights")
    assert result.exit_code == 2
    assert "give --data" in flat(result.stderr)
    assert json.loads(done("eval", tmp_path / "weights", "--data", "digits", "--json"))["count"] == 359


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--split", "holdout"], "has no split 'holdout'"),
        (["--data", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_eval_on_data_that_is_not_there_is_one_line(run: Path, words: list[str], message: str) -> None:
    result = call("eval", run, *words)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_eval_on_data_of_other_classes_is_one_line(run: Path, photos: Path) -> None:
    result = call("eval", run, "--data", photos, "--split", "train")
    assert result.exit_code == 1
    assert "3 classes but the model has 10" in result.stderr


@pytest.mark.parametrize("name", ["nowhere/run", "nothing", "tests/nothing"])
def test_weights_that_are_not_there_are_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    result = call("eval", name)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_damaged_weights_are_one_line(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run" / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    result = call("eval", tmp_path / "run")
    assert result.exit_code == 1
    assert "truncated or not a safetensors file" in result.stderr


def test_predict_shows_the_best_classes_with_bars(run: Path, tmp_path: Path) -> None:
    output = done("predict", digit(tmp_path / "a.png"), digit(tmp_path / "b.png"), "--weights", run)
    assert str(tmp_path / "a.png") in output
    assert output.count(" % ") == 10
    assert "█" in output


def test_predict_agrees_with_the_model(run: Path, tmp_path: Path) -> None:
    path = digit(tmp_path / "a.png")
    answer = json.loads(done("predict", path, "-w", run, "--top", 3, "--json"))
    assert [entry["image"] for entry in answer] == [str(path)]
    model = create_model(str(run / "model"), pretrained=True)
    grey = torch.full((1, 3, 16, 16), 90 / 255 * 2 - 1)
    with torch.no_grad():
        best = model(grey).softmax(-1).topk(3)
    assert [entry["class"] for entry in answer[0]["top"]] == [str(index) for index in best.indices[0].tolist()]
    assert [entry["probability"] for entry in answer[0]["top"]] == pytest.approx(best.values[0].tolist(), abs=1e-5)


def names_of(weights: Path, image: Path) -> set[str]:
    answer = json.loads(done("predict", image, "-w", weights, "--top", 10, "--json"))
    return {entry["class"] for entry in answer[0]["top"]}


def test_class_names_travel_with_the_weights(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "model", tmp_path / "weights")
    assert names_of(tmp_path / "weights", digit(tmp_path / "a.png")) == set("0123456789")
    card = (run / "model" / "README.md").read_text()
    assert '["0", "1", "2"' in card
    assert "Trained for 4 steps of" in card
    assert "On 359 images of the split `test`: top-1 " in card


def test_class_names_of_a_run_that_has_not_ended_are_known(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("model"))
    recipe = tmp_path / "run" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("path: digits", "path: gone"))
    assert names_of(tmp_path / "run", digit(tmp_path / "a.png")) == set("0123456789")


def test_classes_have_numbers_when_weights_have_no_names(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "model", tmp_path / "weights")
    described = json.loads((tmp_path / "weights" / "config.json").read_text())
    described.pop("class_names")
    (tmp_path / "weights" / "config.json").write_text(json.dumps(described))
    assert names_of(tmp_path / "weights", digit(tmp_path / "a.png")) == {f"class {i}" for i in range(10)}
    shutil.copytree(tmp_path / "weights", tmp_path / "run" / "model")  # a run from before weights had names
    shutil.copy(run / "recipe.yaml", tmp_path / "run")
    assert names_of(tmp_path / "run", digit(tmp_path / "a.png")) == set("0123456789")


def test_predict_refuses_names_that_do_not_fit(run: Path, photos: Path, tmp_path: Path) -> None:
    result = call("predict", digit(tmp_path / "a.png"), "-w", run, "--data", photos)
    assert result.exit_code == 1
    assert "has 3 classes, the model 10" in result.stderr


def test_a_corrupt_image_is_one_line_that_names_it(run: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    result = call("predict", digit(tmp_path / "a.png"), tmp_path / "broken.png", "-w", run)
    assert result.exit_code == 1
    assert "broken.png: cannot be read as an image" in result.stderr
    assert result.stdout == ""


def test_an_image_that_is_not_there_is_a_wrong_command_line(run: Path) -> None:
    assert call("predict", "nothing.png", "-w", run).exit_code == 2


def test_bars_are_as_long_as_their_share() -> None:
    assert bar(1.0) == "█" * 30
    assert bar(0.0) == ""
    assert len(bar(0.5)) == 15


@pytest.fixture(scope="module")
def euclidean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights that export in a second or two; polar ones are exported in `tests/models`."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("weights") / "vit"
    size = {"img_size": 16, "patch_size": 8, "depth": 1, "dim": 16, "mlp_dim": 16, "heads": 2}
    create_model("vit_tiny", num_classes=10, **size).save_pretrained(folder)
    return folder


def test_export_writes_a_program_that_computes_the_same(euclidean: Path, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model.pt2"
    assert "(2, 3, 16, 16)" in done("export", euclidean, "--format", "program", "--batch", 2, "--out", target)
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours = create_model(str(euclidean), pretrained=True)(images)
        theirs = torch.export.load(target).module()(images)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    result = call("export", euclidean, "--format", "program", "--out", target)
    assert result.exit_code == 1
    assert "already exists" in result.stderr


def test_export_writes_onnx(euclidean: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    assert "(any, 3, 16, 16) to 10 logits" in done("export", euclidean, "--out", tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "v.banana"], "v.banana: expected a name that ends in .onnx or .pt2"),
        (["--out", "v"], "v: expected a name that ends in .onnx or .pt2"),
        (["--out", "v.pt2", "--format", "onnx"], "onnx goes into a file that ends in .onnx, got v.pt2"),
        (["--out", "v.onnx", "--format", "program"], "program goes into a file that ends in .pt2, got v.onnx"),
    ],
)
def test_export_refuses_a_name_that_says_something_else(euclidean: Path, words: list[str], said: str) -> None:
    result = call("export", euclidean, *words)
    assert result.exit_code == 2
    assert said in flat(result.stderr)


def test_export_takes_the_format_from_the_name(euclidean: Path, tmp_path: Path) -> None:
    done("export", euclidean, "--batch", 1, "--out", tmp_path / "model.pt2")
    assert torch.export.load(tmp_path / "model.pt2").module()(torch.zeros(1, 3, 16, 16)).shape == (1, 10)


def test_models_lists_sizes_with_and_without_the_classifier() -> None:
    output = done("models", "--pattern", "*_tiny")
    assert "polar_vit_tiny" in output
    assert "vit_base" not in output
    model = create_model("vit_tiny")
    assert f"{model.count():,}" in output
    assert f"{model.count(classifier=False):,}" in output


def test_models_are_counted_for_the_inputs_of_a_data_set() -> None:
    output = done("models", "--pattern", "polar_vit_tiny", "--setting", "cifar100")
    assert "2,723,749" in output
    output = done("models", "--pattern", "polar*", "--setting", "imagenet")
    assert "2,868,753" in output  # the paper's 2.9 M, without classifier
    assert "21,622,587" in output  # its 21.7 M, without the position table, which is fixed here
    assert "unet" not in output
    assert "polar_vit_tiny.cifar100" in output  # of the weights that come with the package those of models it lists


def test_models_without_a_match_is_a_wrong_command_line() -> None:
    assert call("models", "--pattern", "resnet*").exit_code == 2
    assert call("models", "--setting", "mnist").exit_code == 2
