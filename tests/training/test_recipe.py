"""Recipes: every shipped one can be used, says what was published, and errors name the key."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from polarvit.data.augment.config import Augmentation
from polarvit.models import create_model
from polarvit.training.recipe import Recipe, apply, dump, load, merge, read, shipped
from polarvit.training.recipe_keys import keys
from polarvit.training.settings import SettingsError, build, plain

NAMES = sorted(shipped())
PLAIN = [name for name in NAMES if name.endswith(("polar_vit_tiny", "polar_vit_small", "polar_vit_base"))]
TWINS = [
    *((name, name.replace("polar_vit", "vit")) for name in PLAIN),
    ("digits", "digits_vit"),
    ("own_images", "own_images_vit"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_recipe_loads_and_its_model_can_be_built(name: str) -> None:
    recipe = load(name)
    with torch.device("meta"):
        model = create_model(recipe.model.name, num_classes=7, **recipe.model.options)
    assert model.count() > 0
    assert recipe.optim.warmup < recipe.train.steps
    assert recipe.train.batch_size % recipe.train.accumulate == 0
    assert build(Recipe, yaml.safe_load(dump(recipe))) == recipe


def test_titles_tell_recipes_apart() -> None:
    titles = [load(name).title for name in NAMES]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(("polar", "twin"), TWINS)
def test_a_euclidean_twin_differs_in_model_and_optimizer_only(polar: str, twin: str) -> None:
    ours, theirs = load(polar), load(twin)
    assert theirs.model.name == ours.model.name.replace("polar_vit", "vit")
    assert (ours.data, ours.augment, ours.watch) == (theirs.data, theirs.augment, theirs.watch)
    assert ours.train.steps == theirs.train.steps
    assert ours.optim.warmup == theirs.optim.warmup


def test_every_polar_recipe_of_the_paper_has_its_twin() -> None:
    assert {twin for _, twin in TWINS} <= set(NAMES)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cifar10_polar_vit_tiny", {"train.steps": 117100, "optim.lr": 3e-3, "augment.mean": (0.4914, 0.4822, 0.4465)}),
        ("cifar100_polar_vit_tiny", {"train.steps": 117100, "optim.lr": 3e-3, "optim.weight_decay": 0.05}),
        ("cifar100_vit_tiny", {"optim.lr": 2e-3, "optim.weight_decay": 0.06, "optim.warmup": 11710}),
        ("tiny_imagenet_polar_vit_tiny", {"train.steps": 234300, "optim.warmup": 23430, "train.batch_size": 128}),
        ("imagenet_vit_small", {"train.steps": 111476, "optim.weight_decay": 0.1, "optim.clip": 1.0, "optim.lr": 1e-3}),
        ("imagenet_polar_vit_tiny", {"augment.mixup_alpha": 0.2, "augment.mix_probability": 1.0, "data.resize": 256}),
        ("cub_polar_vit_small", {"train.steps": 2300, "optim.warmup": 115, "optim.lr": 2.5e-4, "train.accumulate": 8}),
        ("aircraft_vit_tiny", {"train.steps": 2600, "optim.final_lr": 1e-5, "augment.cutmix_alpha": 1.0}),
    ],
)
def test_published_numbers_stand_in_the_recipes(name: str, settings: dict[str, object]) -> None:
    recipe = load(name)
    for path, expected in settings.items():
        group, key = path.split(".")
        assert getattr(getattr(recipe, group), key) == expected, path


def test_random_erasing_of_hexformer_is_that_of_zhong() -> None:
    augment = load("cifar100_polar_vit_tiny").augment
    assert (augment.erase_probability, augment.erase_area, augment.erase_mode) == (0.25, (0.02, 0.4), "mean")
    assert augment.erase_aspect == pytest.approx((0.3, 1 / 0.3), rel=1e-6)


def test_beyer_uses_the_default_colours_and_nothing_else() -> None:
    augment = load("imagenet_polar_vit_small").augment
    assert (augment.mean, augment.std) == (Augmentation().mean, Augmentation().std)
    assert (augment.label_smoothing, augment.erase_probability, augment.cutmix_alpha) == (0, 0, 0)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optim.lrr=1", "unknown setting 'optim.lrr'; did you mean 'optim.lr'"),
        ("lr=1", "unknown setting 'lr'; did you mean 'optim.lr'"),
        ("optm.lr=1", "unknown setting 'optm'; did you mean 'optim'"),
        ("model.options.dept=3", "unknown setting 'model.options.dept'; did you mean 'model.options.depth'"),
        ("model.options.depth=deep", "model.options.depth: must be a whole number, got 'deep'"),
        ("model.options.heads=5", "dim 48 is not divisible by 5 heads"),
        ("model.name=resnet", "unknown model 'resnet'"),
        ("optim.lr=0", "optim: lr must be positive, got 0.0"),
        ("optim.warmup=-1", "optim: warmup must not be negative, got -1"),
        ("train.steps=-5", "train: steps must be positive, got -5"),
        ("train.precision=fp16", "train.precision: must be one of fp64, fp32, tf32, bf16"),
        ("augment.flip=2", "flip is 2.0, expected a number from 0 to 1"),
        ("title.x=1", "'title' is not a group of settings"),
        ("optim.lr", "takes key.path=value"),
        ("=3", "takes key.path=value"),
        ("optim.lr=[", "is not a YAML value"),
    ],
)
def test_an_override_that_does_not_fit_is_named(override: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load("digits", [override])
    assert message in str(caught.value)


def test_overrides_are_applied_in_order_and_read_as_yaml() -> None:
    changes = [
        "optim.lr=1e-3",
        "optim.lr=2e-3",
        "model.options.drop_path=2e-1",
        "optim.betas=[0.8, 0.9]",
        "optim.clip=null",
    ]
    recipe = load("digits", changes)
    assert (recipe.optim.lr, recipe.optim.betas, recipe.optim.clip) == (2e-3, (0.8, 0.9), None)
    assert recipe.model.options["drop_path"] == 0.2
    assert recipe.model.options["depth"] == 2


def test_a_group_is_made_where_the_recipe_has_none() -> None:
    values = {"title": "x"}
    apply(values, "optim.lr=1e-3")
    assert values == {"title": "x", "optim": {"lr": "1e-3"}}


def test_a_base_is_merged_group_by_group(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base: digits\ntitle: a\nmodel: {options: {depth: 2}}\noptim: {lr: 1e-3}\n")
    (tmp_path / "b.yaml").write_text("base: a.yaml\ntitle: b\noptim: {betas: [0.5, 0.6]}\n")
    found, origin = load(tmp_path / "b.yaml"), load("digits")
    assert (found.title, found.optim.lr, found.optim.betas) == ("b", 1e-3, (0.5, 0.6))
    assert found.model.options == {**origin.model.options, "depth": 2}
    assert found.train == origin.train


def test_merging_changes_neither_of_the_two() -> None:
    base, top = {"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}, "d": None}
    assert merge(base, top) == {"a": {"b": 1, "c": [2]}, "d": None}
    assert (base, top) == ({"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}, "d": None})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"r": "base: r.yaml\n"}, "circle: r.yaml -> r.yaml"),
        ({"r": "base: s.yaml\n", "s": "base: r.yaml\n"}, "circle: r.yaml -> s.yaml -> r.yaml"),
        ({"r": "base: digit\n"}, "no recipe 'digit': not a file, and did you mean 'digits'"),
        ({"r": "base: [a]\n"}, "base must be the name or the path"),
        ({"r": "- 1\n"}, "expected a mapping"),
        ({"r": "a: [\n"}, "not valid YAML"),
        ({"r": ""}, "expected a mapping"),
        ({"r": "title: x\nmodel: {name: vit_tiny}\n"}, "r.yaml: missing setting 'data.path'"),
        ({"r": "title: x\nmodel: {options: {depth: 1}}\ndata: {path: x}\n"}, "missing setting 'model.name'"),
        ({"r": "title: x\n"}, "missing settings 'model.name', 'data.path'"),
        ({"r": "base: digits\noptim: {lrr: 1}\n"}, "r.yaml: unknown setting 'optim.lrr'; did you mean 'optim.lr'"),
        ({"r": "base: s.yaml\n", "s": "title: x\n"}, "r.yaml: missing settings 'model.name', 'data.path'"),
    ],
)
def test_a_file_that_is_no_recipe_says_why(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(tmp_path / "r.yaml")
    assert message in str(caught.value)


def test_an_override_may_say_what_the_file_leaves_out_and_is_not_blamed_on_it(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("title: x\nmodel: {name: vit_tiny}\n")
    assert load(tmp_path / "r.yaml", ["data.path=digits"]).data.path == "digits"
    with pytest.raises(SettingsError, match=r"^unknown setting 'optim\.lrr'"):
        load(tmp_path / "r.yaml", ["data.path=digits", "optim.lrr=1"])


def test_no_recipe_repeats_what_its_base_says() -> None:
    for name, path in shipped().items():
        own = yaml.safe_load(path.read_text())
        if "base" in own:
            assert not list(repeated(read(own["base"]), own)), name


def repeated(base: dict[str, object], own: dict[str, object], path: str = "") -> list[str]:
    """Keys with the value they would have anyway."""
    found = []
    for key, value in own.items():
        before = base.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            found += repeated(before, value, f"{path}{key}.")
        elif key in base and before == value:
            found.append(path + key)
    return found


def test_every_key_is_explained() -> None:
    assert [key.path for key in keys() if not key.meaning] == []


def test_keys_are_those_of_a_written_recipe() -> None:
    written = plain(load("digits"))
    paths = [f"{group}.{key}" for group, inner in written.items() if isinstance(inner, dict) for key in inner]
    assert ["title", *paths] == [key.path for key in keys()]
