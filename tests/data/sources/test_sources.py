"""Sources: what they read, and what they say when they cannot."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polarvit.data import CifarSource, DataError, DigitsSource, FolderSource
from polarvit.data.sources.cifar import read_arrays


def save(path: Path, mode: str = "RGB", size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(str(path))).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for split, count in (("train", 3), ("val", 1), ("test", 2)):
        for name in ("zebra", "ant"):
            for i in range(count):
                save(tmp_path / split / name / f"{i}.png")
    return tmp_path


def test_folder_has_sorted_classes_and_the_splits_it_finds(tree: Path) -> None:
    source = FolderSource(tree)
    assert source.classes == ("ant", "zebra")
    assert source.splits == ("train", "validation", "test")
    assert source.labels("train").tolist() == [0, 0, 0, 1, 1, 1]
    assert source.labels("train").dtype == np.int64
    assert source.image("test", 3).size == (6, 4)
    assert source.origin("test", 3) == str(tree / "test" / "zebra" / "1.png")


def test_class_folders_alone_are_a_training_split(tmp_path: Path) -> None:
    save(tmp_path / "a" / "deep" / "1.JPEG")
    save(tmp_path / "b" / "1.png")
    (tmp_path / "b" / "notes.txt").write_text("not an image")
    assert FolderSource(tmp_path).splits == ("train",)
    assert FolderSource(tmp_path).labels("train").tolist() == [0, 1]


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "LA"])
def test_images_of_any_mode_become_rgb(tmp_path: Path, mode: str) -> None:
    save(tmp_path / "a" / "1.png", mode)
    image = FolderSource(tmp_path).image("train", 0)
    assert image.mode == "RGB"
    if mode == "L":
        assert np.ptp(np.asarray(image).astype(int), axis=-1).max() == 0


def test_sixteen_bits_are_scaled_to_eight(tmp_path: Path) -> None:
    values = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    (tmp_path / "a").mkdir()
    Image.fromarray(values).save(tmp_path / "a" / "1.png")
    image = np.asarray(FolderSource(tmp_path).image("train", 0))
    np.testing.assert_array_equal(image[..., 0], values // 257)


@pytest.mark.parametrize(
    ("values", "message"), [(np.float32(0.5), "without a known range"), (np.int32(70000), "more than 16 bits")]
)
def test_pixels_without_a_known_range_are_refused(tmp_path: Path, values: np.generic, message: str) -> None:
    (tmp_path / "a").mkdir()
    Image.fromarray(np.full((4, 4), values)).save(tmp_path / "a" / "1.tif")
    with pytest.raises(DataError, match=rf"1\.tif: .*{message}"):
        FolderSource(tmp_path).image("train", 0)


def test_a_corrupt_image_is_named(tree: Path) -> None:
    broken = tree / "train" / "ant" / "1.png"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(DataError, match=r"ant.1\.png: cannot be read as an image"):
        FolderSource(tree).image("train", 1)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder"):
        FolderSource(tmp_path / "nowhere")


def test_an_empty_class_is_named(tree: Path) -> None:
    (tree / "train" / "bee").mkdir()
    with pytest.raises(DataError, match="bee: class 'bee' has no images"):
        FolderSource(tree)


def test_a_class_unknown_to_training_is_named(tree: Path) -> None:
    save(tree / "test" / "bee" / "1.png")
    with pytest.raises(DataError, match="class 'bee' is not in the training split"):
        FolderSource(tree)


@pytest.mark.parametrize(("folders", "message"), [(["test/a"], "no train folder"), ([], "has no folder for any class")])
def test_a_tree_without_training_images_is_refused(tmp_path: Path, folders: list[str], message: str) -> None:
    for folder in folders:
        save(tmp_path / folder / "1.png")
    with pytest.raises(DataError, match=message):
        FolderSource(tmp_path)


def test_two_folders_for_one_split_are_refused(tree: Path) -> None:
    save(tree / "valid" / "ant" / "1.png")
    with pytest.raises(DataError, match="both would be the validation split"):
        FolderSource(tree)


def test_an_unknown_split_is_named(tree: Path) -> None:
    with pytest.raises(DataError, match="has no split 'dev'; it has train, validation, test"):
        FolderSource(tree).labels("dev")


def cifar100(folder: Path, protocol: int = 2) -> np.ndarray:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (5, 3072), dtype=np.uint8)
    write = {b"data": pixels, b"fine_labels": [4, 0, 1, 2, 3], b"coarse_labels": [0] * 5}
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps(write, protocol=protocol))
    (folder / "meta").write_bytes(
        pickle.dumps({b"fine_label_names": [b"a", b"b", b"c", b"d", b"e"]}, protocol=protocol)
    )
    return pixels


@pytest.mark.parametrize("protocol", [2, 4])
def test_cifar100_pickles_give_images_row_by_row(tmp_path: Path, protocol: int) -> None:
    pixels = cifar100(tmp_path, protocol)
    source = CifarSource(tmp_path)
    assert source.description == "CIFAR-100"
    assert source.classes == ("a", "b", "c", "d", "e")
    assert source.labels("train").tolist() == [4, 0, 1, 2, 3]
    image = np.asarray(source.image("train", 2))
    assert image[5, 7].tolist() == [pixels[2, c * 1024 + 5 * 32 + 7] for c in range(3)]


def test_cifar10_joins_its_five_training_files(tmp_path: Path) -> None:
    for i, name in enumerate(
        ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
    ):
        content = {b"data": np.full((2, 3072), i, np.uint8), b"labels": [i % 2, 1]}
        (tmp_path / name).write_bytes(pickle.dumps(content, protocol=2))
    (tmp_path / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"x", b"y"]}, protocol=2))
    source = CifarSource(tmp_path)
    assert source.description == "CIFAR-10"
    assert source.labels("train").tolist() == [0, 1, 1, 1, 0, 1, 1, 1, 0, 1]
    assert source.image("train", 8).getpixel((0, 0)) == (4, 4, 4)


class _Runs:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.target),)


def test_a_pickle_cannot_run_code(tmp_path: Path) -> None:
    trap = tmp_path / "train"
    trap.write_bytes(pickle.dumps({b"data": _Runs(tmp_path / "trapped")}))
    with pytest.raises(DataError, match=r"train: not a CIFAR file \(it asks for .*mkdir"):
        read_arrays(trap)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("name", ["builtins.eval", "os.system", "numpy.load", "numpy.core.multiarray.scalar"])
def test_only_plain_arrays_may_be_rebuilt(tmp_path: Path, name: str) -> None:
    module, _, attribute = name.rpartition(".")
    path = tmp_path / "file"
    path.write_bytes(f"c{module}\n{attribute}\n(S'1'\ntR.".encode())
    with pytest.raises(DataError, match="which no CIFAR file needs"):
        read_arrays(path)


def test_damaged_cifar_files_are_named(tmp_path: Path) -> None:
    cifar100(tmp_path)
    whole = (tmp_path / "train").read_bytes()
    (tmp_path / "train").write_bytes(whole[:500])
    with pytest.raises(DataError, match="train: not a CIFAR file"):
        CifarSource(tmp_path)
    (tmp_path / "train").write_bytes(pickle.dumps({b"data": np.zeros((2, 3000), np.uint8), b"fine_labels": [0, 1]}))
    with pytest.raises(DataError, match=r"train: its data is not \[2, 3072\] bytes"):
        CifarSource(tmp_path)
    (tmp_path / "train").write_bytes(pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": [5]}))
    with pytest.raises(DataError, match=r"train: a label is outside 0\.\.4"):
        CifarSource(tmp_path)
    (tmp_path / "train").unlink()
    with pytest.raises(DataError, match="train: no such file"):
        CifarSource(tmp_path)


def test_digits_are_doubled_rgb_with_a_fixed_stratified_split() -> None:
    source = DigitsSource()
    assert source.classes == tuple("0123456789")
    assert len(source.labels("train")) + len(source.labels("test")) == 1797
    share = np.bincount(source.labels("test")) / (
        np.bincount(source.labels("test")) + np.bincount(source.labels("train"))
    )
    assert np.abs(share - 0.2).max() < 0.01
    image = np.asarray(source.image("train", 0))
    assert image.shape == (16, 16, 3)
    np.testing.assert_array_equal(image[::2, ::2], image[1::2, 1::2])
    assert max(np.asarray(source.image("train", i)).max() for i in range(20)) == 255
    np.testing.assert_array_equal(source.labels("test"), DigitsSource().labels("test"))


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"pip install 'polarvit\[demo\]'"):
        DigitsSource()
