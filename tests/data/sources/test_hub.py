"""Data sets of the hub: choices with a stand-in, formats with the package `datasets` where it is installed."""

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polarvit.cli.data import Kind, guess
from polarvit.data import DataError, HubSource

HAS_DATASETS = importlib.util.find_spec("datasets") is not None
needs_datasets = pytest.mark.skipif(not HAS_DATASETS, reason="datasets is not installed")


def test_without_datasets_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"some/data: needs the datasets package: pip install 'polarvit\[datasets\]'"):
        HubSource("some/data")


class ClassLabel:
    names = ("cat", "dog")


class _Split:
    def __init__(self, features: dict, rows: list[dict]) -> None:
        self.features, self.rows = features, rows

    def __getitem__(self, key: int | str) -> object:
        return self.rows[key] if isinstance(key, int) else [row[key] for row in self.rows]


IMAGE, VALUE = type("Image", (), {})(), type("Value", (), {})()


def pretend_hub(monkeypatch: pytest.MonkeyPatch, features: dict[str, Any], **labels: list[Any]) -> None:
    """A `datasets` whose splits have two images each, the second unreadable, and these labels."""
    labels = labels or {"train": [1, 0], "valid": [1, 0]}
    pictures = [Image.new("L", (4, 4), 9), None]
    splits = {
        split: _Split(features, [{"img": i, "label": l} for i, l in zip(pictures, found, strict=True)])
        for split, found in labels.items()
    }
    module = types.ModuleType("datasets")
    module.load_dataset = lambda name, config: splits
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_it_finds_the_only_columns_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_hub(monkeypatch, {"img": IMAGE, "label": ClassLabel()})
    source = HubSource("some/data")
    assert source.classes == ("cat", "dog")
    assert source.splits == ("train", "validation")
    assert source.labels("train").tolist() == [1, 0]
    assert source.image("train", 0).mode == "RGB"
    with pytest.raises(DataError, match="some/data: image 1 of train: cannot be read"):
        source.image("train", 1)


def test_it_asks_where_there_is_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_hub(monkeypatch, {"img": IMAGE, "label": ClassLabel(), "coarse": ClassLabel()})
    with pytest.raises(DataError, match=r"has 2 ClassLabel columns among img \(Image\).*--label-column \(label=\)"):
        HubSource("some/data")
    assert HubSource("some/data", label="label").labels("train").tolist() == [1, 0]
    with pytest.raises(DataError, match="'label' is no column of images"):
        HubSource("some/data", image="label", label="label")


def test_values_of_a_plain_column_become_classes_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_hub(monkeypatch, {"img": IMAGE, "label": VALUE}, train=["zebra", "ant"], test=["ant", "bee"])
    with pytest.raises(DataError, match=r"has no ClassLabel columns among img \(Image\), label \(Value\)"):
        HubSource("some/data")
    source = HubSource("some/data", label="label")
    assert source.classes == ("ant", "zebra")
    assert source.labels("train").tolist() == [1, 0]
    with pytest.raises(DataError, match="image 1 of test has no label, or one unknown in train"):
        source.labels("test")


@pytest.mark.parametrize("absent", [-1, None])
def test_a_split_without_labels_is_left_out_and_a_missing_label_is_named(monkeypatch, absent) -> None:
    features = {"img": IMAGE, "label": ClassLabel()}
    pretend_hub(monkeypatch, features, train=[0, 1], test=[absent, absent])
    with pytest.warns(UserWarning, match="some/data: the test split has no labels and is left out"):
        assert HubSource("some/data").splits == ("train",)
    pretend_hub(monkeypatch, features, train=[0, absent])
    with pytest.raises(DataError, match="image 1 of train has no label"):
        HubSource("some/data").labels("train")


def real(count: int) -> Any:
    """A data set of noise with two classes in turn, as the package makes it."""
    import datasets

    features = datasets.Features({"picture": datasets.Image(), "kind": datasets.ClassLabel(names=["ant", "bee"])})
    rng = np.random.default_rng(count)
    pictures = [Image.fromarray(rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)) for _ in range(count)]
    columns = {"picture": pictures, "kind": [i % 2 for i in range(count)]}
    return datasets.Dataset.from_dict(columns, features=features)


def check_real(folder: Path, splits: tuple[str, ...]) -> None:
    assert guess(str(folder)) is Kind.HUB
    source, pixels = HubSource(str(folder)), np.random.default_rng(4).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    assert source.classes == ("ant", "bee")
    assert source.splits == splits
    assert source.labels("train").tolist() == [0, 1, 0, 1]
    np.testing.assert_array_equal(np.asarray(source.image("train", 0)), pixels)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


@needs_datasets
@pytest.mark.usefixtures("offline")
def test_what_the_package_saved_is_read(tmp_path: Path) -> None:
    import datasets

    datasets.DatasetDict({"train": real(4), "val": real(2)}).save_to_disk(tmp_path / "several")
    check_real(tmp_path / "several", ("train", "validation"))
    real(4).save_to_disk(tmp_path / "one")
    check_real(tmp_path / "one", ("train",))
    (tmp_path / "parquet" / "data").mkdir(parents=True)
    for split, count in (("train", 4), ("test", 2)):
        real(count).to_parquet(tmp_path / "parquet" / "data" / f"{split}-00000-of-00001.parquet")
    check_real(tmp_path / "parquet", ("train", "test"))


@needs_datasets
@pytest.mark.usefixtures("offline")
def test_a_folder_of_class_folders_can_be_read_through_the_package(tmp_path: Path) -> None:
    for kind in ("ant", "bee"):
        (tmp_path / "train" / kind).mkdir(parents=True)
        Image.new("L", (6, 4), len(kind)).save(tmp_path / "train" / kind / "0.png")
    source = HubSource(str(tmp_path))
    assert (source.classes, source.labels("train").tolist()) == (("ant", "bee"), [0, 1])
    assert source.image("train", 0).mode == "RGB"
    with pytest.raises(DataError, match="nowhere: cannot be loaded as a data set"):
        HubSource(str(tmp_path / "nowhere"))
