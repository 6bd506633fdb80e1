"""Files from strangers: nothing in them is executed, leaves its folder, speaks to the terminal or fills the memory."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from commands import call, done, flat, tiny_yaml
from models.narrow import narrow_model
from PIL import Image

from polarvit.cli.by_image import no_formula
from polarvit.data import PackedDataset
from polarvit.data.errors import DataError
from polarvit.data.sources.cifar import CifarSource
from polarvit.data.sources.source import open_image
from polarvit.experiments import side_by_side
from polarvit.models.class_names import checked_names
from polarvit.models.deit import read_public
from polarvit.models.weights import WeightsError, load_pretrained
from polarvit.text import printable, unmarked
from polarvit.training.recipe import load
from polarvit.training.settings import SettingsError


def piece(value: Any) -> bytes:
    """The opcodes that build a value."""
    return pickle.dumps(value, protocol=2)[2:-1]


def cifar(folder: Path, labels: bytes) -> Path:
    """A CIFAR-100 folder of one image, whose labels are these opcodes."""
    folder.mkdir()
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"ant", b"bee"]}, protocol=2))
    pixels = piece(np.zeros((1, 3072), np.uint8))
    for split in ("train", "test"):
        (folder / split).write_bytes(
            b"\x80\x04}" + piece("data") + pixels + b"s" + piece("fine_labels") + labels + b"s."
        )
    return folder


def test_an_array_of_forged_kind_is_refused(tmp_path: Path) -> None:
    """A kind with an object field that denies having one would make numpy call an address out of the file."""

    def kind(name: str, state: bytes) -> bytes:
        return b"cnumpy\ndtype\n" + piece((name, False, True)) + b"R" + state + b"b"

    objects = kind("O8", piece((3, "|", None, None, None, -1, -1, 63)))
    field = b"}" + piece("a") + objects + piece(0) + b"\x86s"
    parts = b"".join(map(piece, (3, "|"))) + b"N" + piece(("a",)) + field + b"".join(map(piece, (8, 1, 0)))
    forged = kind("V8", b"(" + parts + b"t")
    empty = b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + piece((0,)) + b"C\x01b\x87R"
    labels = empty + b"(" + piece(1) + piece((1,)) + forged + b"\x89C\x08" + b"A" * 8 + b"tb"
    with pytest.raises(DataError, match="an array of 'V8'"):
        CifarSource(cifar(tmp_path / "cifar", labels))


def test_lists_in_lists_in_lists_are_refused_before_they_are_unfolded(tmp_path: Path) -> None:
    nested: Any = [0]
    for _ in range(30):
        nested = [nested, nested]
    with pytest.raises(DataError, match="uses a list, tuple or dictionary twice"):
        CifarSource(cifar(tmp_path / "cifar", piece(nested)))
    for count, odd in enumerate((["0"], [10**30], b"cnumpy._core.multiarray\n_reconstruct\n(NNNtR")):
        with pytest.raises(DataError, match=r"labels are no whole numbers|its data is not"):
            CifarSource(cifar(tmp_path / f"odd-{count}", odd if isinstance(odd, bytes) else piece(odd)))
    key = b"K\x01\x85N0q\x00" + b"".join(b"h%c\x86q%c" % (i, i + 1) for i in range(40))  # (x, x) of (x, x) of ...
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "meta").write_bytes(b"\x80\x02}" + key + b"K\x00s.")
    with pytest.raises(DataError, match="uses a list, tuple or dictionary twice"):
        CifarSource(tmp_path / "key")
    assert CifarSource(cifar(tmp_path / "sound", piece([1]))).labels("train").tolist() == [1]


@pytest.mark.parametrize("protocol", range(5))
def test_arrays_of_every_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    folder = cifar(tmp_path / "cifar", piece([0]))
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3072), dtype=np.uint8)
    content = {b"data": pixels, b"fine_labels": [1, 0, 1], b"filenames": [b"x.png"] * 3}
    (folder / "train").write_bytes(pickle.dumps(content, protocol=protocol))
    source = CifarSource(folder)
    assert source.labels("train").tolist() == [1, 0, 1]
    assert (np.asarray(source.image("train", 2)).transpose(2, 0, 1).ravel() == pixels[2]).all()


def test_an_image_is_decoded_by_its_content_only_if_that_is_a_picture_of_pixels(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")
    with pytest.raises(DataError, match="cannot be read as an image"):
        open_image(tmp_path / "cat.png")


@pytest.mark.parametrize("size", [(1, 1001), (20_001, 300)])
def test_images_that_would_fill_the_memory_are_refused_before_they_are_decoded(tmp_path: Path, size: Any) -> None:
    Image.new("1", size).save(tmp_path / "large.png")
    with pytest.raises(DataError, match=f"{size[0]} x {size[1]} pixels; at most"):
        open_image(tmp_path / "large.png")
    Image.new("L", (1000, 1)).save(tmp_path / "long.png")
    assert open_image(tmp_path / "long.png").size == (1000, 1)


@pytest.mark.parametrize(
    "text",
    [
        "title: &a [0, 0]\nmodel: {options: [*a, *a]}",
        "title: 2020-13-45",
        "train: {steps: " + "9" * 5000 + "}",
        "title: " + "[" * 20_000,
    ],
    ids=["alias", "date", "digits", "brackets"],
)
def test_a_recipe_that_would_unfold_or_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(SettingsError, match=r"odd\.yaml: not valid YAML"):
        load(tmp_path / "odd.yaml")


def edited(folder: Path, change: Callable[[dict[str, Any]], Any], file: str = "config.json") -> Path:
    described = json.loads((folder / file).read_text())
    change(described)
    (folder / file).write_text(json.dumps(described))
    return folder


@pytest.mark.parametrize(
    ("architecture", "change", "message"),
    [
        ("unet", {"levels": 24}, "levels must be at most 12"),
        ("unet", {"levels": 10**30}, "levels must be at most 12"),
        ("unet", {"img_size": 65_536}, "img_size must be at most 10000"),
        ("vit_tiny", {"depth": 10**9}, "depth must be at most 1000"),
        ("vit_tiny", {"num_classes": 10**12}, "num_classes must be at most"),
        ("polar_vit_tiny", {"k": 10**400}, "k must be finite"),
        (
            "polar_vit_tiny",
            {"img_size": 10_000, "patch_size": 1, "dim": 96},
            "10000 x 10000 patches of width 96 are too",
        ),
        ("polar_vit_tiny", {"dim": 96_000, "mlp_dim": 96_000}, r"has shape \[.*\], expected \[.*96000"),
    ],
)
def test_a_config_of_a_giant_is_refused_before_one_is_built(
    tmp_path: Path, architecture: str, change: dict[str, Any], message: str
) -> None:
    narrow_model(architecture).save_pretrained(tmp_path)
    edited(tmp_path, lambda described: described["config"].update(change))
    with pytest.raises(WeightsError, match=message):
        load_pretrained(str(tmp_path))


def test_prepared_data_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "photos" / "ant").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "ant" / "a.png")
    done("data", "prepare", tmp_path / "photos", tmp_path / "data", "--image-size", 8)
    (tmp_path / "data" / "train-labels.npy").rename(tmp_path / "labels.npy")
    for name in ("../labels.npy", str(tmp_path / "labels.npy")):
        edited(
            tmp_path / "data",
            lambda m, name=name: m["splits"]["train"]["files"]["labels"].update(file=name),
            "meta.json",
        )
        with pytest.raises(DataError, match=r"names '.*labels\.npy' for its labels"):
            PackedDataset.open(tmp_path / "data")


def test_a_checkpoint_cannot_claim_more_than_it_holds(tmp_path: Path) -> None:
    torch.save({"pos_embed": torch.zeros(1).expand(10**10, 192)}, tmp_path / "wide.pth")
    with pytest.raises(WeightsError, match="pos_embed claims more numbers than the file has"):
        read_public(tmp_path / "wide.pth")
    torch.save({"pos_embed": torch.empty(10**10, device="meta")}, tmp_path / "nowhere.pth")
    with pytest.raises(WeightsError, match="pos_embed claims more numbers than the file has"):
        read_public(tmp_path / "nowhere.pth")
    torch.save({"pos_embed": torch.zeros(10**5)}, tmp_path / "sound.pth")
    assert read_public(tmp_path / "sound.pth")["pos_embed"].shape == (10**5,)
    packed = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "sound.pth") as sound, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as tight:
        for part in sound.infolist():
            tight.writestr(part.filename, sound.read(part))
    (tmp_path / "tight.pth").write_bytes(packed.getvalue())
    with pytest.raises(WeightsError, match="is packed, as torch packs no checkpoint"):
        read_public(tmp_path / "tight.pth")
    (tmp_path / "torn.pth").write_bytes((tmp_path / "sound.pth").read_bytes().replace(b"PK\x01\x02", b"PK\x09\x09"))
    with pytest.raises(WeightsError, match="not readable as weights"):
        read_public(tmp_path / "torn.pth")


def test_names_from_files_do_not_speak_to_the_terminal(tmp_path: Path) -> None:
    assert printable("\x1b]0;owned\x07 é\n\u202e") == "\\x1b]0;owned\\x07 é\n\\u202e"
    honest = "\u200fקוף, 猫, 👩\u200d🔬, e\u0301"
    assert printable(honest) == honest
    assert checked_names([honest], 1) == (honest,)
    (tmp_path / "odd.yaml").write_text('"\\e[31mnested": 1')
    told = call("train", tmp_path / "odd.yaml").stderr
    assert "\x1b[31mnested" not in told
    assert "\\x1b[31mnested" in told


def test_brackets_in_names_are_no_markup(tmp_path: Path) -> None:
    result = call("data", "twins", tmp_path / "[b]none[/b]")
    assert "[b]none[/b]" in flat(result.output + result.stderr)


def test_cards_and_spreadsheets_get_texts_and_no_commands() -> None:
    assert unmarked("a <script>|`x`\n# b") == "a &lt;script&gt;&#124;&#96;x&#96; # b"
    cells = ["=cmd|'/c calc'!A1", "@x", "-1.5", "+2", "ant", -3]
    assert [no_formula(cell) for cell in cells] == ["'=cmd|'/c calc'!A1", "'@x", "-1.5", "+2", "ant", -3]
    assert next(csv.reader(['"\'=x",1'])) == ["'=x", "1"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_among_images_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "photos" / "ant").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "ant" / "a.png")
    os.mkfifo(tmp_path / "photos" / "ant" / "b.png")
    assert "1 train" in flat(done("data", "prepare", tmp_path / "photos", tmp_path / "data", "--image-size", 8))


def test_a_recipe_that_is_called_like_a_parent_folder_needs_a_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("...yaml").write_text(tiny_yaml())
    result = call("train", "...yaml", "--device", "cpu")
    assert result.exit_code == 2
    assert "names no folder for the run" in flat(result.stderr)


def test_helper_processes_import_nothing_from_the_folder_they_are_started_in(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "yaml.py").write_text("open('owned', 'w')")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(tiny_yaml())
    monkeypatch.chdir(tmp_path)
    job = side_by_side.Job("tiny", folder, 4)
    side_by_side.side_by_side([job], 1, device="cpu", say=lambda _: None)
    assert job.state == "finished"
    assert not (tmp_path / "owned").exists()
    told = subprocess.run([sys.executable, "-c", "import yaml"], cwd=tmp_path, check=True)  # without -P it is imported
    assert told.returncode == 0
    assert (tmp_path / "owned").exists()
    assert yaml.__file__ != str(tmp_path / "yaml.py")


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("train-labels.npy", np.array([7]), r"a label is outside 0\.\.0"),
        ("train-labels.npy", np.zeros(1, [("a", "i8")]), "does not hold labels"),
        ("train-images.npy", np.zeros((1, 8, 8)), "does not hold images"),
    ],
)
def test_prepared_arrays_of_another_kind_are_refused(tmp_path: Path, file: str, damage: Any, message: str) -> None:
    (tmp_path / "photos" / "ant").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "ant" / "a.png")
    data = tmp_path / "data"
    done("data", "prepare", tmp_path / "photos", data, "--image-size", 8)
    np.save(data / file, damage)
    kind = file.removeprefix("train-").removesuffix(".npy")
    size = (data / file).stat().st_size
    edited(data, lambda meta: meta["splits"]["train"]["files"][kind].update(bytes=size), "meta.json")
    with pytest.raises(DataError, match=message):
        PackedDataset.open(data)
    edited(data, lambda meta: meta.update(classes=3), "meta.json")
    with pytest.raises(DataError, match="is damaged"):
        PackedDataset.open(data)
