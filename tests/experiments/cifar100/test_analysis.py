"""The analysis of weights: its numbers on cases known by hand, and the whole of it on a miniature."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import call, done, flat
from PIL import Image
from toy_cifar import toy_data, toy_weights

from polarvit.data.cifar100 import CLASSES, superclass_of
from polarvit.experiments import Settings, seen
from polarvit.experiments.cifar100.analysis import chosen_weights, run
from polarvit.experiments.cifar100.analysis.radius import auroc, by_radius
from polarvit.experiments.cifar100.analysis.rates import learned_rates
from polarvit.experiments.cifar100.analysis.superclasses import class_points, flattened, structure
from polarvit.experiments.report.collect import Seen
from polarvit.geometry import PolarPoint, distance
from polarvit.models import WeightsError, create_model, load_pretrained, weights

CPU = torch.device("cpu")


def test_heads_are_counted_by_the_axes_they_see() -> None:
    model = create_model("polar_vit_tiny", depth=1, dim=32, heads=4, img_size=8, patch_size=4, num_classes=2)
    with torch.no_grad():
        model.blocks[0].attention.position.rate.copy_(torch.tensor([[0.1, 0.2], [-3.0, 0.1], [0.0, 2.0], [1.0, -8.0]]))
    found = learned_rates(model)
    assert (found["blind_to_both"], found["blind_to_one"], found["largest"]) == (0.25, 0.5, 8.0)
    assert found["rows"] == [pytest.approx([0.1, 3.0, 0.0, 1.0])]
    assert learned_rates(create_model("polar_vit_tiny", depth=1, position="none", img_size=8, patch_size=4)) is None


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    toy_data(folder / "data")
    for name in ("polar_vit_tiny", "vit_tiny"):
        toy_weights(folder / name, name)
    return folder


@pytest.fixture(scope="module")
def result(toys: Path) -> dict[str, Any]:
    """The whole analysis by its command."""
    weights = [word for name in ("polar_vit_tiny", "vit_tiny") for word in ("--weights", toys / name)]
    words = ["reproduce", "cifar100-analysis", "--device", "cpu", "--data", toys / "data", *weights]
    printed = done(*words, "--out", toys / "results")
    assert "Polar-ViT-Tiny" in printed
    assert "Euclidean ViT-Tiny" in printed
    return json.loads((toys / "results" / "cifar100" / f"{stem(toys)}.json").read_text())


def stem(toys: Path) -> str:
    """Weights that are named do not replace what the packaged ones have."""
    where = f"{toys.parent.name}-{toys.name}"
    return f"analysis-of-{where}-polar_vit_tiny-and-{where}-vit_tiny"


def test_both_models_get_every_number_and_picture(toys: Path, result: dict[str, Any]) -> None:
    assert list(result["models"]) == ["Polar-ViT-Tiny", "Euclidean ViT-Tiny"]
    for one in result["models"].values():
        assert (one["images"], one["of"], one["noisy_images"]) == (200, 200, 100)
        assert sum(one["calibration"]["bins"]["count"]) == 200
        assert [group["count"] for group in one["radius"]["groups"]] == [20] * 10
        assert [level["noise"] for level in one["noise"]] == [0, 0.02, 0.05, 0.1, 0.2]
        assert 0 <= one["superclasses"]["siblings_near"] <= 1
    assert set(result["summary"]) == {"radius", "noise", "superclasses", "calibration"}
    assert result["provenance"]["commit"] is not None
    assert str(toys) not in json.dumps(result)
    rates = [one["rates"] for one in result["models"].values()]
    assert rates[0]["start"] == 4.0
    assert rates[1] is None  # the twin has no encoding
    for subject in ("radius", "noise", "calibration", "superclasses", "rates"):
        assert (toys / "results" / "cifar100" / f"{stem(toys)}-{subject}.png").stat().st_size > 10_000


def test_accuracy_is_that_of_eval(toys: Path, result: dict[str, Any]) -> None:
    scores = json.loads(done("eval", toys / "vit_tiny", "--data", toys / "data", "--device", "cpu", "--json"))
    assert result["models"]["Euclidean ViT-Tiny"]["top1"] == pytest.approx(scores["top1"])


def test_a_quick_look_takes_few_images_and_does_not_overwrite(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Settings(toys / "quick", quick=True, data=str(toys / "data"), weights=(str(toys / "vit_tiny"),), images=60)
    assert run(dataclasses.replace(told, device="cpu")) == []
    record = json.loads(
        (toys / "quick" / "cifar100" / f"analysis-of-{toys.parent.name}-{toys.name}-vit_tiny-quick.json").read_text()
    )
    assert record["models"]["Euclidean ViT-Tiny"]["images"] == 60
    seen_by = f"--quick --images 60 --weights {toys.name}/vit_tiny"
    assert record["command"] == f"polarvit reproduce cifar100-analysis {seen_by}"


def test_without_weights_it_says_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.json").write_text("{}")
    monkeypatch.setattr(weights, "PACKAGED", tmp_path)
    with pytest.raises(WeightsError, match="neither packaged, nor from"):
        chosen_weights(Settings(runs=tmp_path))
    result = call("reproduce", "cifar100-analysis", "--weights", tmp_path / "nothing", "--device", "cpu")
    assert result.exit_code == 1
    assert "nothing" in flat(result.stderr)


def test_one_model_alone_is_looked_at_and_the_missing_one_named(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "index.json").write_text("{}")
    monkeypatch.setattr(weights, "PACKAGED", tmp_path)
    seed = tmp_path / "cifar100" / "117100-steps" / "polar_vit_tiny" / "seed-0"
    shutil.copytree(toys / "polar_vit_tiny", seed / "model")
    (seed / "recipe.yaml").touch()
    run(Settings(tmp_path, runs=tmp_path, data=str(toys / "data"), images=150, device="cpu"))
    assert "no weights of Euclidean ViT-Tiny: it is left out (neither packaged" in flat(capsys.readouterr().out)
    assert not (tmp_path / "cifar100" / "analysis.json").exists(), "a look at some images is not the record of all"
    values = json.loads((tmp_path / "cifar100" / "analysis-150-images.json").read_text())["summary"]
    assert values["radius"].endswith(" (150 of 200 images)")
    assert values["noise"].endswith(" (75 of 200 images)")
    picture = np.asarray(Image.open(tmp_path / "cifar100" / "analysis-150-images-superclasses.png").convert("L"))
    assert (picture[:, [0, -1]] == 255).all(), "the legend is wider than the picture"
    assert (picture[[0, -1]] == 255).all(), "title and legend are higher than the picture"


def test_weights_of_one_kind_are_told_apart_by_name(toys: Path) -> None:
    for seed in ("seed-0", "seed-1"):
        shutil.copytree(toys / "vit_tiny", toys / "runs" / "vit" / seed)
    both = tuple(str(toys / "runs" / "vit" / seed) for seed in ("seed-0", "seed-1"))
    titles = ["Euclidean ViT-Tiny, vit/seed-0", "Euclidean ViT-Tiny, vit/seed-1"]
    assert chosen_weights(Settings(weights=both)) == dict(zip(titles, both, strict=True))


def test_noise_depends_on_seed_and_image_alone(toys: Path) -> None:
    model = load_pretrained(toys / "vit_tiny")
    images = seen.open_images(str(toys / "data"), model)
    assert images.pixels.shape == (200, 3, 16, 16)
    assert 0 <= images.pixels.min() < images.pixels.max() <= 1
    whole = seen.grain(range(4), images.pixels.shape[1:], 3)
    assert torch.equal(whole[2:], seen.grain(range(2, 4), images.pixels.shape[1:], 3))
    assert not torch.equal(whole, seen.grain(range(4), images.pixels.shape[1:], 4))
    few = images.some(5)
    clean, noisy = (seen.see(model, few, CPU, noise=level) for level in (0.0, 0.1))
    again = seen.see(model, few, CPU, noise=0.1)
    assert np.array_equal(noisy.probabilities, again.probabilities)
    assert not np.allclose(noisy.probabilities, clean.probabilities)


def test_compiling_is_tried_where_it_pays_and_a_missing_compiler_is_no_error(
    toys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_pretrained(toys / "polar_vit_tiny")
    assert not seen.ready(model, CPU, seen.WORTH_COMPILING - 1)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    assert seen.ready(model, CPU, seen.WORTH_COMPILING)
    assert model.compiled_evaluation

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: broken)
    with pytest.warns(UserWarning, match="could not be compiled"):
        assert not seen.ready(model, CPU, seen.WORTH_COMPILING)
    assert model(torch.zeros(1, 3, 16, 16)).shape == (1, 100)


def look(features: np.ndarray, labels: np.ndarray, sure: np.ndarray, right: np.ndarray, k: float | None) -> Seen:
    """Images whose most probable class is the true one where `right`, else the next."""
    probabilities = np.full((len(labels), len(CLASSES)), 1e-3)
    probabilities[np.arange(len(labels)), np.where(right, labels, (labels + 1) % len(CLASSES))] = sure
    return Seen(CLASSES, labels, probabilities, features, np.zeros((len(labels), 1)), k, len(labels))


def test_far_points_that_are_surer_and_righter_are_found_so() -> None:
    radius = np.linspace(1, 2, 100)
    right = radius > 1.5
    labels = np.zeros(100, int)
    found = by_radius(look(radius[:, None], labels, radius / 3, right, None), groups=4)
    assert [group["accuracy"] for group in found["groups"]] == [0, 0, 1, 1]
    assert found["spearman_with_confidence"] == pytest.approx(1)
    assert found["auroc"] == found["auroc_of_confidence"] == 1


def test_auroc_counts_ties_half() -> None:
    right = np.array([True, True, False, False])
    assert auroc(np.array([3.0, 1, 1, 0]), right) == pytest.approx(3.5 / 4)
    assert auroc(np.ones(4), right) == 0.5
    assert auroc(np.ones(4), np.ones(4, bool)) is None


@pytest.mark.parametrize("k", [None, 1.0, 2.3])
def test_classes_that_lie_by_superclass_are_found_so(k: float | None) -> None:
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(20, 8))
    labels = np.arange(100).repeat(3)
    home = np.array(superclass_of(CLASSES))
    features = centres[home[labels]] + 0.05 * draw.normal(size=(300, 8))
    one = look(features, labels, np.full(300, 0.5), np.ones(300, bool), k)
    classes = class_points(one)
    facts = structure(one, classes)
    assert facts["siblings_near"] == 1
    assert facts["within_to_between"] < 0.2
    assert facts["coarse_accuracy"] == 1
    assert facts["errors_within"] is None
    flat_ = flattened(classes)
    assert np.isfinite(flat_.x).all()
    assert flat_.error < 0.6
    if k is not None:
        assert (np.hypot(flat_.x, flat_.y) < 1).all()
        p, q = (torch.tensor(classes.points[index]) for index in (0, 57))
        ends = [PolarPoint(v.norm(), v / v.norm()) for v in (p, q)]
        assert classes.distance[0, 57] == pytest.approx(distance(*ends, k=k).item())


def test_scattered_classes_have_siblings_near_by_chance_only() -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(100)
    one = look(draw.normal(size=(100, 8)), labels, np.full(100, 0.5), np.zeros(100, bool), None)
    facts = structure(one, class_points(one))
    assert facts["siblings_near"] < 0.12
    assert facts["chance"] == pytest.approx(4 / 99)
    assert facts["within_to_between"] == pytest.approx(1, abs=0.1)
