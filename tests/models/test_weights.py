"""Weights in and out, and every way they can be wrong."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from polarvit.models import PolarViT, ViT, WeightsError, create_model, list_pretrained, load_pretrained, weights


@pytest.fixture
def saved(narrow, tmp_path: Path) -> Path:
    model = narrow("polar_vit_tiny")
    model.default_cfg["mean"] = (0.1, 0.2, 0.3)
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder: Path, change) -> None:
    described = json.loads((folder / "config.json").read_text())
    change(described)
    (folder / "config.json").write_text(json.dumps(described))


def edit_weights(folder: Path, change, **metadata: str) -> None:
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", {"architecture": "polar_vit_tiny", **metadata})


@pytest.mark.parametrize("name", ["polar_vit_tiny", "vit_tiny"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_saved_model_comes_back_as_it_was(narrow, images, tmp_path, name, dtype) -> None:
    model = narrow(name, img_size=(8, 16)).to(dtype).eval()
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.config == model.config
    assert again.default_cfg == model.default_cfg
    assert not again.training
    for (key, one), two in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert one.equal(two), key
    x = torch.randn(2, 3, 8, 16).to(dtype)
    assert model(x).equal(again(x))


def test_a_config_that_was_saved_before_a_field_has_the_default_of_its_time(saved, tmp_path) -> None:
    assert load_pretrained(saved).config.calibration == "weights"
    edit_config(saved, lambda described: described["config"].pop("calibration"))
    old = load_pretrained(saved)
    old.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["config"]["calibration"] == "offset"
    assert create_model("polar_vit_tiny").config.calibration == "weights"


def test_the_folder_holds_config_weights_and_card_and_nothing_else(saved) -> None:
    assert sorted(os.listdir(saved)) == ["README.md", "config.json", "model.safetensors"]
    described = json.loads((saved / "config.json").read_text())
    assert described["format_version"] == 1
    assert described["architecture"] == "polar_vit_tiny"
    assert described["config"]["position"] == "separate"
    assert described["preprocessing"]["mean"] == [0.1, 0.2, 0.3]
    card = (saved / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: polarvit\n")
    assert "logits [B, 5]" in card


def test_a_card_says_what_the_model_is_and_gives(narrow, tmp_path) -> None:
    narrow("polar_vit_tiny", num_classes=0).save_pretrained(tmp_path / "polar")
    card = (tmp_path / "polar" / "README.md").read_text()
    assert "features [B, 16]" in card
    assert "\n- hyperbolic\n" in card
    narrow("vit_tiny").save_pretrained(tmp_path / "flat")
    assert "hyperbolic" not in (tmp_path / "flat" / "README.md").read_text()


def test_class_names_are_saved_loaded_and_forgotten_with_their_classifier(narrow, tmp_path) -> None:
    model = narrow("vit_tiny")
    assert model.class_names is None
    model.class_names = ["ant", "bee", "cat", "dog", "été"]
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["class_names"][-1] == "été"
    assert '["ant", "bee", "cat", "dog", "été"]' in (tmp_path / "README.md").read_text()
    again = load_pretrained(tmp_path, drop_path=0.1)
    assert again.class_names == again.pretrained_cfg["label_names"] == ("ant", "bee", "cat", "dog", "été")
    with pytest.warns(UserWarning, match="left out"):
        assert load_pretrained(tmp_path, num_classes=4).class_names is None
    again.reset_classifier(3)
    assert again.class_names is None
    with pytest.raises(ValueError, match="2 class names for 3 classes"):
        again.class_names = ("a", "b")


def test_an_edited_card_is_kept_and_an_interrupted_save_leaves_the_old_file(narrow, saved, monkeypatch) -> None:
    (saved / "README.md").write_text("mine")
    before = (saved / "model.safetensors").read_bytes()
    monkeypatch.setattr(weights, "save_file", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        narrow("polar_vit_tiny", dim=32).save_pretrained(saved)
    monkeypatch.undo()
    assert (saved / "model.safetensors").read_bytes() == before
    load_pretrained(saved).save_pretrained(saved)
    assert (saved / "README.md").read_text() == "mine"
    assert len(os.listdir(saved)) == 3


def test_a_card_nobody_edited_follows_the_weights(narrow, saved) -> None:
    card = saved / "README.md"
    narrow("polar_vit_tiny", num_classes=7).save_pretrained(saved, model_card_kwargs={"summary": "Longer."})
    assert "Longer." in card.read_text()
    assert "logits [B, 7]" in card.read_text()
    mine = card.read_text().replace(weights.MARK, "My notes.")
    card.write_text(mine)
    narrow("polar_vit_tiny").save_pretrained(saved)
    assert card.read_text() == mine


def test_another_number_of_classes_starts_a_fresh_head_and_says_so(saved) -> None:
    with pytest.warns(UserWarning, match="classifier of 5 classes was left out"):
        model = create_model(str(saved), pretrained=True, num_classes=7)
    assert model.head.normal.shape == (7, 16)
    with pytest.warns(UserWarning, match="left out$"):  # there is no other one
        assert load_pretrained(saved, num_classes=0)(torch.randn(1, 3, 8, 8)).shape == (1, 16)


@pytest.mark.parametrize("name", ["polar_vit_tiny", "vit_tiny"])
def test_another_image_size_resizes_the_position_table(narrow, tmp_path, name) -> None:
    narrow(name).save_pretrained(tmp_path)
    model = load_pretrained(tmp_path, img_size=(16, 12), drop_path=0.2)
    assert model.config.drop_path == 0.2
    assert model(torch.randn(1, 3, 16, 12)).shape == (1, 5)


def test_a_truncated_file_is_named(saved) -> None:
    whole = (saved / "model.safetensors").read_bytes()
    for size in (0, 7, 200, len(whole) - 1):
        (saved / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(WeightsError, match="truncated or not a safetensors file"):
            load_pretrained(saved)


def test_pickled_weights_are_never_opened(saved) -> None:
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("code from the file ran",))

    torch.save({"x": Bomb()}, saved / "pytorch_model.bin")
    (saved / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"no model\.safetensors"):
        load_pretrained(saved)
    (saved / "pytorch_model.bin").rename(saved / "model.safetensors")
    with pytest.raises(WeightsError, match="not a safetensors file"):
        load_pretrained(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s.update({"blocks.0.norm1.bias": torch.zeros(3)}),
            r"blocks\.0\.norm1\.bias has shape \[3\], expected \[16\]",
        ),
        (lambda s: s.update({"surprise": torch.zeros(3)}), "unknown key surprise"),
        (lambda s: s.pop("blocks.0.norm1.bias"), r"missing key blocks\.0\.norm1\.bias"),
        (lambda s: s.update({"blocks.0.norm1.bias": torch.zeros(16).half()}), "one floating dtype"),
        (lambda s: s.update({"blocks.0.norm1.bias": torch.zeros(16).long()}), "one floating dtype"),
    ],
)
def test_a_wrong_tensor_is_named(saved, change, message) -> None:
    edit_weights(saved, change)
    with pytest.raises(WeightsError, match=message):
        load_pretrained(saved)


def test_weights_of_another_model_are_named(narrow, saved, tmp_path) -> None:
    narrow("vit_tiny").save_pretrained(tmp_path / "other")
    with pytest.raises(WeightsError, match=r"holds a ViT \(vit_tiny\), expected a PolarViT"):
        PolarViT.from_pretrained(tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").replace(saved / "model.safetensors")
    with pytest.raises(WeightsError, match="holds weights of vit_tiny, the config is that of polar_vit_tiny"):
        load_pretrained(saved)
    narrow("polar_vit_tiny").save_pretrained(tmp_path / "model")
    with pytest.raises(WeightsError, match="belong to a network with mlp_dim 32, got 64; only img_size, num_classes"):
        load_pretrained(tmp_path / "model", mlp_dim=64)


@pytest.mark.parametrize("other", [{"k": 2.0}, {"position": "joint"}, {"in_chans": 1}, {"norm_eps": 1e-3}])
def test_another_network_than_that_of_the_weights_is_refused(saved, other) -> None:
    key, value = next(iter(other.items()))
    with pytest.raises(WeightsError, match=f"a network with {key} .*, got {value!r}"):
        load_pretrained(saved, **other)
    stored = {key: getattr(load_pretrained(saved).config, key)}
    assert load_pretrained(saved, **stored).config == load_pretrained(saved).config


def test_how_fresh_weights_are_drawn_does_not_matter_to_trained_ones(saved, images) -> None:
    with pytest.warns(UserWarning, match="alpha says how fresh weights are drawn; these stay as they are"):
        model = load_pretrained(saved, alpha=0.5)
    assert model.config == load_pretrained(saved).config
    assert torch.equal(model(images), load_pretrained(saved)(images))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["config"].update(depht=2), "unknown key 'depht'; did you mean 'depth'"),
        (lambda d: d["config"].update(depth="2"), "depth must be int, got '2'"),
        (lambda d: d["config"].update(depth=2.0), "depth must be int, got 2.0"),
        (lambda d: d["config"].update(final_norm=1), "final_norm must be bool, got 1"),
        (lambda d: d["config"].update(position="spiral"), "position must be one of separate"),
        (lambda d: d["config"].update(img_size=[8]), "img_size must be"),
        (lambda d: d.update(extra=1), "unknown key extra"),
        (lambda d: d.pop("preprocessing"), "missing key preprocessing"),
        (lambda d: d["preprocessing"].update(gamma=1), r"unknown key preprocessing\.gamma"),
        (lambda d: d.update(format_version=2), "format version 2, expected 1"),
        (lambda d: d.pop("format_version"), "not a config written by polarvit"),
        (lambda d: d.update(architecture="resnet50"), "unknown architecture 'resnet50'"),
        (lambda d: d.update(architecture=["vit_tiny"]), r"'architecture' must be a text, got \['vit_tiny'\]"),
        (lambda d: d.update(config=[1]), "'config' must be an object"),
        (lambda d: d["config"].update(heads=0), "heads must be positive, got 0"),
        (lambda d: d["config"].update(k=float("nan")), "k must be finite, got nan"),
        (lambda d: d["preprocessing"].update(mean="abc"), r"preprocessing\.mean must be 3 numbers, got 'abc'"),
        (lambda d: d["preprocessing"].update(mean=[0.5]), r"preprocessing\.mean must be 3 numbers, got \[0\.5\]"),
        (lambda d: d["preprocessing"].update(std=[0, 1, 1]), r"preprocessing\.std must be 3 positive numbers"),
        (
            lambda d: d["preprocessing"].update(crop_pct=float("nan")),
            r"preprocessing\.crop_pct must be a positive",
        ),
        (lambda d: d["preprocessing"].update(interpolation=3), r"preprocessing\.interpolation must be a text, got 3"),
        (lambda d: d.update(class_names=["a"] * 4), r"config\.json: 4 class names for 5 classes"),
        (lambda d: d.update(class_names="abcde"), "class names must be a list of texts, got 'abcde'"),
        (lambda d: d.update(class_names=["a", "b", "c", "d", 5]), "class names must be a list of texts"),
        (lambda d: d.update(class_names=["a", "b", "c", "d", ""]), "class name '' is empty or cannot be printed"),
        (lambda d: d.update(class_names=["\x1b[2J", "b", "c", "d", "e"]), r"class name '\\x1b\[2J' is empty or cannot"),
        (lambda d: d.update(class_name=["a"]), "unknown key class_name$"),
        (lambda d: d.update(padding="white"), "'padding' must be zeros or minimum, got 'white'"),
    ],
)
def test_a_wrong_config_is_named(saved, change, message) -> None:
    edit_config(saved, change)
    with pytest.raises(WeightsError, match=message):
        load_pretrained(saved)


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_a_config_that_is_not_json_is_named(saved, text) -> None:
    (saved / "config.json").write_text(text)
    with pytest.raises(WeightsError, match="not readable as JSON"):
        load_pretrained(saved)


def test_an_unknown_name_says_what_was_tried(tmp_path) -> None:
    with pytest.raises(WeightsError, match=r"not a packaged tag .* not a folder, and not a hub id"):
        create_model("polar_vit_tinny", pretrained=True)
    with pytest.raises(WeightsError, match=r"no config\.json"):
        load_pretrained(tmp_path)
    for name in ("../secrets", "owner/..", "a--b/c", "ünï/côde"):
        with pytest.raises(WeightsError, match=f"'{name}' is neither a folder nor a hub id"):
            load_pretrained(name)


def test_packaged_tags_are_verified(saved, tmp_path, monkeypatch) -> None:
    home = tmp_path / "packaged"
    home.mkdir()
    saved.rename(home / "polar_vit_tiny.test")
    digest = hashlib.sha256((home / "polar_vit_tiny.test" / "model.safetensors").read_bytes()).hexdigest()
    (home / "index.json").write_text(json.dumps({"polar_vit_tiny.test": digest}))
    monkeypatch.setattr(weights, "PACKAGED", home)
    assert list_pretrained() == ["polar_vit_tiny.test"]
    assert create_model("polar_vit_tiny.test", pretrained=True).config.dim == 16
    with pytest.warns(UserWarning, match=r"polar_vit_tiny: these are the weights polar_vit_tiny\.test"):
        assert create_model("polar_vit_tiny", pretrained=True).config.dim == 16
    with pytest.raises(
        WeightsError, match=r"no weights of 'polar_vit_small' come with the package \(polar_vit_tiny.test\)"
    ):
        create_model("polar_vit_small", pretrained=True)
    untrained = create_model("polar_vit_tiny.test", depth=1)  # the network of the tag, fields overridden
    assert untrained.config == dataclasses.replace(load_pretrained("polar_vit_tiny.test").config, depth=1)
    (home / "index.json").write_text(json.dumps({"polar_vit_tiny.test": "0" * 64, "polar_vit_tiny.more": "1" * 64}))
    with pytest.raises(WeightsError, match="sha256"):
        load_pretrained("polar_vit_tiny.test")
    with pytest.raises(WeightsError, match="several weights, say which"):
        load_pretrained("polar_vit_tiny")
    with pytest.raises(WeightsError, match="not installed"):
        load_pretrained("polar_vit_tiny.more")


def test_a_bare_name_with_several_weights_of_one_data_set_means_those_of_the_papers_recipe() -> None:
    assert weights.MEANT
    for name, tag in weights.MEANT.items():
        own = [each for each in list_pretrained() if each.partition(".")[0] == name]
        assert tag in own
        assert len(own) > 1, f"{name} has only {own}: nothing to choose"
        assert weights.packaged_tag(name) == tag


def test_every_packaged_tag_has_its_files() -> None:
    for tag in list_pretrained():
        model = load_pretrained(tag)
        assert model.architecture == tag.partition(".")[0]
        measured = json.loads((weights.PACKAGED / tag / "evaluation.json").read_text())
        masks = model.task == "segmentation"
        told = f"| **{measured['dice']:.3f}** |" if masks else f"**top-1 {measured['top1']:.2f} %**"
        assert told in (weights.PACKAGED / tag / "README.md").read_text()


def test_a_hub_id_is_downloaded_file_by_file(saved, monkeypatch) -> None:
    asked = []

    def download(repo: str, file: str, **options: object) -> str:
        asked.append((repo, file, options["revision"]))
        return str(saved / file)

    monkeypatch.setattr(weights.huggingface_hub, "hf_hub_download", download)
    model = PolarViT.from_pretrained("someone/polar", revision="v1")
    assert model.config.dim == 16
    assert asked == [("someone/polar", "config.json", "v1"), ("someone/polar", "model.safetensors", "v1")]
    monkeypatch.setattr(weights.huggingface_hub.constants, "ENDPOINT", "http://somewhere")
    with pytest.raises(WeightsError, match="https"):
        load_pretrained("someone/polar")


def test_pushing_uploads_the_same_three_files(narrow, monkeypatch) -> None:
    from huggingface_hub import hub_mixin

    sent = []

    class Hub:
        def __init__(self, token: object = None) -> None:
            pass

        def create_repo(self, repo_id: str, **_: object):
            return type("Repo", (), {"repo_id": repo_id})

        def upload_folder(self, *, folder_path: Path, **_: object) -> str:
            sent.extend(sorted(os.listdir(folder_path)))
            return "done"

    monkeypatch.setattr(hub_mixin, "HfApi", Hub)
    assert narrow("vit_tiny").push_to_hub("someone/vit") == "done"
    assert sent == ["README.md", "config.json", "model.safetensors"]
    assert ViT.from_pretrained.__func__ is PolarViT.from_pretrained.__func__


def test_a_folder_of_weights_without_pretrained_is_told_of(saved: Path) -> None:
    with pytest.raises(ValueError, match="it is a folder of weights: add pretrained=True"):
        create_model(str(saved))
