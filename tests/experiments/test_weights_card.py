"""Weights of a run put into the package: found by tag, with a card whose numbers were measured."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import call, done, flat
from safetensors.torch import load_file
from tiny_runs import tiny_recipe
from toy_cifar import toy_data

from polarvit.data.cifar100 import CLASSES
from polarvit.experiments.weights_card import card, measure
from polarvit.models import WeightsError, create_model, list_pretrained, weights
from polarvit.models.packaging import full_tag, package
from polarvit.training import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four steps on the miniature of CIFAR-100."""
    folder = tmp_path_factory.mktemp("packaging")
    toy_data(folder / "data")
    recipe = tiny_recipe(f"data.path={folder / 'data'}", "train.steps=4", "augment.mean=[0.4, 0.5, 0.6]")
    train(recipe, folder / "run", device="cpu", quiet=True)
    return folder / "run"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package without weights."""
    (tmp_path / "index.json").write_text("{}")
    monkeypatch.setattr(weights, "PACKAGED", tmp_path)
    return tmp_path


def test_the_card_names_the_commits_of_all_parts_of_a_run(run: Path) -> None:
    model, recipe, found = measure(run, None, torch.device("cpu"))
    found["run"]["parts"] = [{"commit": "aaa"}, {"commit": "aaa"}, {"commit": "bbb"}]
    assert ", commit aaa, then bbb. The weights" in card(model, "cifar100", recipe, found)


def test_the_card_is_measured_on_the_test_split_and_says_which_step_was_kept(run: Path, tmp_path: Path) -> None:
    """A run that chose its weights on one split and was tested once on another: their scores differ."""
    chosen = tiny_recipe(
        "data.path=digits", "data.validation=train", "data.test=test", "train.steps=6", "watch.eval_every=3",
        "watch.keep_best=true",
    )  # fmt: skip
    train(chosen, tmp_path / "run", device="cpu", quiet=True)
    model, recipe, found = measure(tmp_path / "run", None, torch.device("cpu"))
    assert found["split"] == "test"
    assert found["images"] == 359
    assert found["at_end"] == found["run"]["test_scores"]["top1"]
    text = card(model, "x", recipe, found)
    assert "On all 359 images of the split `test`, " in text
    assert "--split" not in text
    assert f"those of step {found['run']['kept_step']}, the best in validation; the test images had no say" in text
    assert "the last, not the best in validation" in card(model, "x", tiny_recipe(), found)
    seen = replace(chosen, data=replace(chosen.data, test=None))
    text = card(model, "x", seen, {**found, "split": "train"})
    assert "the best on the images they are measured on" in text
    assert "images of the split `train`" in text
    assert "--data ... --split train`" in text


def test_a_run_that_only_looked_at_held_out_images_has_no_card(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    text = (run / "recipe.yaml").read_text()
    (tmp_path / "run" / "recipe.yaml").write_text(text.replace("holdout: 0.0", "holdout: 0.5"))
    with pytest.raises(WeightsError, match="measured no test split"):
        measure(tmp_path / "run", None, torch.device("cpu"))


def test_packaged_weights_are_found_by_tag_and_do_what_their_card_says(run: Path, home: Path) -> None:
    said = done("models", "package", run, "--tag", "cifar100", "--device", "cpu")
    assert said.startswith("polar_vit_tiny.cifar100: top-1 ")
    assert list_pretrained() == ["polar_vit_tiny.cifar100"]
    folder = home / "polar_vit_tiny.cifar100"
    assert sorted(file.name for file in home.iterdir()) == ["index.json", folder.name]
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md",
        "config.json",
        "evaluation.json",
        "model.safetensors",
    ]
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {torch.float32}
    model = create_model("polar_vit_tiny.cifar100", pretrained=True)
    assert model.default_cfg["mean"] == (0.4, 0.5, 0.6)
    assert model.class_names == CLASSES
    found = json.loads((folder / "evaluation.json").read_text())
    scores = json.loads(done("eval", "polar_vit_tiny.cifar100", "--data", run.parent / "data", "--json"))
    assert scores["top1"] == pytest.approx(found["top1"])
    assert scores["top5"] == pytest.approx(found["top5"])
    card = (folder / "README.md").read_text()
    assert f"**top-1 {found['top1']:.2f} %**" in card
    assert "\n# polar_vit_tiny.cifar100\n" in card
    assert "- hyperbolic\n" in card
    assert 'create_model("polar_vit_tiny.cifar100", pretrained=True)' in card
    for heading in ("### Calibration", "### Every class", "## Limits", "## Licence", "## Recipe"):
        assert heading in card
    assert f"Expected calibration error {100 * found['calibration']['ece']:.2f} %" in card
    rows = re.findall(r"^\| (\w+) \| (\d+) \|$", card, re.M)
    assert {name: float(value) for name, value in rows} == found["classes"]
    assert len(rows) == 100
    assert "80 Million Tiny Images" in card
    assert str(run.parent) not in card + json.dumps(found) + (folder / "config.json").read_text()


def test_predict_names_what_it_sees_with_no_more_than_an_image(run: Path, home: Path, tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (40, 30), (200, 30, 30)).save(tmp_path / "photo.jpg")
    missing = call("predict", tmp_path / "photo.jpg")
    assert missing.exit_code == 2
    assert "--weights" in flat(missing.output + missing.stderr)
    done("models", "package", run, "--tag", "cifar100", "--device", "cpu")
    output = done("predict", tmp_path / "photo.jpg", "--device", "cpu")
    names = [line.split()[0] for line in output.splitlines()[1:]]
    assert len(names) == 5
    assert set(names) <= set(CLASSES)


def test_a_tag_that_cannot_be_one_is_a_wrong_command_line(run: Path, home: Path) -> None:
    result = call("models", "package", run, "--tag", "My Tag", "--device", "cpu")
    assert result.exit_code == 2
    assert "use small letters" in flat(result.output)


def test_a_tag_is_replaced_only_if_told_to_and_refused_before_it_is_measured(
    run: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("models", "package", run, "--tag", "cifar100", "--device", "cpu")
    with monkeypatch.context() as patched:
        patched.setattr("polarvit.experiments.weights_card.see", lambda *_: pytest.fail("measured for nothing"))
        again = call("models", "package", run, "--tag", "cifar100", "--device", "cpu")
    assert again.exit_code == 1
    assert "packaged already; replace it with --replace" in flat(again.stderr)
    done("models", "package", run, "--tag", "cifar100", "--device", "cpu", "--replace")
    assert list_pretrained() == ["polar_vit_tiny.cifar100"]


def test_the_wrong_images_and_an_unfinished_run_are_refused(run: Path, home: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "other")
    metrics = json.loads((run / "metrics.json").read_text())
    metrics["scores"]["top1"] += 1
    (tmp_path / "other" / "metrics.json").write_text(json.dumps(metrics))
    result = call("models", "package", tmp_path / "other", "--tag", "x", "--device", "cpu")
    assert result.exit_code == 1
    assert "are these its images?" in flat(result.stderr)
    (tmp_path / "other" / "metrics.json").unlink()
    result = call("models", "package", tmp_path / "other", "--tag", "x", "--device", "cpu")
    assert "holds no finished run, there is no metrics.json" in flat(result.stderr)
    assert list_pretrained() == []


def test_what_cannot_be_asked_for_or_is_broken_is_not_packaged(run: Path, tmp_path: Path) -> None:
    model = weights.load_pretrained(run / "model")
    with pytest.raises(WeightsError, match="small letters"):
        full_tag(model, "../x")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(WeightsError, match="not finite"):
        package(model, "x", "", {}, root=tmp_path)
    model.default_cfg["architecture"] = "PolarViT"
    with pytest.raises(WeightsError, match="not a registered model"):
        package(model, "x", "", {}, root=tmp_path)
    assert not any(tmp_path.iterdir())
